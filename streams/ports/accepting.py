"""What the accept API needs: keys, the one statement that accepts, and what a tenant may ask and change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from streams.domain.address_lists import Recipient
from streams.domain.addresses import RecipientKey
from streams.domain.api_keys import ApiKey

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRequest:
    """One posted request: rows have the columns of email_outbox and n, the place of the e-mail in the request."""

    tenant: str
    test: bool
    idempotency_key: str | None
    digest: bytes
    rows: Sequence[Mapping[str, Any]]


class Decision(StrEnum):
    """What became of a request."""

    DECIDED = "decided"
    REPLAYED = "replayed"
    CONFLICT = "conflict"
    RATE_LIMITED = "rate-limited"
    QUOTA_USED_UP = "quota-used-up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What was committed of a request, or why nothing was.

    emails: of each e-mail n and outcome (accepted, known, suppressed, no-template), id, reason, since, until.
    """

    decision: Decision
    emails: Sequence[Row] = ()
    wait_s: float = 0.0
    burst: int | None = None
    per_second: float | None = None
    left: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailFilter:
    """Which messages of a tenant are listed, newest first; before: only those with a smaller id."""

    tenant: str
    before: UUID
    state: str | None = None
    lane: str | None = None
    recipient: RecipientKey | None = None
    limit: int = 50


class AcceptStore(Protocol):
    """PostgreSQL. Unavailable: what was asked may have been done or not; BadMessage: it was not, and why.

    Every method that is given a tenant sees and changes what is this tenant's, and nothing else.
    """

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def find_key(self, key_id: str) -> ApiKey | None: ...

    async def accept(self, requests: Sequence[AcceptRequest]) -> Sequence[Accepted | Exception]:
        """One answer a request, in order; each that is not an exception is committed."""

    async def replay(self, tenant: str, key: str, *, test: bool) -> tuple[bytes, Accepted] | None:
        """Digest and answer of the first request under this key, if there was one."""

    async def read(self, tenant: str, id_: UUID) -> Row | None:
        """The message, with its events."""

    async def page(self, which: EmailFilter) -> tuple[list[Row], UUID | None]:
        """A page, and where the next one begins, if more may follow."""

    async def cancel(self, tenant: str, id_: UUID, *, by_whom: str, why: str) -> str:
        """cancelled, busy, absent, or the state that it has ended in."""

    async def reschedule(
        self, tenant: str, id_: UUID, send_after: datetime, *, by_whom: str
    ) -> str:
        """rescheduled, due, busy, absent, or the state that it is in."""

    async def suppressions(
        self, tenant: str, *, key: RecipientKey | None, after: str, limit: int
    ) -> list[Row]:
        """The tenant's own; of a single recipient also those of all tenants."""

    async def suppress(
        self,
        tenant: str,
        key: RecipientKey,
        *,
        lane: str,
        by_whom: str,
        why: str,
        lasting: timedelta | None,
    ) -> str:
        """added, extended, or was there."""

    async def lift(
        self, tenant: str, who: Recipient, *, lane: str, by_whom: str, why: str
    ) -> list[Row]:
        """The tenant's suppressions that are gone."""

    async def purge(self) -> int:
        """Forgets answers that are older than a day; how many."""
