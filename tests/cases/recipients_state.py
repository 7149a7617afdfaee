"""What PostgreSQL says after a fold, and the rows that were sent before it."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from streams.adapters.outbox_store import PLANNER, OutboxStore
from streams.adapters.postgres import Database
from streams.domain.addresses import recipient_key
from streams.domain.attempts import AttemptId, ClaimRequest
from tests.conftest import SALT
from tests.integration.outbox_rows import Row, execute, fetch, make_row

TENANT: Final = "example"
_OUTCOMES: Final = {
    "accepted": "accepted_at",
    "delivered": "delivered_at",
    "delayed": "delayed_at",
    "complained": "complained_at",
    "opened": "opened_at",
    "clicked": "clicked_at",
}
_ENQUEUE: Final = """
SELECT enqueue_email(recipient => $1, sender => 'sender@example.com', subject => 'Hello', body_text => 'Hi', tenant => $2)
"""
_IN_FORCE: Final = """
SELECT recipient_key, reason, evidence_at, expires FROM suppression
WHERE tenant IN ('*', $1) AND lane IN ('*', 'transactional') AND (expires IS NULL OR expires > clock_timestamp())
ORDER BY recipient_key, reason
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """One row of table suppression that is in force for transactional mail."""

    key: str
    reason: str
    evidence_at: datetime | None
    expires: datetime | None


class RecipientsState:
    """One database that is emptied before each run."""

    def __init__(self, dsn: str) -> None:
        self._database = Database(
            dsn, pool_size=3, timeout_s=20, name="cases", server_settings=PLANNER
        )
        self._outbox = OutboxStore(self._database, max_attempts=5)
        self._tables: Sequence[str] = ()

    async def start(self) -> None:
        """What has rows now belongs to the schema and is kept."""
        await self._outbox.start()
        tables = await fetch(
            self._database,
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1",
        )
        names = [f'"{row["tablename"]}"' for row in tables]
        self._tables = [
            name
            for name in names
            if not await execute(self._database, f"SELECT EXISTS (SELECT FROM {name})")
        ]

    async def stop(self) -> None:
        await self._outbox.stop()

    async def clear(self) -> None:
        """Deletes, since truncating dozens of tables takes half a second; without triggers, which would tell the feed of it."""
        statements = [
            "SET LOCAL session_replication_role = replica",
            *(f"DELETE FROM {table}" for table in self._tables),
        ]
        async with self._database.connection() as connection:
            await connection.execute(f"BEGIN; {'; '.join(statements)}; COMMIT")

    async def send(self, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
        """The rows with one attempt each, as senders leave them."""
        made = [
            make_row(
                self._database,
                row["state"],
                recipient=row["recipient"],
                tenant=TENANT,
                provider_message_id=row["provider_message_id"],
                lease_s=3600,
            )
            for row in rows
        ]
        return await asyncio.gather(*made)

    async def suppressed(self) -> list[Suppressed]:
        rows = await fetch(self._database, _IN_FORCE, TENANT)
        return [
            Suppressed(
                key=row["recipient_key"],
                reason=row["reason"],
                evidence_at=row["evidence_at"],
                expires=row["expires"],
            )
            for row in rows
        ]

    async def claimed(self, addresses: Iterable[str]) -> dict[str, tuple[str, str | None]]:
        """What becomes of a new transactional mail to each: the state of its row and why; `refused` by the insert."""
        made: dict[str, UUID] = {}
        found: dict[str, tuple[str, str | None]] = {}
        for address in dict.fromkeys(addresses):
            try:
                made[address] = await execute(self._database, _ENQUEUE, address, TENANT)
            except asyncpg.PostgresError as error:
                found[address] = ("refused", type(error).__name__)
        xid = int(await execute(self._database, "SELECT pg_current_xact_id()::text"))
        requests = [
            ClaimRequest(
                id=id_,
                attempt_id=AttemptId(await execute(self._database, "SELECT uuid_v7()")),
                xid=xid,
            )
            for id_ in made.values()
        ]
        await self._outbox.claim(requests, lease_s=60)
        states = await self._states(list(made.values()))
        return found | {address: states[id_] for address, id_ in made.items()}

    async def _states(self, ids: Sequence[UUID]) -> dict[UUID, tuple[str, str | None]]:
        rows = await fetch(
            self._database, "SELECT id, state, reason FROM email_outbox WHERE id = ANY ($1)", ids
        )
        return {UUID(bytes=row["id"].bytes): (row["state"], row["reason"]) for row in rows}

    async def row_states(self, rows: Sequence[Row]) -> list[str]:
        states = await self._states([row.id for row in rows])
        return [states[row.id][0] for row in rows]

    async def outcome(self, address: str) -> dict[str, Any]:
        """The facts of all messages to this recipient together; `bounced` is the set of what they say."""
        key = recipient_key(address, SALT)
        rows = await fetch(
            self._database, "SELECT * FROM recipient_outcome WHERE recipient_key = $1", key
        )
        # What belongs to no message of ours is only in the facts.
        events = await fetch(
            self._database,
            "SELECT type, payload->'bounce'->>'type' AS bounce FROM email_event WHERE recipient_key = $1 AND outbox_id IS NULL",
            key,
        )
        kinds = {event["type"] for event in events}
        bounces = {row["bounce_type"] for row in rows} | {event["bounce"] for event in events}
        facts: dict[str, Any] = {
            fact: fact in kinds or any(row[column] is not None for row in rows)
            for fact, column in _OUTCOMES.items()
        }
        return facts | {"bounced": sorted(bounces - {None}) or [False]}

    async def streak(self, address: str) -> int:
        """The longest of the recipient's streaks in this tenant and in none."""
        found = await execute(
            self._database,
            "SELECT max(soft_bounce_streak) FROM recipient_state WHERE recipient_key = $1 AND tenant IN ('*', $2)",
            recipient_key(address, SALT),
            TENANT,
        )
        return int(found or 0)

    async def written(self) -> list[str]:
        """The payloads that the relay is to publish."""
        rows = await fetch(self._database, "SELECT payload::text AS text FROM outbox_feed")
        return [row["text"] for row in rows if row["text"] is not None]
