"""Settling, redriving and cancelling by hand on a real PostgreSQL, also while something else happens to the row."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from streams.adapters.outbox_admin import OutboxAdmin
from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.adapters.schedule_store import PROOF, ScheduleStore
from streams.domain.attempts import OutcomeKind, Recorded, Verdict
from streams.domain.by_hand import Decision, LetterFilter, Page, Redrive
from streams.domain.delivery_events import EventType
from streams.domain.facts import Settled
from tests.integration.outbox_rows import Row, bounced, event, execute, fetch, make_row
from tests.integration.test_scheduler_races import gated, held_at_gate
from tests.integration.test_unknown_policies import (
    RESENT,
    apply,
    begin,
    claim,
    duplicates,
    end,
    resend,
    settle,
    state_of,
)

pytestmark = pytest.mark.servers

ANN = Decision(by_whom="Ann", why="the provider told us")


async def by_hand(database: Database, row: Row, *, accepted: bool, dry_run: bool = False) -> str:
    (done,) = await OutboxAdmin(database).settle([row.id], ANN, accepted=accepted, dry_run=dry_run)
    assert done["outbox_id"] == str(row.id)
    return str(done["outcome"])


async def held(database: Database, **columns: Any) -> Row:
    row = await make_row(database, "ambiguous", since="25 h", **columns)
    assert await ScheduleStore(database).hold_ambiguous(after=timedelta(hours=24), limit=10) == 1
    await execute(database, "DELETE FROM outbox_feed")
    return row


async def audit(database: Database) -> list[tuple[str, str, str, Any]]:
    rows = await fetch(database, "SELECT by_whom, action, why, detail FROM audit_log ORDER BY id")
    return [(r["by_whom"], r["action"], r["why"], json.loads(r["detail"])) for r in rows]


async def due_ids(database: Database) -> list[UUID]:
    return [row["id"] for row in await fetch(database, "SELECT id FROM email_due ORDER BY due")]


# settle


@pytest.mark.parametrize("make", ["ambiguous", "held"])
async def test_what_a_person_calls_taken_is_submitted_and_audited(
    database: Database, make: str
) -> None:
    row = await (held(database) if make == "held" else make_row(database, "ambiguous"))
    assert await by_hand(database, row, accepted=True) == "submitted"
    assert await state_of(database, row) == "submitted"
    assert await fetch(database, "SELECT * FROM dead_letter") == []
    assert await due_ids(database) == []
    assert await duplicates(database) == []
    ((who, action, why, detail),) = await audit(database)
    assert (who, action, why) == ("Ann", "ambiguous.settled", ANN.why)
    assert detail == {
        "outbox_id": str(row.id),
        "accepted": True,
        "was": "failed" if make == "held" else "ambiguous",
        "attempts": [str(row.attempt_id)],
    }
    assert await OutboxAdmin(database).ambiguous(Page()) == []


@pytest.mark.parametrize("make", ["ambiguous", "held"])
async def test_what_a_person_calls_not_taken_is_sent_again_and_may_be_a_duplicate(
    database: Database, make: str
) -> None:
    row = await (held(database) if make == "held" else make_row(database, "ambiguous"))
    assert await by_hand(database, row, accepted=False) == "pending"
    assert await state_of(database, row) == "pending"
    assert await due_ids(database) == [row.id]
    assert await fetch(database, "SELECT * FROM dead_letter") == []
    assert await duplicates(database) == [(row.attempt_id, "settled-by-hand", False)]
    second = await begin(database, row)
    await end(database, second, OutcomeKind.ACCEPTED)
    assert (await apply(database, event(EventType.DELIVERED, row))).settled.duplicates == 1
    assert await duplicates(database) == [(row.attempt_id, "settled-by-hand", True)]


async def test_a_row_whose_time_is_over_is_not_sent_again_by_hand(database: Database) -> None:
    row = await make_row(database, "ambiguous", expires_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert await by_hand(database, row, accepted=False) == "expired"
    await ScheduleStore(database).take_due(10)
    assert await state_of(database, row) == "expired"


async def test_evidence_wins_over_a_person(database: Database) -> None:
    row = await make_row(database, "ambiguous")
    await execute(database, "UPDATE email_attempt SET outcome = 'accepted'")
    assert await by_hand(database, row, accepted=False, dry_run=True) == "evident"
    assert await by_hand(database, row, accepted=False) == "not-ambiguous"
    assert await state_of(database, row) == "submitted"
    assert await audit(database) == []


async def test_a_dry_run_changes_nothing(database: Database) -> None:
    row = await make_row(database, "ambiguous")
    assert await by_hand(database, row, accepted=False, dry_run=True) == "pending"
    assert await state_of(database, row) == "ambiguous"
    assert await audit(database) == []


@pytest.mark.parametrize("state", ["pending", "sending", "submitted", "failed"])
async def test_only_unknown_outcomes_are_settled_by_hand(database: Database, state: str) -> None:
    row = await make_row(database, state)
    expected = "busy" if state == "sending" else "not-ambiguous"
    assert await by_hand(database, row, accepted=False) == expected
    assert await state_of(database, row) == state


async def test_a_call_that_a_person_called_taken_and_that_was_refused_is_told(
    database: Database,
) -> None:
    row = await make_row(database, "ambiguous")
    await by_hand(database, row, accepted=True)
    assert await end(database, row, OutcomeKind.RETRY) is Recorded.STALE
    assert await settle(database, row) == Settled(contradicted=1)
    assert await state_of(database, row) == "submitted"
    assert await settle(database, row) == Settled()


async def test_a_person_does_not_wait_for_a_row_in_other_hands(database: Database) -> None:
    row = await make_row(database, "ambiguous")
    async with database.transaction() as other:
        await other.execute("SELECT FROM email_outbox FOR UPDATE")
        assert await by_hand(database, row, accepted=True) == "busy"


async def test_an_event_that_comes_while_a_person_decides_is_settled_afterwards(
    database: Database,
) -> None:
    row = await make_row(database, "ambiguous")
    async with database.transaction() as person:
        await person.fetch(query("decide_ambiguous"), [row.id], False, "Ann", "why", False, PROOF)
        assert (await apply(database, event(EventType.DELIVERED, row))).settled == Settled()
    assert await state_of(database, row) == "pending"
    assert await claim(database, row) is Verdict.BUSY
    assert (await settle(database, row)).from_pending == 1
    assert await duplicates(database) == []


async def test_a_person_decides_nothing_about_a_row_that_moved_since_they_looked(
    database: Database,
) -> None:
    row = await make_row(database, "ambiguous")
    sql = gated("decide_ambiguous", "$1::uuid[]")
    arguments = ([row.id], False, "Ann", "why", False, PROOF)
    async with held_at_gate(database, sql, *arguments) as statement:
        await end(database, row, OutcomeKind.RETRY)
        assert (await settle(database, row)).refused == 1
        second = await begin(database, row)
        await end(database, second, OutcomeKind.UNKNOWN)
    assert statement.result()[0]["outcome"] in ("busy", "absent")
    assert await state_of(database, row) == "ambiguous"
    assert await audit(database) == []


async def test_a_person_and_the_policy_send_a_row_again_once(database: Database) -> None:
    row = await make_row(database, "ambiguous", since="11 m", on_ambiguous="resend")
    sql = gated("decide_ambiguous", "$1::uuid[]")
    arguments = ([row.id], True, "Ann", "why", False, PROOF)
    async with held_at_gate(database, sql, *arguments) as statement:
        assert await resend(database) == RESENT
    assert statement.result()[0]["outcome"] == "busy"
    assert await state_of(database, row) == "pending"


# cancel


async def cancel(database: Database, row: Row) -> str:
    return str(await execute(database, "SELECT cancel_email($1, 'not wanted any more')", row.id))


async def test_a_pending_row_is_cancelled_with_its_wake_up_and_told(database: Database) -> None:
    row = await make_row(database, send_after=datetime(2126, 1, 1, tzinfo=UTC))
    assert await due_ids(database) == [row.id]
    assert await cancel(database, row) == "cancelled"
    assert await cancel(database, row) == "cancelled"
    assert await due_ids(database) == []
    (told,) = await fetch(database, "SELECT type, payload FROM outbox_feed")
    assert told["type"] == "cancelled"
    assert json.loads(told["payload"])["data"]["reason"] == "not wanted any more"


async def test_a_cancelled_row_of_unknown_outcome_is_never_sent_and_its_evidence_counts(
    database: Database,
) -> None:
    row = await make_row(database, "ambiguous", since="25 h", on_ambiguous="resend")
    assert await cancel(database, row) == "cancelled"
    store = ScheduleStore(database)
    assert await store.hold_ambiguous(after=timedelta(hours=24), limit=10) == 0
    assert await OutboxAdmin(database).ambiguous(Page()) == []
    await apply(database, bounced(row, provider_message_id="p-1"))
    assert await state_of(database, row) == "cancelled"
    assert await execute(database, "SELECT outcome FROM email_attempt") == "accepted"
    assert await execute(database, "SELECT count(*) FROM recipient_outcome") == 1
    assert await execute(database, "SELECT reason FROM suppression") == "hard-bounce"
    assert await fetch(database, "SELECT * FROM email_unsettled") == []


@pytest.mark.parametrize(
    ("state", "answer"), [("sending", "busy"), ("submitted", "submitted"), ("failed", "failed")]
)
async def test_what_is_under_way_or_over_is_not_cancelled(
    database: Database, state: str, answer: str
) -> None:
    row = await make_row(database, state)
    assert await cancel(database, row) == answer
    assert await state_of(database, row) == state


async def test_cancelling_waits_for_no_lock(database: Database) -> None:
    row = await make_row(database)
    async with database.transaction() as other:
        await other.execute("SELECT FROM email_outbox FOR NO KEY UPDATE")
        assert await cancel(database, row) == "busy"
    async with database.transaction() as other:
        await other.execute(
            "INSERT INTO email_due (id, due, tenant, lane, why) SELECT id, now(), tenant, lane, 'busy' FROM email_outbox"
        )
    async with database.transaction() as scheduler:
        await scheduler.execute("SELECT FROM email_due FOR UPDATE")
        assert await cancel(database, row) == "cancelled"
    await ScheduleStore(database).take_due(10)
    assert await due_ids(database) == []


async def test_what_ses_is_known_to_have_taken_is_not_cancelled(database: Database) -> None:
    row = await make_row(database, "ambiguous")
    await execute(database, "UPDATE email_attempt SET outcome = 'accepted'")
    assert await cancel(database, row) == "busy"
    await settle(database, row)
    assert await cancel(database, row) == "submitted"


async def test_cancelling_needs_a_reason_and_a_row(database: Database) -> None:
    row = await make_row(database)
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await execute(database, "SELECT cancel_email($1, ' ')", row.id)
    assert await execute(database, "SELECT cancel_email(uuid_v7(), 'why')") == "absent"


async def test_a_claim_of_a_cancelled_row_is_settled(database: Database) -> None:
    row = await make_row(database)
    await cancel(database, row)
    assert await claim(database, row) is Verdict.SETTLED


# redrive


async def failed(
    database: Database, *, reason: str = "refused", class_: str = "permanent", **columns: Any
) -> Row:
    """A row that a permanent answer ended."""
    row = await make_row(database, "failed", **columns)
    await execute(
        database,
        "INSERT INTO dead_letter (outbox_id, tenant, lane, class, reason, attempt_id) SELECT id, tenant, lane, $2, $3, $4 FROM email_outbox WHERE id = $1",
        row.id,
        class_,
        reason,
        row.attempt_id,
    )
    return row


async def redrive(
    database: Database, *, start: datetime | None = None, **how: Any
) -> dict[UUID, str]:
    store = OutboxAdmin(database)
    letters = await store.dead_letters(LetterFilter(), Page(limit=1000))
    rows = await store.redrive(
        [UUID(letter["id"]) for letter in letters],
        Redrive(**({"per_second": 2.0} | how)),
        ANN,
        start=start,
    )
    return {UUID(row["outbox_id"]): row["outcome"] for row in rows}


async def test_a_redriven_row_has_all_its_attempts_and_no_dead_letter(database: Database) -> None:
    row = await failed(database)
    await execute(database, "UPDATE email_outbox SET attempts = 5")
    assert await redrive(database) == {row.id: "redriven"}
    (found,) = await fetch(database, "SELECT state, attempts, redrives FROM email_outbox")
    assert found == {"state": "pending", "attempts": 0, "redrives": 1}
    assert await fetch(database, "SELECT * FROM dead_letter") == []
    assert await duplicates(database) == []
    ((_, action, why, detail),) = await audit(database)
    assert (action, why) == ("dead-letter.redriven", ANN.why)
    assert detail == {
        "outbox_id": str(row.id),
        "outcome": "redriven",
        "possible_duplicate": False,
    }


async def test_a_redrive_is_paced_by_the_due_times(database: Database) -> None:
    for n in range(6):
        await failed(database, recipient=f"user{n}@example.com")
    await redrive(database, per_second=2.0)
    (span,) = await fetch(database, "SELECT max(due) - min(due) AS span, count(*) FROM email_due")
    assert span == {"span": timedelta(seconds=2.5), "count": 6}
    assert (await ScheduleStore(database).take_due(10)).pointers < 6


async def test_a_row_with_evidence_is_submitted_and_not_sent(database: Database) -> None:
    row = await held(database)
    await execute(database, "UPDATE email_attempt SET outcome = 'accepted'")
    assert await redrive(database, held=True, dry_run=True) == {row.id: "submitted"}
    assert await redrive(database, held=True) == {row.id: "submitted"}
    assert await state_of(database, row) == "submitted"
    assert await due_ids(database) == []
    assert await duplicates(database) == []
    assert await settle(database, row) == Settled()
    assert await fetch(database, "SELECT * FROM email_unsettled") == []


async def test_a_held_row_is_redriven_only_where_duplicates_are_allowed(database: Database) -> None:
    row = await held(database)
    assert await redrive(database) == {row.id: "held"}
    assert await state_of(database, row) == "failed"
    assert await redrive(database, held=True) == {row.id: "redriven"}
    assert await duplicates(database) == [(row.attempt_id, "redriven", False)]
    folded = await apply(database, event(EventType.DELIVERED, row))
    assert folded.settled == Settled(from_pending=1)
    assert await duplicates(database) == []


async def test_a_row_whose_time_is_over_needs_a_new_one(database: Database) -> None:
    row = await failed(database, expires_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert await redrive(database) == {row.id: "expired"}
    assert await redrive(database, live=timedelta(hours=2)) == {row.id: "redriven"}
    lives = await execute(
        database,
        "SELECT o.expires_at - d.due FROM email_outbox AS o JOIN email_due AS d USING (id)",
    )
    assert lives == timedelta(hours=2)


async def test_a_redrive_takes_no_row_that_moved_since_it_looked(database: Database) -> None:
    row = await failed(database)
    store = OutboxAdmin(database)
    (letter,) = await store.dead_letters(LetterFilter(), Page())
    sql = gated("redrive_dead_letters", "$1::uuid[]")
    arguments = ([UUID(letter["id"])], PROOF, False, None, 1.0, None, "Ann", "why", False)
    async with held_at_gate(database, sql, *arguments) as statement:
        assert await redrive(database) == {row.id: "redriven"}
        await end(database, await begin(database, row), OutcomeKind.PERMANENT)
    assert [found["outcome"] for found in statement.result()] in (["busy"], [])
    assert await execute(database, "SELECT redrives FROM email_outbox") == 1


async def test_two_redrives_at_once_send_a_row_once(database: Database) -> None:
    row = await failed(database)
    async with database.transaction() as other:
        await other.execute("SELECT FROM email_outbox FOR NO KEY UPDATE")
        assert await redrive(database) == {row.id: "busy"}
    assert await redrive(database) == {row.id: "redriven"}
    assert await redrive(database) == {}


async def test_every_failure_of_a_redriven_row_is_an_event_of_its_own(database: Database) -> None:
    row = await make_row(database)
    for _ in range(3):
        await execute(database, "UPDATE email_outbox SET changed = clock_timestamp()")
        await end(database, await begin(database, row), OutcomeKind.PERMANENT)
        await redrive(database)
    told = await fetch(
        database,
        "SELECT payload ->> 'id' AS id FROM outbox_feed WHERE aggregatetype = 'delivery-events' AND type = 'failed'",
    )
    assert len({one["id"] for one in told}) == len(told) == 3


async def test_dead_letters_are_grouped_by_class_and_reason(database: Database) -> None:
    for n, reason in enumerate(("too large", "too large", "bad address")):
        await failed(database, reason=reason, recipient=f"user{n}@example.com")
    await failed(database, class_="credentials", reason="denied", tenant="other")
    store = OutboxAdmin(database)
    groups = await store.dead_letter_groups(LetterFilter(), limit=10)
    assert [(g["class"], g["reason"], g["rows"]) for g in groups] == [
        ("permanent", "too large", 2),
        ("credentials", "denied", 1),
        ("permanent", "bad address", 1),
    ]
    (one,) = await store.dead_letters(LetterFilter(tenant="other"), Page())
    assert (one["class"], one["state"]) == ("credentials", "failed")
