"""The races of claim and outcome, each with its interleaving forced by open transactions and locks."""

import asyncio
from typing import Any

import pytest

from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Database
from streams.domain.attempts import (
    OutcomeKind,
    Recorded,
    Verdict,
)
from tests.integration.claim_races import DEADLINE_S, gate, halted_claim, until_halted
from tests.integration.sender_rows import (
    attempt_id,
    claim,
    claimed,
    due_of,
    execute,
    insert,
    one,
    outcome,
    requests,
    row_of,
    suppress,
)

pytestmark = pytest.mark.servers


async def test_two_concurrent_claims_never_both_get_a_row(
    database: Database, store: OutboxStore
) -> None:
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO email_outbox (recipient, sender, subject, text) "
            "SELECT 'user' || n || '@example.com', 'shop@example.com', 'Hello', 'Hi' FROM generate_series(1, 300) AS n"
        )
        ids = [row["id"] for row in await connection.fetch("SELECT id FROM email_outbox")]
    winners: dict[Any, int] = dict.fromkeys(ids, 0)
    orders = [ids, ids[::-1], ids[100:] + ids[:100], ids[200:] + ids[:200]]
    answers = await asyncio.gather(
        *(claim(store, *order[i : i + 50]) for order in orders for i in range(0, 300, 50))
    )
    for answer in (a for batch in answers for a in batch):
        winners[answer.id] += answer.verdict is Verdict.CLAIMED
    assert set(winners.values()) == {1}
    held = await one(database, "SELECT count(*) AS leases FROM email_lease")
    assert held == {"leases": 300}


async def test_suppression_committed_before_the_claim_is_honoured_while_the_row_is_locked(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(database)
    async with database.transaction() as holder:
        await holder.execute("UPDATE email_outbox SET changed = changed WHERE id = $1", id_)
        [first] = await asyncio.wait_for(claim(store, id_), DEADLINE_S)
        await suppress(database, "ann@example.com")
    [second] = await claim(store, id_)
    assert (first.verdict, second.verdict) == (Verdict.BUSY, Verdict.SUPPRESSED)


async def test_claim_of_a_row_changed_after_its_snapshot_sees_the_newest_version(
    database: Database, store: OutboxStore
) -> None:
    """Claims and outcomes of one row by many at once: each success has its own attempt number."""
    id_ = await insert(database)

    async def work() -> list[int]:
        won = []
        for _ in range(30):
            [answer] = await claim(store, id_)
            if answer.email is not None:
                won.append(answer.email.attempt_id.int)
                recorded = await store.record([outcome(answer.email, OutcomeKind.RELEASED)])
                assert recorded[answer.email.attempt_id] is Recorded.APPLIED
        return won

    won = [
        attempt for each in await asyncio.gather(*(work() for _ in range(4))) for attempt in each
    ]
    assert won
    row = await row_of(database, id_)
    assert (row["state"], row["attempts"]) == ("pending", 0)
    assert await due_of(database, id_) is not None


async def test_row_that_changed_after_the_snapshot_of_a_claim_is_left_to_the_next_one(
    database: Database, store: OutboxStore, sender_database: Database
) -> None:
    """What the claim reads beside the row is as old as its snapshot: here the wake-up of a retry, which it cannot see."""
    id_ = await insert(database)
    async with gate(database) as keeper:
        claiming = asyncio.create_task(halted_claim(sender_database, requests([id_])))
        await until_halted(keeper)
        email = await claimed(store, id_)
        await store.record([outcome(email, OutcomeKind.RETRY, delay_s=600.0)])
    assert await claiming == {id_: "busy"}
    row = await row_of(database, id_)
    assert (row["state"], row["attempts"]) == ("pending", 1)
    assert await due_of(database, id_) is not None


@pytest.mark.parametrize("proof", ["event", "attempt"])
async def test_row_of_which_ses_took_an_earlier_call_is_not_claimed(
    database: Database, store: OutboxStore, proof: str
) -> None:
    """A failover may forget a claim and its outcome; what the events know is looked at before another call."""
    id_ = await insert(database)
    if proof == "event":
        await execute(
            database,
            "INSERT INTO email_event (event_id, recipient_key, type, at, outbox_id, payload) "
            "SELECT 'e1', recipient_key, 'delivered', now(), id, '{}' FROM email_outbox WHERE id = $1",
            id_,
        )
    else:
        await execute(
            database,
            "INSERT INTO email_attempt (id, outbox_id, number, finished, outcome) VALUES ($1, $2, 0, now(), 'accepted')",
            attempt_id(),
            id_,
        )
    [answer] = await claim(store, id_)
    assert answer.verdict is Verdict.BUSY
    assert (await row_of(database, id_))["state"] == "pending"
    assert await due_of(database, id_) is not None
