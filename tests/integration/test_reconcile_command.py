"""`mailstreams reconcile` and what it reads: calls that SES took and of which no event came."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from streams.adapters.postgres import Database
from streams.adapters.reconciliation import PAGE
from streams.domain.delivery_events import EventType
from streams.domain.reconciling import Cause, Day, Intake, cause
from streams.domain.schedule import first_id_of
from tests.integration.outbox_rows import Row, event, execute, make_row
from tests.integration.test_outbox_commands import Command
from tests.integration.test_scheduler_plans import plan
from tests.integration.test_trace_command import KEYED, nodes
from tests.integration.test_unknown_policies import apply

pytestmark = pytest.mark.servers


@pytest.fixture
def command(database_dsn: str) -> Command:
    return Command(database_dsn)


def id_of(moment: datetime) -> UUID:
    return UUID(int=first_id_of(moment).int | 7 << 76 | 2 << 62 | int.from_bytes(os.urandom(7)))


async def taken(database: Database, hours: float, state: str = "submitted", **columns: Any) -> Row:
    """A call that ended so long ago."""
    at = datetime.now(UTC) - timedelta(hours=hours)
    attempt = id_of(at)
    row = await make_row(
        database, state, attempt_id=attempt, provider_message_id=f"m-{attempt}", **columns
    )
    await execute(database, "UPDATE email_attempt SET finished = $2 WHERE id = $1", attempt, at)
    return row


async def test_what_stayed_silent_for_a_day_is_told_by_day_with_what_it_looks_like(
    command: Command, database: Database
) -> None:
    for hours in (30, 30, 80):
        told = await taken(database, hours)
        await apply(database, event(EventType.DELIVERED, told))
    assert command.json("reconcile")["days"] == []
    silent = [await taken(database, hours) for hours in (30, 31)]
    await taken(database, 23)
    await taken(database, 30, "ambiguous")
    old = await taken(database, 200)
    found = command.json("reconcile", code=1)
    assert found["accepted"] == 5
    assert sum(day["silent"] for day in found["days"]) == 2
    assert {day["cause"] for day in found["days"]} <= {"many", "no-events-at-all"}
    listed = command.json("reconcile", "--list", "--days", "30", code=1)
    assert {m["outbox_id"] for m in listed["messages"]} == {str(r.id) for r in (old, *silent)}
    assert listed["messages"][0]["provider_message_id"] == old.provider_message_id
    text = command.run("reconcile")
    assert text.returncode == 1
    assert text.stdout.splitlines()[-1] == "5 messages were taken, of 2 of them nothing came"
    page = command.json("reconcile", "--list", "--days", "30", "--limit", "1", code=1)
    rest = command.json("reconcile", "--list", "--days", "30", "--after", page["next"], code=1)
    assert [m["outbox_id"] for m in page["messages"] + rest["messages"]] == [
        m["outbox_id"] for m in listed["messages"]
    ]


async def test_an_event_that_is_not_matched_yet_is_no_silence(
    command: Command, database: Database
) -> None:
    row = await taken(database, 30)
    await execute(
        database,
        "INSERT INTO email_event (event_id, recipient_key, type, at, provider_message_id, payload) VALUES ('e', $1, 'delivered', now(), $2, '{}')",
        row.key,
        row.provider_message_id,
    )
    assert command.json("reconcile")["days"] == []


def test_the_cause_is_told_by_what_else_is_known() -> None:
    quiet = Intake(unmatched=0, trouble=None)
    today = datetime.now(UTC).date()
    all_of_it, some, few = (Day(day=today, accepted=100, silent=silent) for silent in (100, 50, 2))
    assert cause(all_of_it, quiet) is Cause.NO_EVENTS
    assert cause(all_of_it, Intake(unmatched=9, trouble=None)) is Cause.FOREIGN_EVENTS
    assert cause(some, Intake(unmatched=9, trouble="publish-failed")) is Cause.INTAKE_TROUBLE
    assert cause(some, quiet) is Cause.MANY
    assert cause(few, quiet) is Cause.SINGLE


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--days", "0"], "--days 0"),
        (["--days", "nan"], "--days nan"),
        (["--after", str(UUID(int=1))], "--list"),
    ],
)
def test_what_is_asked_wrongly_is_refused(asked: list[str], told: str) -> None:
    assert told in Command("postgresql://x@127.0.0.1:1/x").refusal("reconcile", *asked)


async def test_a_page_of_calls_is_looked_at_by_ids(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(
            """INSERT INTO email_attempt (id, outbox_id, number, finished, outcome, provider_message_id)
               SELECT uuid_v7(), uuid_v7(), 1, now(), 'accepted', 'm' || n FROM generate_series(1, 5000) AS n;
               INSERT INTO email_event (event_id, recipient_key, type, at, outbox_id, provider_message_id, payload)
               SELECT 'e' || id, md5(id::text), 'delivered', now(), outbox_id, provider_message_id, '{}' FROM email_attempt;
               INSERT INTO email_outbox (id, recipient, recipient_key, sender, subject, text)
               SELECT outbox_id, 'user@example.com', md5(id::text), 's@example.com', 'Hello', 'Hi' FROM email_attempt"""
        )
    await execute(database, "ANALYZE")
    for name in ("measure_silent", "list_silent", "measure_intake"):
        for node in nodes(await plan(database, name)):
            if node.get("Relation Name") in ("email_attempt", "email_event", "email_outbox"):
                assert KEYED & node.keys(), node
    assert PAGE <= 10_000
