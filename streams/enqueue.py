"""For applications: puts an e-mail into the outbox in their own transaction, as SQL's enqueue_email does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg
import orjson

from streams.domain.errors import BadMessage
from streams.domain.mailboxes import ascii_domain_of, name_and_address
from streams.domain.topics import Lane

_ENQUEUE: Final = """
SELECT enqueue_email(recipient => $1, sender => $2, subject => $3, body_text => $4, body_html => $5, template => $6,
  variables => $7, tenant => $8, lane => $9, dedup_key => $10, send_after => $11, expires_at => $12, cc => $13, bcc => $14,
  reply_to => $15, headers => $16, tags => $17, traceparent => $18, template_version => $19, attachments => $20,
  on_ambiguous => $21, sender_name => $22)
"""
_NOT_WRITABLE: Final = "a text has a character that PostgreSQL cannot keep (U+0000, or half of a surrogate pair): take it out"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEmail:
    """One message to one recipient: a subject with text or html, or a template with its variables.

    Domains outside ASCII are converted to their xn-- form; before the @ SES takes ASCII only. The sender may be written
    "Name <address>"; a name that stands so in reply_to is not kept.
    """

    recipient: str
    sender: str
    subject: str | None = None
    text: str | None = None
    html: str | None = None
    template: str | None = None
    template_version: int | None = None
    variables: Mapping[str, Any] | None = None
    tenant: str = "default"
    lane: Lane = Lane.TRANSACTIONAL
    dedup_key: str | None = None
    send_after: datetime | None = None
    expires_at: datetime | None = None
    cc: Sequence[str] | None = None
    bcc: Sequence[str] | None = None
    reply_to: str | None = None
    headers: Mapping[str, str] | None = None
    tags: Mapping[str, str] | None = None
    traceparent: str | None = None
    attachments: Sequence[Mapping[str, Any]] | None = None
    on_ambiguous: str = "hold"


async def enqueue(connection: "asyncpg.Connection[asyncpg.Record]", email: NewEmail) -> UUID:
    """Inserts it in the connection's transaction and returns its id; BadMessage says what to change, and quotes nothing of the
    e-mail. A refusal of PostgreSQL has ended the transaction, as any error in one does."""
    try:
        made = await connection.fetchval(_ENQUEUE, *_values(email))
    except (asyncpg.CheckViolationError, asyncpg.NotNullViolationError) as error:
        raise BadMessage(_sentence(error)) from None  # its detail quotes the whole row
    except (UnicodeError, asyncpg.DataError, asyncpg.UntranslatableCharacterError) as error:
        raise BadMessage(f"the e-mail is refused: {_NOT_WRITABLE}") from error
    return UUID(bytes=made.bytes)


def _values(email: NewEmail) -> list[Any]:
    sender_name, sender = name_and_address(email.sender)
    _, reply_to = name_and_address(email.reply_to or "")
    return [
        ascii_domain_of(email.recipient),
        ascii_domain_of(sender),
        email.subject,
        email.text,
        email.html,
        email.template,
        _json(email.variables),
        email.tenant,
        email.lane,
        email.dedup_key,
        email.send_after,
        email.expires_at,
        None if email.cc is None else [ascii_domain_of(a) for a in email.cc],
        None if email.bcc is None else [ascii_domain_of(a) for a in email.bcc],
        None if email.reply_to is None else ascii_domain_of(reply_to),
        _json(email.headers),
        _json(email.tags),
        email.traceparent,
        email.template_version,
        _json(email.attachments),
        email.on_ambiguous,
        sender_name,
    ]


def _json(value: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> str | None:
    try:
        return None if value is None else orjson.dumps(value).decode()
    except TypeError as error:
        raise BadMessage(f"the e-mail is refused: {_NOT_WRITABLE}") from error


def _sentence(error: asyncpg.PostgresError) -> str:
    """Constraints are named by what they demand."""
    said = error.as_dict()
    if name := said.get("constraint_name"):
        return f"the e-mail is refused, since this does not hold: {name.replace('_', ' ')}"
    hint = said.get("hint")
    return f"the e-mail is refused: {said.get('message')}" + (f". {hint}" if hint else "")
