"""Keys of the accept API: ms_live_<id>_<secret>, or ms_test_ where nothing that it posts is ever sent."""

import hashlib
import hmac
import re
from base64 import b32encode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

RANDOM_BYTES: Final = 42
_KEY: Final = re.compile(r"ms_(live|test)_([a-z2-7]{16})_([A-Za-z0-9_-]{43})", re.ASCII)


class Scope(StrEnum):
    """What a key may do."""

    EMAILS_SEND = "emails:send"
    EMAILS_READ = "emails:read"
    SUPPRESSIONS_READ = "suppressions:read"
    SUPPRESSIONS_WRITE = "suppressions:write"


class NewKey(NamedTuple):
    """A key that was just made; its text is shown once, and only the hash is kept."""

    id: str
    text: str
    hash: bytes


class PresentedKey(NamedTuple):
    """What a client showed: whose it would be, and the hash that would prove it."""

    id: str
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as it is kept, with what its tenant may write as sender (None: anything)."""

    id: str
    tenant: str
    test: bool
    scopes: frozenset[str]
    hash: bytes
    expires: datetime | None
    revoked: datetime | None
    senders: tuple[str, ...] | None

    def is_good(self, presented: PresentedKey, *, now: datetime) -> bool:
        """Whether this is the key that was shown, and it still counts. Takes as long for a wrong secret as for a right one."""
        is_same = hmac.compare_digest(self.hash, presented.hash)
        is_over = self.expires is not None and self.expires <= now
        return is_same and not is_over and self.revoked is None


def new_key(random: bytes, *, test: bool) -> NewKey:
    """A key of 42 random bytes: 10 for its id, 32 for its secret."""
    key_id = b32encode(random[:10]).decode().lower()
    secret = urlsafe_b64encode(random[10:RANDOM_BYTES]).decode().rstrip("=")
    text = f"ms_{'test' if test else 'live'}_{key_id}_{secret}"
    return NewKey(key_id, text, _hash(text))


def read_key(text: str) -> PresentedKey | None:
    """None if the text has not the form of a key."""
    found = _KEY.fullmatch(text)
    return PresentedKey(found[2], _hash(text)) if found else None


def _hash(text: str) -> bytes:
    """The secret has 256 random bits: nobody guesses it, so that a slow hash would protect nothing more."""
    return hashlib.sha256(text.encode()).digest()


def may_send_from(senders: tuple[str, ...] | None, address: str) -> bool:
    """Whether the address, or its domain, is one of the tenant's sender identities."""
    if senders is None:
        return True
    lowered = address.lower()
    return not {lowered, lowered.rpartition("@")[2]}.isdisjoint(s.lower() for s in senders)
