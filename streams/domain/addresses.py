"""Mail addresses and the recipient key (the SQL functions normalise_address and recipient_key do the same)."""

import hashlib
import hmac
from functools import lru_cache
from typing import Final, NewType

RecipientKey = NewType("RecipientKey", str)

_WHITESPACE: Final = " \t\r\n"
_LOWER_ASCII: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def normalise(address: str) -> str:
    """Trimmed, ASCII letters lower-cased, nothing else folded: no dots, no plus, no Unicode case folding."""
    trimmed = address.strip(_WHITESPACE)
    return trimmed.lower() if trimmed.isascii() else trimmed.translate(_LOWER_ASCII)


def recipient_key(address: str, salt: bytes) -> RecipientKey:
    """32 hex digits: HMAC-SHA-256 of the normalised address, cut to 128 bits.

    Lone surrogates, which JSON can carry and UTF-8 cannot, are replaced: such an address is nobody's.
    """
    begun = _begun_hmac(salt)
    inner, outer = begun[0].copy(), begun[1].copy()
    inner.update(normalise(address).encode("utf-8", "replace"))
    outer.update(inner.digest())
    return RecipientKey(outer.hexdigest()[:32])


@lru_cache(maxsize=4)
def _begun_hmac(salt: bytes) -> tuple["hashlib._Hash", "hashlib._Hash"]:
    """SHA-256 of each pad, to be copied and continued: half of what hmac.digest costs, which begins anew for each address."""
    inner, outer = salt_pads(salt)
    return hashlib.sha256(inner), hashlib.sha256(outer)


def salt_pads(salt: bytes) -> tuple[bytes, bytes]:
    """The inner and outer pad of HMAC-SHA-256 (RFC 2104), 64 bytes each, as table recipient_salt keeps them."""
    block = hashlib.sha256(salt).digest() if len(salt) > 64 else salt
    block = block.ljust(64, b"\0")
    return bytes(b ^ 0x36 for b in block), bytes(b ^ 0x5C for b in block)


def salt_fingerprint(salt: bytes) -> str:
    """Tells salts apart without telling the salt: 16 hex digits."""
    return hmac.new(salt, b"mailstreams salt fingerprint", hashlib.sha256).hexdigest()[:16]
