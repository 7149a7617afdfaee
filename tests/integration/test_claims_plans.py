"""How the statements of a sender read: by key alone, in place, without waiting."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.domain.attempts import (
    OutcomeKind,
    Presence,
    Recorded,
    Verdict,
)
from tests.integration.sender_rows import (
    attempt_id,
    claim,
    claimed,
    feed,
    insert,
    outcome,
    pointer,
    row_of,
    suppress,
)

pytestmark = pytest.mark.servers


async def test_reading_tells_what_still_waits(database: Database, store: OutboxStore) -> None:
    waiting, settled = await insert(database), await insert(database)
    await claimed(store, settled)
    found = await store.read_pending([pointer(i) for i in (settled, attempt_id(), waiting)])
    assert found == [Presence.SETTLED, Presence.ABSENT, Presence.PENDING]


async def test_unsendable_rows_are_closed_only_where_the_database_confirms_it(
    database: Database, store: OutboxStore
) -> None:
    await suppress(database, "bounced@example.com")
    suppressed = await insert(database, recipient="bounced@example.com")
    expired = await insert(database, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    fine = await insert(database)
    closed = await store.close_unsendable([fine, suppressed, expired])
    assert closed == {suppressed: Verdict.SUPPRESSED, expired: Verdict.EXPIRED}
    assert (await row_of(database, fine))["state"] == "pending"
    assert (await row_of(database, suppressed))["reason"] == "hard-bounce"
    events = [json.loads(e["payload"])["type"] for e in await feed(database, "delivery-events")]
    assert sorted(events) == ["mailstreams.email.expired", "mailstreams.email.suppressed"]


WIDE = {"pause"}
CONDITIONS = {"Index Cond", "TID Cond", "Recheck Cond"}


@pytest.mark.parametrize("statistics", ["none", "empty", "few"])
@pytest.mark.parametrize(
    "name", ["claim_emails", "record_outcomes", "read_pending", "close_unsendable", "hold_paused"]
)
async def test_statement_reads_every_table_by_key_however_small_it_was_when_it_was_planned(
    sender_database: Database, name: str, statistics: str
) -> None:
    """A plan is made once a connection, and may be used when the tables have grown."""
    async with sender_database.connection() as connection:
        if statistics == "few":
            await insert(connection)
            await connection.execute(
                "INSERT INTO email_lease (id, attempt_id, expires) VALUES (uuid_v7(), uuid_v7(), now())"
            )
        if statistics != "none":
            await connection.execute("VACUUM (ANALYZE)")
        count = len((await connection.prepare(query(name))).get_parameters())
        await connection.execute(f"PREPARE planned AS {query(name)}")
        plan = await connection.fetchval(
            f"EXPLAIN (FORMAT JSON) EXECUTE planned ({', '.join(['NULL'] * count)})"
        )
    reads = [node for node in _nodes(json.loads(plan)) if "Relation Name" in node]
    assert any(node["Relation Name"] == "email_outbox" for node in reads)
    for node in reads:
        assert (
            node["Node Type"] == "ModifyTable"
            or node["Relation Name"] in WIDE
            or CONDITIONS & node.keys()
        ), node


def _nodes(tree: Any) -> list[dict[str, Any]]:
    if isinstance(tree, list):
        return [node for each in tree for node in _nodes(each)]
    if not isinstance(tree, dict):
        return []
    found = [tree] if "Node Type" in tree else []
    return found + [node for value in tree.values() for node in _nodes(value)]


async def test_copied_rows_are_claimed_and_recorded_in_place_also_beside_an_old_snapshot(
    database: Database, store: OutboxStore, sender_database: Database
) -> None:
    """A report that runs for long keeps every version of a row; both changes still find room on its page."""
    total, batch, body = 4_000, 200, "Lorem ipsum dolor sit amet, 0123456789. " * 100
    async with database.connection() as connection:
        await connection.copy_records_to_table(
            "email_outbox",
            columns=["recipient", "sender", "subject", "text"],
            records=[
                (f"user{n}@example.com", "shop@example.com", "Hello", f"{n} {body}")
                for n in range(total)
            ],
        )
        ids = [r["id"] for r in await connection.fetch("SELECT id FROM email_outbox ORDER BY id")]
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("SELECT count(*) FROM pause")
            for start in range(0, total, batch):
                answers = await claim(store, *ids[start : start + batch])
                emails = [a.email for a in answers if a.email is not None]
                assert len(emails) == batch
                recorded = await store.record(
                    [
                        outcome(e, OutcomeKind.ACCEPTED, provider_message_id=str(e.id))
                        for e in emails
                    ]
                )
                assert set(recorded.values()) == {Recorded.APPLIED}
    await sender_database.stop()  # a connection tells its counts when it ends
    updates = await _updates(database, 2 * total)
    assert updates["hot"] / updates["all"] >= 0.99


async def _updates(database: Database, expected: int) -> dict[str, int]:
    """The counters of email_outbox once every connection has reported."""
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        async with database.connection() as connection:
            await connection.execute("SELECT pg_stat_force_next_flush()")
            row = await connection.fetchrow(
                "SELECT n_tup_upd AS \"all\", n_tup_hot_upd AS hot FROM pg_stat_user_tables WHERE relname = 'email_outbox'"
            )
        assert row is not None
        if row["all"] >= expected or asyncio.get_running_loop().time() > deadline:
            return dict(row)
        await asyncio.sleep(0.2)
