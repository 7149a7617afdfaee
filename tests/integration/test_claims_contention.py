"""Claims and outcomes beside other transactions that are open: who waits for whom, who wins, and what wakes the row afterwards."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import pytest

from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Connection, Database
from streams.adapters.queries import query
from streams.adapters.schedule_store import ScheduleStore
from streams.domain.attempts import Claim, Outcome, OutcomeKind, Recorded, Verdict
from tests.integration.claim_races import (
    DEADLINE_S,
    gate,
    halted_claim,
    halted_outcomes,
    until_halted,
    until_waiting,
)
from tests.integration.sender_rows import (
    LEASE_S,
    VISIBLE_XID,
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


async def at_once(store: OutboxStore, *ids: UUID) -> list[Claim]:
    """A claim that must not wait for anybody."""
    return await asyncio.wait_for(claim(store, *ids), DEADLINE_S)


async def claim_on(connection: Connection, ids: list[UUID]) -> dict[UUID, str]:
    """A claim in the transaction of this connection."""
    arguments = ids, [attempt_id() for _ in ids], [VISIBLE_XID for _ in ids], LEASE_S
    rows = await connection.fetch(query("claim_emails"), *arguments)
    return {UUID(bytes=row["id"].bytes): row["verdict"] for row in rows}


# Claims beside claims -------------------------------------------------------------------------------------------------


async def test_overlapping_claims_in_opposite_orders_share_the_rows_without_waiting(
    database: Database, store: OutboxStore
) -> None:
    ids = [await insert(database) for _ in range(4)]
    async with database.transaction() as first:
        held = await claim_on(first, ids[:3])
        answers = await at_once(store, *reversed(ids))
    assert set(held.values()) == {"claimed"}
    assert [a.verdict for a in answers] == [Verdict.CLAIMED, *[Verdict.BUSY] * 3]
    states = [(await row_of(database, id_))["state"] for id_ in ids]
    assert states == ["sending"] * 4


async def test_claim_that_rolls_back_leaves_the_row_to_the_wake_up_of_the_one_it_was_busy_for(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(database)
    async with database.connection() as first:
        transaction = first.transaction()
        await transaction.start()
        await claim_on(first, [id_])
        [answer] = await at_once(store, id_)
        await transaction.rollback()
    assert answer.verdict is Verdict.BUSY
    assert (await due_of(database, id_))["why"] == "busy"
    assert (await claimed(store, id_)).attempt == 1


async def test_claim_whose_answer_was_lost_is_given_back_under_its_token(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(database)
    [lost] = requests([id_])
    await store.claim([lost], lease_s=LEASE_S)
    [again] = await claim(store, id_)
    assert again.verdict is Verdict.SETTLED
    row = await row_of(database, id_)
    assert (row["state"], row["attempt_id"], row["attempts"]) == ("sending", lost.attempt_id, 1)
    released = Outcome(
        id=id_,
        attempt_id=lost.attempt_id,
        number=1,
        kind=OutcomeKind.RELEASED,
        finished=datetime.now(UTC),
    )
    assert await store.record([released]) == {lost.attempt_id: Recorded.APPLIED}
    assert (await due_of(database, id_))["why"] == "released"
    assert (await claimed(store, id_)).attempt == 1


# Claims beside outcomes and leases --------------------------------------------------------------------------------------


async def test_claim_that_began_before_the_call_does_not_send_what_was_submitted_meanwhile(
    database: Database, store: OutboxStore, sender_database: Database
) -> None:
    """Its snapshot shows a pending row and no lease; only the row itself knows better."""
    id_ = await insert(database)
    async with gate(database) as keeper:
        claiming = asyncio.create_task(halted_claim(sender_database, requests([id_])))
        await until_halted(keeper)
        email = await claimed(store, id_)
        await store.record([outcome(email, OutcomeKind.ACCEPTED, provider_message_id="m-1")])
    assert await claiming == {id_: "settled"}
    row = await row_of(database, id_)
    assert (row["state"], row["attempts"]) == ("submitted", 1)
    assert await one(database, "SELECT FROM email_lease") is None


async def test_claim_beside_an_outcome_that_is_not_committed_does_not_wait_and_the_outcome_wakes_the_row(
    database: Database, store: OutboxStore, sender_database: Database
) -> None:
    email = await claimed(store, await insert(database))
    async with database.transaction() as holder:
        await holder.execute("SELECT FROM email_outbox WHERE id = $1 FOR UPDATE", email.id)
        telling = asyncio.create_task(store.record([outcome(email, OutcomeKind.RETRY)]))
        async with database.connection() as watcher:
            await until_waiting(watcher)
        [answer] = await at_once(store, email.id)
    assert answer.verdict is Verdict.SETTLED
    assert await telling == {email.attempt_id: Recorded.APPLIED}
    assert (await row_of(database, email.id))["state"] == "pending"
    assert (await due_of(database, email.id))["why"] == "retry"


async def test_outcome_that_waited_for_another_change_of_its_row_is_applied_to_the_newest_version(
    database: Database, store: OutboxStore
) -> None:
    email = await claimed(store, await insert(database))
    async with database.transaction() as holder:
        await holder.execute("UPDATE email_outbox SET reason = 'seen' WHERE id = $1", email.id)
        telling = asyncio.create_task(store.record([outcome(email, OutcomeKind.UNKNOWN)]))
        async with database.connection() as watcher:
            await until_waiting(watcher)
    assert await telling == {email.attempt_id: Recorded.APPLIED}
    row = await row_of(database, email.id)
    assert (row["state"], row["reason"]) == ("ambiguous", "seen")
    assert await one(database, "SELECT FROM email_lease") is None


async def test_lease_that_runs_out_beside_an_outcome_that_is_not_committed_is_left_to_it(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(database)
    [request] = requests([id_])
    await store.claim([request], lease_s=0.0)
    async with database.transaction() as teller:
        await teller.execute(
            "UPDATE email_outbox SET state = 'submitted', attempt_id = NULL WHERE id = $1", id_
        )
        expired = await asyncio.wait_for(ScheduleStore(database).expire_leases(10), DEADLINE_S)
    assert expired.leases == 0
    assert (await row_of(database, id_))["state"] == "submitted"
    assert (await ScheduleStore(database).expire_leases(10)).leases == 0
    assert await one(database, "SELECT FROM email_unsettled") is None


@pytest.mark.parametrize(
    "kind",
    [OutcomeKind.ACCEPTED, OutcomeKind.RETRY, OutcomeKind.RELEASED, OutcomeKind.UNSENDABLE],
)
async def test_outcome_that_waits_for_the_end_of_its_lease_is_stale_and_settles_the_row(
    database: Database, store: OutboxStore, kind: OutcomeKind
) -> None:
    id_ = await insert(database)
    [request] = requests([id_])
    [answer] = await store.claim([request], lease_s=0.0)
    assert answer.email is not None
    async with database.transaction() as scheduler:
        rows = await scheduler.fetch(query("expire_leases"), 10)
        telling = asyncio.create_task(store.record([outcome(answer.email, kind)]))
        async with database.connection() as watcher:
            await until_waiting(watcher)
    assert len(rows) == 1
    assert await telling == {request.attempt_id: Recorded.STALE}
    row = await row_of(database, id_)
    assert (row["state"], row["attempt_id"]) == ("ambiguous", None)
    attempt = await one(database, "SELECT outcome FROM email_attempt")
    # That SES was not called stands there as a refusal, which it is as good as.
    known = kind if kind is OutcomeKind.ACCEPTED else OutcomeKind.RETRY
    assert attempt == {"outcome": known.value}
    await ScheduleStore(database).settle([id_])
    settled = {OutcomeKind.ACCEPTED: "submitted", OutcomeKind.RETRY: "pending"}[known]
    assert (await row_of(database, id_))["state"] == settled
    assert (await due_of(database, id_) is not None) == (settled == "pending")


async def test_stale_outcome_that_was_late_by_a_whole_attempt_moves_neither_row_nor_lease(
    database: Database, store: OutboxStore, sender_database: Database
) -> None:
    """Its snapshot still shows the row under its own token; the lock shows the token of another."""
    id_ = await insert(database)
    late = await claimed(store, id_)
    async with gate(database) as keeper:
        told = [outcome(late, OutcomeKind.ACCEPTED, provider_message_id="m-late")]
        telling = asyncio.create_task(halted_outcomes(sender_database, told))
        await until_halted(keeper)
        await store.record([outcome(late, OutcomeKind.RELEASED)])
        current = await claimed(store, id_)
    assert await telling == {late.attempt_id: "stale"}
    row = await row_of(database, id_)
    assert (row["state"], row["attempt_id"]) == ("sending", current.attempt_id)
    lease = await one(database, "SELECT attempt_id FROM email_lease")
    assert lease == {"attempt_id": current.attempt_id}
    evidence = await one(database, "SELECT id, outcome FROM email_attempt")
    assert evidence == {"id": late.attempt_id, "outcome": "accepted"}


async def test_outcome_beside_events_that_write_the_same_attempt_waits_and_both_agree(
    database: Database, store: OutboxStore
) -> None:
    email = await claimed(store, await insert(database))
    async with database.transaction() as fold:
        await fold.fetch(
            query("insert_forgotten_attempts"),
            [email.attempt_id],
            [email.id],
            ["m-1"],
            [datetime.now(UTC)],
        )
        told = [outcome(email, OutcomeKind.ACCEPTED, provider_message_id="m-1")]
        telling = asyncio.create_task(store.record(told))
        async with database.connection() as watcher:
            await until_waiting(watcher)
    assert await telling == {email.attempt_id: Recorded.APPLIED}
    assert (await row_of(database, email.id))["state"] == "submitted"
    attempts = await one(
        database, "SELECT count(*) AS n, min(outcome) AS outcome FROM email_attempt"
    )
    assert attempts == {"n": 1, "outcome": "accepted"}


# Claims beside what stops a message -------------------------------------------------------------------------------------


async def test_claim_beside_a_cancel_that_is_not_committed_is_busy_and_settled_afterwards(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(database)
    async with database.transaction() as person:
        assert await person.fetchval("SELECT cancel_email($1, 'sold out')", id_) == "cancelled"
        [answer] = await at_once(store, id_)
    assert answer.verdict is Verdict.BUSY
    [answer] = await claim(store, id_)
    assert answer.verdict is Verdict.SETTLED
    assert (await row_of(database, id_))["state"] == "cancelled"


async def test_cancel_that_rolls_back_leaves_a_wake_up_to_the_claim_that_met_it(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(database)
    async with database.connection() as person:
        transaction = person.transaction()
        await transaction.start()
        await person.execute("SELECT cancel_email($1, 'sold out')", id_)
        await at_once(store, id_)
        await transaction.rollback()
    assert (await due_of(database, id_))["why"] == "busy"
    await claimed(store, id_)


async def test_cancel_beside_a_claim_that_is_not_committed_says_busy_and_does_not_wait(
    database: Database,
) -> None:
    id_ = await insert(database)
    async with database.transaction() as sender, database.connection() as person:
        await claim_on(sender, [id_])
        cancelling = person.fetchval("SELECT cancel_email($1, 'sold out')", id_)
        assert await asyncio.wait_for(cancelling, DEADLINE_S) == "busy"
    assert (await row_of(database, id_))["state"] == "sending"


async def test_pause_counts_from_its_commit_on(database: Database, store: OutboxStore) -> None:
    first, second = await insert(database), await insert(database)
    async with database.transaction() as person:
        await person.execute(
            "INSERT INTO pause (scope, value, reason, who) VALUES ('account', '*', 'test', 'test')"
        )
        [before] = await at_once(store, first)
    [after] = await claim(store, second)
    assert (before.verdict, after.verdict) == (Verdict.CLAIMED, Verdict.PAUSED)


async def test_suppression_committed_while_the_row_was_locked_stops_the_claim_that_follows(
    database: Database, store: OutboxStore
) -> None:
    """Nothing but the wake-up brings the row back, and then the suppression is seen."""
    id_ = await insert(database)
    async with database.transaction() as holder:
        await holder.execute("SELECT FROM email_outbox WHERE id = $1 FOR UPDATE", id_)
        [busy] = await at_once(store, id_)
        await suppress(database, "ann@example.com")
    await execute(database, "UPDATE email_due SET due = clock_timestamp() - interval '1 s'")
    taken = await ScheduleStore(database).take_due(10)
    [answer] = await claim(store, id_)
    assert (busy.verdict, taken.pointers, answer.verdict) == (Verdict.BUSY, 1, Verdict.SUPPRESSED)
