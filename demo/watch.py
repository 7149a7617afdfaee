"""What the demo looks at while it runs and at its end, read from the servers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from demo.plan import Message
from demo.verdict import Found

_FILLED = (
    "SELECT outbox_id, recipient_key, array_remove(ARRAY["
    "CASE WHEN accepted_at IS NOT NULL THEN 'accepted_at' END, "
    "CASE WHEN delivered_at IS NOT NULL THEN 'delivered_at' END, "
    "CASE WHEN bounced_at IS NOT NULL THEN 'bounced_at' END, "
    "CASE WHEN complained_at IS NOT NULL THEN 'complained_at' END], NULL) AS filled FROM recipient_outcome"
)


async def states(pool: asyncpg.Pool[asyncpg.Record]) -> dict[str, int]:
    """Rows by state."""
    rows = await pool.fetch("SELECT state, count(*) AS n FROM email_outbox GROUP BY state")
    return {row["state"]: row["n"] for row in rows}


async def suppressed_recipients(
    pool: asyncpg.Pool[asyncpg.Record], messages: Sequence[Message]
) -> int:
    """How many of these messages' recipients a new message would find suppressed."""
    return int(
        await pool.fetchval(
            "SELECT count(*) FROM unnest($1::text[], $2::text[]) AS m (recipient, tenant) WHERE EXISTS "
            "(SELECT FROM suppression AS s WHERE s.recipient_key = recipient_key(m.recipient) AND s.tenant IN ('*', m.tenant))",
            [m.recipient for m in messages],
            [m.tenant for m in messages],
        )
    )


async def find(pool: asyncpg.Pool[asyncpg.Record], ledger: Sequence[dict[str, Any]]) -> Found:
    """Everything the verdict needs."""
    addresses = sorted({address for call in ledger for address in call["recipients"]})
    keys = await pool.fetch(
        "SELECT a, recipient_key(a) AS k FROM unnest($1::text[]) AS a", addresses
    )
    rows = await pool.fetch("SELECT id, state FROM email_outbox")
    facts = await pool.fetch(_FILLED)
    since = await pool.fetch("SELECT recipient_key, min(created) AS at FROM suppression GROUP BY 1")
    return Found(
        states={UUID(str(row["id"])): row["state"] for row in rows},
        ledger=ledger,
        facts={
            (UUID(str(r["outbox_id"])), r["recipient_key"]): frozenset(r["filled"]) for r in facts
        },
        suppressed_at={row["recipient_key"]: row["at"] for row in since},
        keys={row["a"]: row["k"] for row in keys},
    )
