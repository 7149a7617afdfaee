"""Rows, claims and outcomes for the tests of the sender."""

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Connection, Database
from streams.domain.addresses import RecipientKey
from streams.domain.attempts import (
    AttemptId,
    Claim,
    ClaimRequest,
    Email,
    Outcome,
    OutcomeKind,
    new_attempt_id,
)
from streams.domain.pointers import Pointer
from streams.domain.records import TopicPartition
from streams.domain.topics import Lane

LEASE_S = 45.0
GOOD: dict[str, Any] = {
    "recipient": "ann@example.com",
    "sender": "shop@example.com",
    "subject": "Hello",
    "text": "Hi",
}
# The bootstrap transaction, visible to every snapshot.
VISIBLE_XID = 3


def attempt_id() -> AttemptId:
    return new_attempt_id(time.time_ns() // 1_000_000, os.urandom(10))


async def insert(where: Database | Connection, **columns: Any) -> UUID:
    """Inserts one row and returns its id."""
    row = {k: v for k, v in (GOOD | columns).items() if v is not None}
    names = ", ".join(row)
    places = ", ".join(f"${n}" for n in range(1, len(row) + 1))
    text = f"INSERT INTO email_outbox ({names}) VALUES ({places}) RETURNING id"
    if isinstance(where, Database):
        async with where.connection() as connection:
            return UUID(str(await connection.fetchval(text, *row.values())))
    return UUID(str(await where.fetchval(text, *row.values())))


def requests(ids: Sequence[UUID], xid: int = VISIBLE_XID) -> list[ClaimRequest]:
    return [ClaimRequest(id=i, attempt_id=attempt_id(), xid=xid) for i in ids]


async def claim(store: OutboxStore, *ids: UUID, xid: int = VISIBLE_XID) -> list[Claim]:
    return await store.claim(requests(ids, xid), lease_s=LEASE_S)


async def claimed(store: OutboxStore, id_: UUID) -> Email:
    """The content of the row, which must be there to be claimed."""
    [answer] = await claim(store, id_)
    assert answer.email is not None, answer.verdict
    return answer.email


def outcome(email: Email, kind: OutcomeKind, **fields: Any) -> Outcome:
    now = datetime.now(UTC)
    values: dict[str, Any] = {
        "id": email.id,
        "attempt_id": email.attempt_id,
        "number": email.attempt,
        "kind": kind,
        "started": now,
        "finished": now,
    }
    return Outcome(**values | fields)


async def one(database: Database, text: str, *args: Any) -> Any:
    """The first row of the statement as a dict, or None."""
    async with database.connection() as connection:
        row = await connection.fetchrow(text, *args)
    return None if row is None else dict(row)


async def row_of(database: Database, id_: UUID) -> Any:
    return await one(database, "SELECT * FROM email_outbox WHERE id = $1", id_)


async def due_of(database: Database, id_: UUID) -> Any:
    """The wake-up of the row: due (seconds from now), why."""
    return await one(
        database,
        "SELECT extract(epoch FROM due - clock_timestamp())::float8 AS seconds, why FROM email_due WHERE id = $1",
        id_,
    )


async def execute(database: Database, text: str, *args: Any) -> None:
    async with database.connection() as connection:
        await connection.execute(text, *args)


async def feed(database: Database, aggregatetype: str) -> list[Any]:
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT * FROM outbox_feed WHERE aggregatetype = $1 ORDER BY seq", aggregatetype
        )
    return [dict(row) for row in rows]


async def suppress(database: Database, address: str, **columns: Any) -> None:
    row = {"tenant": "*", "lane": "*", "reason": "hard-bounce", "expires": None} | columns
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, tenant, lane, reason, expires) VALUES (recipient_key($1), $2, $3, $4, $5)",
        address,
        row["tenant"],
        row["lane"],
        row["reason"],
        row["expires"],
    )


def pointer(id_: Any, xid: int = VISIBLE_XID) -> Pointer:
    return Pointer(
        id=id_,
        tenant="default",
        lane=Lane.TRANSACTIONAL,
        recipient_key=RecipientKey("0" * 32),
        due=datetime.now(UTC),
        expires=None,
        recipients=1,
        sender_domain="example.com",
        template=None,
        xid=xid,
        traceparent=None,
        topic_partition=TopicPartition("t", 0),
        offset=0,
    )
