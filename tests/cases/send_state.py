"""What PostgreSQL says of the rows of a ses_send variant."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from streams.adapters.postgres import Database
from tests.integration.outbox_rows import fetch

SETTLED: Final = frozenset(
    {"submitted", "failed", "ambiguous", "suppressed", "expired", "cancelled"}
)
_SCOPES: Final = {"sender": "stream"}
_ROWS: Final = (
    "SELECT coalesce(json_agg(o ORDER BY id), '[]')::text "
    "FROM (SELECT id, recipient, state, attempts, reason FROM email_outbox) AS o"
)
# In one round trip, since many variants ask ten times a second.
_LOOK: Final = (
    "SELECT ARRAY(SELECT DISTINCT scope FROM pause WHERE until IS NULL OR until > clock_timestamp()) AS paused, "
    "(SELECT coalesce(json_agg(l), '[]')::text FROM (SELECT attempt_id::text AS id, "
    f"extract(epoch FROM expires - clock_timestamp())::float8 AS left FROM email_lease) AS l) AS leases, ({_ROWS}) AS rows"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """A row as it is now."""

    id: UUID
    recipient: str
    state: str
    attempts: int
    reason: str | None

    @property
    def charged(self) -> int:
        """Attempts taken by calls that did not succeed: the one that succeeded, or is under way, is in the count too."""
        return self.attempts - (self.state in ("submitted", "sending"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A call as the product wrote it down."""

    id: str
    outbox_id: UUID
    outcome: str
    error_class: str | None
    started: datetime | None
    finished: datetime


def _rows(text: str) -> list[OutboxRow]:
    return [OutboxRow(**{**row, "id": UUID(row["id"])}) for row in json.loads(text)]


@dataclass(slots=True, kw_only=True)
class SendState:
    """One database. pauses and leases: what was ever seen by look(); a lease by attempt id, its end on our monotonic clock."""

    database: Database
    pauses: set[str] = field(default_factory=set)
    leases: dict[str, float] = field(default_factory=dict)

    async def look(self) -> list[OutboxRow]:
        """The rows; remembers the pauses and leases of this moment."""
        now = time.monotonic()
        (found,) = await fetch(self.database, _LOOK)
        self.pauses |= {_SCOPES.get(scope, scope) for scope in found["paused"]}
        for lease in json.loads(found["leases"]):
            self.leases.setdefault(lease["id"], now + lease["left"])
        return _rows(found["rows"])

    async def rows(self) -> list[OutboxRow]:
        (found,) = await fetch(self.database, f"SELECT ({_ROWS}) AS rows")
        return _rows(found["rows"])

    async def attempts(self) -> list[Attempt]:
        """Oldest first."""
        found = await fetch(
            self.database,
            "SELECT id, outbox_id, outcome, error_class, started, finished FROM email_attempt "
            "ORDER BY coalesce(started, finished), id",
        )
        return [
            Attempt(**{**row, "id": str(row["id"]), "outbox_id": UUID(str(row["outbox_id"]))})
            for row in found
        ]

    async def tries(self, outbox_id: UUID) -> list[datetime]:
        """When the row was or is to be looked at: in its pointers, and where it waits now."""
        found = await fetch(
            self.database,
            "SELECT (payload->>'due')::timestamptz AS due FROM outbox_feed WHERE type = 'pointer' AND payload->>'id' = $1::uuid::text "
            "UNION SELECT due FROM email_due WHERE id = $1 ORDER BY due",
            outbox_id,
        )
        return [row["due"] for row in found]

    async def suppressed(self) -> set[str]:
        """Keys of recipients that transactional mail does not reach now."""
        found = await fetch(
            self.database,
            "SELECT DISTINCT recipient_key FROM suppression WHERE lane IN ('*', 'transactional') "
            "AND (expires IS NULL OR expires > clock_timestamp())",
        )
        return {row["recipient_key"] for row in found}

    async def reasons(self) -> Mapping[UUID, str]:
        """Of dead letters, by row."""
        found = await fetch(self.database, "SELECT outbox_id, reason FROM dead_letter")
        return {UUID(str(row["outbox_id"])): row["reason"] for row in found}

    async def told(self) -> list[str]:
        """The payloads that the relay is to publish."""
        found = await fetch(self.database, "SELECT payload::text AS text FROM outbox_feed")
        return [row["text"] for row in found if row["text"] is not None]


def settled(rows: Sequence[OutboxRow]) -> bool:
    return all(row.state in SETTLED for row in rows)
