"""What a claim gives and what becomes of an attempt: the values that sender and PostgreSQL exchange."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType
from uuid import UUID

from streams.domain.addresses import RecipientKey
from streams.domain.attachments import Attachment
from streams.domain.topics import Lane

AttemptId = NewType("AttemptId", UUID)


def new_attempt_id(now_ms: int, random: bytes) -> AttemptId:
    """A UUID of version 7 from milliseconds since 1970 and ten random bytes."""
    value = int.from_bytes(now_ms.to_bytes(6, "big") + random, "big")
    value &= ~(0xF << 76) & ~(0x3 << 62)
    return AttemptId(UUID(int=value | 7 << 76 | 2 << 62))


class Presence(StrEnum):
    """What reading a pointer's row shows, without claiming it."""

    PENDING = "pending"
    SETTLED = "settled"
    INVISIBLE = "invisible"
    ABSENT = "absent"


class Verdict(StrEnum):
    """What a claim says of one id. Each but claimed and invisible is done with: its row sleeps nowhere."""

    CLAIMED = "claimed"
    SUPPRESSED = "suppressed"
    EXPIRED = "expired"
    EARLY = "early"
    PAUSED = "paused"
    BUSY = "busy"
    SETTLED = "settled"
    INVISIBLE = "invisible"
    ABSENT = "absent"


class OutcomeKind(StrEnum):
    """What came of a claimed row.

    The first seven are outcomes of a call. RELEASED and UNSENDABLE never called SES: given back, or refused by ourselves.
    """

    ACCEPTED = "accepted"
    RETRY = "retry"
    PERMANENT = "permanent"
    THROTTLED = "throttled"
    ACCOUNT_STOP = "account-stop"
    MISCONFIGURED = "misconfigured"
    UNKNOWN = "unknown"
    RELEASED = "released"
    UNSENDABLE = "unsendable"


class PauseScope(StrEnum):
    """What a pause stops."""

    ACCOUNT = "account"
    SENDER = "sender"
    TENANT = "tenant"
    LANE = "lane"
    TEMPLATE = "template"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """One row that is asked for, under the attempt id that it is to carry."""

    id: UUID
    attempt_id: AttemptId
    xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Email:
    """The content of a claimed row; left_out are the keys of suppressed cc and bcc, already taken out of both."""

    id: UUID
    attempt_id: AttemptId
    attempt: int
    tenant: str
    lane: Lane
    recipient: str
    recipient_key: RecipientKey
    cc: tuple[str, ...]
    bcc: tuple[str, ...]
    left_out: tuple[RecipientKey, ...]
    sender: str
    sender_name: str | None = None
    reply_to: str | None
    subject: str | None
    text: str | None
    html: str | None
    template: str | None
    template_version: int | None
    variables: Mapping[str, Any]
    headers: Mapping[str, str]
    tags: Mapping[str, str]
    traceparent: str | None
    attachments: tuple[Attachment, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Everybody whom the call would name as a recipient."""
        return (self.recipient, *self.cc, *self.bcc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecodable:
    """A claimed row whose content cannot be read. The reason says what to change and repeats nothing of the content."""

    id: UUID
    attempt_id: AttemptId
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The answer for one id; with CLAIMED either its email or, where that cannot be read, why not."""

    id: UUID
    verdict: Verdict
    email: Email | None = None
    undecodable: Undecodable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an attempt, as it is to be written. delay_s: until the next try, where there is one.

    reason carries no address. pause: what has to stop because of it.
    """

    id: UUID
    attempt_id: AttemptId
    number: int
    kind: OutcomeKind
    finished: datetime
    started: datetime | None = None
    delay_s: float = 0.0
    provider_message_id: str | None = None
    error_class: str | None = None
    code: str | None = None
    http_status: int | None = None
    reason: str | None = None
    left_out: tuple[RecipientKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Something that has to stop for a while."""

    scope: PauseScope
    value: str
    reason: str
    seconds: float


class Recorded(StrEnum):
    """What writing an outcome did: it moved the row, had been written before, or came too late."""

    APPLIED = "applied"
    REPEATED = "repeated"
    STALE = "stale"
