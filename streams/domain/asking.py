"""What a text can mean that somebody has of a message: an id of ours or the provider's, a recipient, a dedup key."""

import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from streams.domain.address_lists import is_recipient_key
from streams.domain.addresses import RecipientKey
from streams.domain.errors import Misconfigured
from streams.domain.mailboxes import bare_address

LONGEST: Final = 1000
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# The header Message-ID that SES writes: <id@region.amazonses.com>.
_HEADER: Final = re.compile(r"<?([^<>@\s]+)@(?:[a-z0-9-]+\.)*amazonses\.com>?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Every meaning that the text can have; address: its key is still to be made."""

    id: UUID | None
    text: str
    key: RecipientKey | None
    address: str | None


def asked(text: str) -> Asked:
    """Misconfigured if no message can be meant."""
    text = text.strip()
    if not 0 < len(text) <= LONGEST or not text.isprintable():
        raise Misconfigured(
            "write an outbox id, an attempt id, a provider's message id, a mail address, a recipient key or a dedup key"
        )
    header = _HEADER.fullmatch(text)
    return Asked(
        id=UUID(text) if _UUID.fullmatch(text) else None,
        text=header[1] if header else text,
        key=RecipientKey(text) if is_recipient_key(text) else None,
        address=None if header or "@" not in text else bare_address(text),
    )
