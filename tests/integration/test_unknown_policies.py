"""What the policies of rows of unknown outcome do, and what evidence does that comes after them."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from streams.adapters.facts_store import FactsStore
from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.adapters.schedule_store import PROOF, ScheduleStore
from streams.domain.attempts import AttemptId, ClaimRequest, Outcome, OutcomeKind, Recorded, Verdict
from streams.domain.delivery_events import DeliveryEvent, EventType
from streams.domain.facts import Settled
from streams.domain.schedule import LONGEST_BREAK, Resending, Resent
from streams.folding.fold import Folded, fold
from tests.integration.outbox_rows import Row, event, execute, fetch, make_row
from tests.integration.test_scheduler_races import gated, held_at_gate

pytestmark = pytest.mark.servers

RULE = Resending(
    after=timedelta(minutes=10), when_silent_after=timedelta(minutes=75), most_attempts=5
)
RESENT = Resent(resent=1)
WHEN_SILENT = Resent(resent_when_silent=1)
NOTHING = Resent()


async def resend(database: Database, rule: Resending = RULE) -> Resent:
    return await ScheduleStore(database).resend_ambiguous(rule, limit=100)


async def settle(database: Database, row: Row) -> Settled:
    return await ScheduleStore(database).settle([row.id])


async def apply(database: Database, *events: DeliveryEvent) -> Folded:
    return await FactsStore(database).transact(lambda t: fold(t, events=events))


async def state_of(database: Database, row: Row) -> Any:
    return await execute(database, "SELECT state FROM email_outbox WHERE id = $1", row.id)


async def duplicates(database: Database) -> list[tuple[UUID, str, bool]]:
    """Attempt, why, whether it is proven."""
    rows = await fetch(
        database,
        "SELECT attempt_id, why, proven IS NOT NULL AS proven FROM email_duplicate ORDER BY 1",
    )
    return [(row["attempt_id"], row["why"], row["proven"]) for row in rows]


async def ambiguous(database: Database, policy: str, *, since: str, **columns: Any) -> Row:
    row = await make_row(database, "ambiguous", since=since, on_ambiguous=policy, **columns)
    await execute(database, "UPDATE email_attempt SET started = $1", await ago(database, since))
    return row


async def ago(database: Database, since: str) -> Any:
    return await execute(database, "SELECT clock_timestamp() - $1::text::interval", since)


async def claim(database: Database, row: Row) -> Row | Verdict:
    """The next call of the row begins, if the claim allows it."""
    token = AttemptId(await execute(database, "SELECT uuid_v7()"))
    xid = int(await execute(database, "SELECT pg_current_xact_id()::text"))
    request = ClaimRequest(id=row.id, attempt_id=token, xid=xid)
    (found,) = await OutboxStore(database, max_attempts=5).claim([request], lease_s=60)
    if found.verdict is not Verdict.CLAIMED:
        return found.verdict
    return Row(id=row.id, attempt_id=token, recipient=row.recipient)


async def begin(database: Database, row: Row) -> Row:
    """The next call of the row."""
    await execute(database, "DELETE FROM email_due")
    called = await claim(database, row)
    assert isinstance(called, Row)
    return called


async def end(database: Database, row: Row, kind: OutcomeKind) -> Recorded:
    assert row.attempt_id is not None
    outcome = Outcome(
        id=row.id,
        attempt_id=AttemptId(row.attempt_id),
        number=1,
        kind=kind,
        finished=datetime.now(UTC),
        provider_message_id=f"p-{row.attempt_id}" if kind is OutcomeKind.ACCEPTED else None,
    )
    recorded = await OutboxStore(database, max_attempts=5).record([outcome])
    return recorded[outcome.attempt_id]


# resend


async def test_a_row_of_policy_resend_is_sent_again_after_its_bound_and_written_down(
    database: Database,
) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    young = await ambiguous(database, "resend", since="9 m", recipient="young@example.com")
    assert await resend(database) == RESENT
    assert await state_of(database, row) == "pending"
    assert await state_of(database, young) == "ambiguous"
    assert await fetch(database, "SELECT id, why FROM email_due") == [
        {"id": row.id, "why": "retry"}
    ]
    assert await duplicates(database) == [(row.attempt_id, "resend", False)]
    assert await resend(database) == NOTHING


async def test_a_row_of_policy_hold_is_never_sent_again(database: Database) -> None:
    row = await ambiguous(database, "hold", since="23 h")
    assert await resend(database) == NOTHING
    assert await state_of(database, row) == "ambiguous"


@pytest.mark.parametrize("columns", [{"expires_at": datetime(2026, 1, 1, tzinfo=UTC)}, {}])
async def test_a_row_that_may_not_be_tried_again_is_held_whatever_its_policy(
    database: Database, columns: dict[str, Any]
) -> None:
    row = await ambiguous(database, "resend", since="25 h", **columns)
    if not columns:
        await execute(database, "UPDATE email_outbox SET attempts = 5")
    assert await resend(database) == NOTHING
    assert await ScheduleStore(database).hold_ambiguous(after=timedelta(hours=24), limit=10) == 1
    assert await state_of(database, row) == "failed"
    assert await duplicates(database) == []


async def test_two_replicas_send_a_row_again_once(database: Database) -> None:
    for n in range(20):
        await ambiguous(database, "resend", since="11 m", recipient=f"user{n}@example.com")
    done = await asyncio.gather(*(resend(database) for _ in range(8)))
    assert sum(one.resent for one in done) == 20
    assert await execute(database, "SELECT count(*) FROM email_duplicate") == 20


async def test_a_row_with_evidence_is_not_sent_again(database: Database) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    await execute(
        database,
        "INSERT INTO email_event (event_id, recipient_key, type, at, outbox_id, payload) VALUES ('e', $1, 'delivered', now(), $2, '{}') RETURNING true",
        row.key,
        row.id,
    )
    assert await resend(database) == NOTHING


async def test_each_unknown_call_of_a_row_waits_for_its_own_bound(database: Database) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    await resend(database)
    second = await begin(database, row)
    assert await end(database, second, OutcomeKind.UNKNOWN) is Recorded.APPLIED
    assert await resend(database) == NOTHING
    await execute(
        database,
        "UPDATE email_unsettled SET since = since - interval '11 m' WHERE attempt_id = $1",
        second.attempt_id,
    )
    assert await resend(database) == RESENT
    assert [found[0] for found in await duplicates(database)] == [row.attempt_id, second.attempt_id]


# evidence after the policy


async def test_evidence_before_the_second_call_submits_the_row_without_it(
    database: Database,
) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    await resend(database)
    folded = await apply(database, event(EventType.ACCEPTED, row))
    assert folded.settled == Settled(from_pending=1)
    assert await state_of(database, row) == "submitted"
    assert await fetch(database, "SELECT * FROM email_due") == []
    assert await fetch(database, "SELECT * FROM email_unsettled") == []
    assert await duplicates(database) == []
    assert await claim(database, row) is Verdict.SETTLED


async def test_a_claim_sees_evidence_that_nobody_settled_yet(database: Database) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    await resend(database)
    await execute(database, "UPDATE email_attempt SET outcome = 'accepted'")
    await execute(database, "DELETE FROM email_due")
    assert await claim(database, row) is Verdict.BUSY
    await execute(database, "UPDATE email_due SET due = now()")
    taken = await ScheduleStore(database).take_due(10)
    assert (taken.pointers, taken.settled.from_pending) == (0, 1)
    assert await state_of(database, row) == "submitted"


async def test_a_row_that_ses_took_twice_is_a_proven_duplicate_counted_once(
    database: Database,
) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    await resend(database)
    second = await begin(database, row)
    await end(database, second, OutcomeKind.ACCEPTED)
    assert (await settle(database, row)).duplicates == 0
    assert await duplicates(database) == [(row.attempt_id, "resend", False)]
    folded = await apply(database, event(EventType.DELIVERED, row))
    assert folded.settled.duplicates == 1
    assert await duplicates(database) == [(row.attempt_id, "resend", True)]
    again = await apply(database, event(EventType.DELIVERED, second), event(EventType.OPENED, row))
    assert again.settled.duplicates == 0
    assert await fetch(database, "SELECT * FROM email_unsettled") == []


async def test_a_duplicate_that_becomes_known_during_the_second_call_is_counted_after_it(
    database: Database,
) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    await resend(database)
    second = await begin(database, row)
    folded = await apply(database, event(EventType.DELIVERED, row))
    assert folded.settled == Settled()
    await end(database, second, OutcomeKind.ACCEPTED)
    assert (await settle(database, row)).duplicates == 1
    assert await duplicates(database) == [(row.attempt_id, "resend", True)]


async def test_a_late_worker_that_knows_the_first_call_was_taken_makes_it_a_duplicate(
    database: Database,
) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    await resend(database)
    second = await begin(database, row)
    assert await end(database, row, OutcomeKind.ACCEPTED) is Recorded.STALE
    await end(database, second, OutcomeKind.ACCEPTED)
    assert (await settle(database, row)).duplicates == 1
    assert (await settle(database, row)).duplicates == 0


async def test_an_attempt_that_a_failover_forgot_counts_though_a_call_is_under_way(
    database: Database,
) -> None:
    row = await make_row(database, "sending")
    forgotten = Row(
        id=row.id,
        attempt_id=await execute(database, "SELECT uuid_v7()"),
        recipient=row.recipient,
        provider_message_id="p-7",
    )
    folded = await apply(database, event(EventType.DELIVERED, forgotten))
    assert (folded.forgotten, folded.settled.duplicates) == (1, 0)
    await end(database, row, OutcomeKind.ACCEPTED)
    assert (await settle(database, row)).duplicates == 1
    assert await duplicates(database) == [(forgotten.attempt_id, "unforeseen", True)]
    assert await fetch(database, "SELECT * FROM email_unsettled") == []


async def test_a_second_call_that_was_refused_leaves_the_proven_first_one_alone(
    database: Database,
) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    await resend(database)
    second = await begin(database, row)
    await apply(database, event(EventType.DELIVERED, row))
    await end(database, second, OutcomeKind.RETRY)
    assert await settle(database, row) == Settled(from_pending=1)
    assert await state_of(database, row) == "submitted"
    assert await duplicates(database) == []


async def test_a_first_call_that_turns_out_refused_is_no_duplicate(database: Database) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    await resend(database)
    assert await end(database, row, OutcomeKind.RETRY) is Recorded.STALE
    await settle(database, row)
    assert await state_of(database, row) == "pending"
    assert await duplicates(database) == []
    assert await fetch(database, "SELECT * FROM email_unsettled") == []


async def test_a_refused_second_call_is_tried_again_though_the_first_is_unknown(
    database: Database,
) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    await resend(database)
    second = await begin(database, row)
    await end(database, second, OutcomeKind.UNKNOWN)
    await end(database, second, OutcomeKind.RETRY)
    assert (await settle(database, row)).refused == 1
    assert await state_of(database, row) == "pending"
    assert await duplicates(database) == [(row.attempt_id, "resend", False)]


async def test_an_event_of_either_of_two_unknown_calls_proves_no_duplicate(
    database: Database,
) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    await resend(database)
    second = await begin(database, row)
    await end(database, second, OutcomeKind.UNKNOWN)
    await apply(database, event(EventType.DELIVERED, row, attempt_id=None))
    assert await state_of(database, row) == "submitted"
    assert await duplicates(database) == [(row.attempt_id, "resend", False)]
    await apply(
        database,
        event(EventType.OPENED, row, name="one"),
        event(EventType.OPENED, second, name="two"),
    )
    assert await duplicates(database) == [(row.attempt_id, "resend", True)]


async def test_two_calls_proven_by_one_batch_of_events_are_a_duplicate(database: Database) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    await resend(database)
    second = await begin(database, row)
    await end(database, second, OutcomeKind.UNKNOWN)
    folded = await apply(
        database,
        event(EventType.DELIVERED, row, name="one"),
        event(EventType.DELIVERED, second, name="two"),
    )
    assert folded.settled.duplicates == 1
    assert await duplicates(database) == [(row.attempt_id, "resend", True)]


# races of the policy


async def test_evidence_that_was_settled_meanwhile_is_not_undone_by_the_policy(
    database: Database,
) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    sql = gated("resend_ambiguous", "$1::interval")
    async with held_at_gate(database, sql, *arguments()) as statement:
        await apply(database, event(EventType.DELIVERED, row))
    assert statement.result() == [{"resent": 0, "resent_when_silent": 0}]
    assert await state_of(database, row) == "submitted"
    assert await duplicates(database) == []


async def test_evidence_behind_the_lock_of_the_policy_is_settled_by_the_next_round(
    database: Database,
) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    async with database.transaction() as policy:
        await policy.fetch(query("resend_ambiguous"), *arguments())
        folded = await apply(database, event(EventType.DELIVERED, row))
        assert folded.settled == Settled()
    assert await state_of(database, row) == "pending"
    assert await claim(database, row) is Verdict.BUSY
    assert (await settle(database, row)).from_pending == 1
    assert await state_of(database, row) == "submitted"


async def test_the_policy_does_not_send_again_what_was_called_again_meanwhile(
    database: Database,
) -> None:
    row = await ambiguous(database, "resend", since="11 m")
    sql = gated("resend_ambiguous", "$1::interval")
    async with held_at_gate(database, sql, *arguments()) as statement:
        await end(database, row, OutcomeKind.RETRY)
        assert (await settle(database, row)).refused == 1
        second = await begin(database, row)
        await end(database, second, OutcomeKind.UNKNOWN)
    assert statement.result() == [{"resent": 0, "resent_when_silent": 0}]
    assert await state_of(database, row) == "ambiguous"
    found = await fetch(database, "SELECT attempt_id, decided FROM email_unsettled")
    assert found == [{"attempt_id": second.attempt_id, "decided": None}]


def arguments() -> tuple[Any, ...]:
    return (
        *(RULE.after, RULE.when_silent_after, RULE.most_attempts, PROOF, RULE.longest_break),
        100,
    )


# resend-when-silent


async def watch(database: Database, stage: str, **columns: str) -> None:
    """A process that has watched for two hours and reported a second ago, but for what is said."""
    given = {"since": "2 h", "reported": "1 s"} | columns
    names = ", ".join(given)
    times = ", ".join(f"clock_timestamp() - '{since}'::interval" for since in given.values())
    await execute(
        database,
        f"INSERT INTO intake_watch (process, stage, {names}) VALUES (gen_random_uuid(), $1, {times}) RETURNING true",
        stage,
    )


async def neighbour(database: Database, row: Row, *, offset_s: int, has_event: bool) -> None:
    """An accepted call so many seconds after that of the row, before it if negative."""
    assert row.attempt_id is not None
    attempt = UUID(int=row.attempt_id.int + (offset_s * 1000 << 80))
    other = await make_row(
        database, "submitted", recipient=f"n{offset_s}@example.com", attempt_id=attempt
    )
    if has_event:
        await apply(database, event(EventType.ACCEPTED, other))


async def silent(database: Database, *, since: str = "76 m") -> Row:
    """A row of which nothing was heard while everything else was."""
    row = await ambiguous(database, "resend-when-silent", since=since)
    await neighbour(database, row, offset_s=-5, has_event=True)
    await neighbour(database, row, offset_s=5, has_event=True)
    return row


async def test_a_row_of_which_nothing_is_heard_while_all_is_well_is_sent_again(
    database: Database,
) -> None:
    row = await silent(database)
    await watch(database, "events")
    await watch(database, "recipients")
    assert await resend(database) == WHEN_SILENT
    assert await state_of(database, row) == "pending"
    assert await duplicates(database) == [(row.attempt_id, "resend-when-silent", False)]


async def test_silence_takes_its_time(database: Database) -> None:
    await silent(database, since="74 m")
    await watch(database, "events")
    await watch(database, "recipients")
    assert await resend(database) == NOTHING


async def test_a_rolling_restart_is_no_gap(database: Database) -> None:
    await silent(database)
    for stage in ("events", "recipients"):
        await watch(database, stage, reported="40 m")
        await execute(database, "UPDATE intake_watch SET ended = true WHERE stage = $1", stage)
        await watch(database, stage, since="2395 s")
    assert await resend(database) == WHEN_SILENT


@pytest.mark.parametrize("stage", ["events", "recipients"])
@pytest.mark.parametrize(
    "columns",
    [
        {"since": "70 m"},
        {"reported": "40 s"},
        {"trouble": "30 m"},
        {"trouble": "76 m"},
    ],
    ids=["began-later", "reports-no-more", "trouble-since", "trouble-at-the-call"],
)
async def test_without_a_whole_watch_a_row_is_not_sent_again(
    database: Database, stage: str, columns: dict[str, str]
) -> None:
    row = await silent(database)
    await watch(database, stage, **columns)
    await watch(database, "recipients" if stage == "events" else "events")
    assert await resend(database) == NOTHING
    assert await ScheduleStore(database).hold_ambiguous(after=timedelta(minutes=76), limit=10) == 1
    assert await state_of(database, row) == "failed"


@pytest.mark.parametrize("stage", ["events", "recipients"])
async def test_a_process_that_vanished_may_have_refused_the_event(
    database: Database, stage: str
) -> None:
    await silent(database)
    await watch(database, "events")
    await watch(database, "recipients")
    await watch(database, stage, reported="20 m")
    assert await resend(database) == NOTHING
    await execute(
        database,
        "UPDATE intake_watch SET ended = true WHERE reported < now() - $1::interval",
        LONGEST_BREAK,
    )
    assert await resend(database) == WHEN_SILENT


async def test_trouble_long_before_the_call_does_not_matter(database: Database) -> None:
    await silent(database)
    await watch(database, "events", trouble="80 m")
    await watch(database, "recipients", trouble="80 m")
    await watch(database, "events", since="9 h", reported="3 h")
    assert await resend(database) == WHEN_SILENT


@pytest.mark.parametrize("offset_s", [-5, 5])
async def test_silence_proves_nothing_where_events_of_other_messages_are_missing(
    database: Database, offset_s: int
) -> None:
    row = await ambiguous(database, "resend-when-silent", since="76 m")
    await neighbour(database, row, offset_s=offset_s, has_event=False)
    await neighbour(database, row, offset_s=-offset_s, has_event=True)
    await watch(database, "events")
    await watch(database, "recipients")
    assert await resend(database) == NOTHING


async def test_without_any_watch_a_row_is_not_sent_again(database: Database) -> None:
    await silent(database)
    assert await resend(database) == NOTHING
