"""What is old is removed, contents first, and nothing that somebody still needs."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from streams.adapters.facts_store import FactsStore
from streams.adapters.postgres import Database
from streams.adapters.upkeep_store import UpkeepStore
from streams.domain.delivery_events import EventType
from streams.domain.schedule import FIRST_ID
from streams.domain.upkeep import Kept
from streams.folding.fold import fold
from streams.scheduling.retention import LONG_AGO, Retention
from tests.integration.outbox_rows import Row, bounced, event, execute, fetch, make_row

pytestmark = pytest.mark.servers

NOW = timedelta(milliseconds=1)
DAY = timedelta(days=1)
CONTENTS = "SELECT num_nonnulls(subject, text, html, variables, headers, attachments, tags) FROM email_outbox WHERE id = $1"
TABLES = (
    *("email_outbox", "email_attempt", "recipient_outcome", "email_event", "email_unsettled"),
    *("email_duplicate", "dead_letter"),
)


@pytest.fixture
def rows(database: Database) -> UpkeepStore:
    return UpkeepStore(database, slot="none")


def retention(database: Database, **kept: Any) -> Retention:
    """Everything is old at once, unless told otherwise."""
    ages = {"feed": None, "contents": NOW, "messages": NOW, "events": NOW, "quiet": NOW} | kept
    return Retention(
        UpkeepStore(database, slot="none"),
        Kept(**ages),
        turn_every=timedelta(milliseconds=1),
    )


async def apply(database: Database, *events: Any) -> None:
    await FactsStore(database).transact(partial(fold, events=events))


async def count(database: Database) -> dict[str, int]:
    found = {t: await execute(database, f"SELECT count(*) FROM {t}") for t in TABLES}
    return {table: rows for table, rows in found.items() if rows}


async def purge_contents(rows: UpkeepStore, age: timedelta = NOW) -> int:
    await rows.make_duty("purge_contents")
    await asyncio.sleep(0.002)  # an id tells the time in whole milliseconds
    return (await rows.purge_contents("purge_contents", age=age, limit=100)).removed


async def purge(rows: UpkeepStore, age: timedelta = NOW, quiet: timedelta = NOW) -> dict[str, int]:
    await asyncio.sleep(0.002)
    done = await rows.purge_messages(after=FIRST_ID, age=age, quiet=quiet, limit=100)
    return {table: n for table, n in done.removed.items() if n}


async def dead_letter(database: Database, row: Row) -> None:
    await execute(
        database,
        "INSERT INTO dead_letter (outbox_id, tenant, lane, class, reason) VALUES ($1, 'shop', 'bulk', 'permanent', 'no')",
        row.id,
    )


async def test_contents_go_and_the_row_stays(database: Database, rows: UpkeepStore) -> None:
    sent = await make_row(database, "submitted", headers='{"X-A": "b"}', tags='{"a": "b"}')
    assert await purge_contents(rows, DAY) == 0
    assert await purge_contents(rows) == 1
    assert await execute(database, CONTENTS, sent.id) == 0
    (found,) = await fetch(database, "SELECT state, purged, changed, recipient FROM email_outbox")
    assert found["purged"] is not None
    assert found["changed"] >= found["purged"]
    assert (found["state"], found["recipient"]) == ("submitted", sent.recipient)


@pytest.mark.parametrize("state", ["pending", "sending", "ambiguous"])
async def test_what_has_not_ended_keeps_everything(
    database: Database, rows: UpkeepStore, state: str
) -> None:
    row = await make_row(database, state)
    assert await purge_contents(rows) == 0
    assert await purge(rows) == {}
    assert await execute(database, CONTENTS, row.id) == 2


async def test_what_a_person_has_to_decide_keeps_everything(
    database: Database, rows: UpkeepStore
) -> None:
    row = await make_row(database, "failed")
    await dead_letter(database, row)
    assert await purge_contents(rows) == 0
    assert await purge(rows) == {}
    assert await execute(database, CONTENTS, row.id) == 2


async def test_what_had_not_ended_is_looked_at_again_at_four_times_the_age(
    database: Database,
) -> None:
    assert Kept(feed=None, contents=DAY, messages=None, events=None).contents_ages == [
        *(DAY, 4 * DAY, 16 * DAY)
    ]


async def test_a_message_goes_with_all_that_was_written_about_it(
    database: Database, rows: UpkeepStore
) -> None:
    row = await make_row(database, "submitted", provider_message_id="p1")
    other = await make_row(database, recipient="waits@example.com")
    await apply(database, event(EventType.ACCEPTED, row), event(EventType.DELIVERED, row))
    await execute(
        database,
        "INSERT INTO email_duplicate (attempt_id, outbox_id, tenant, why) VALUES (uuid_v7(), $1, 'shop', 'resend')",
        row.id,
    )
    await execute(
        database,
        "INSERT INTO email_unsettled (attempt_id, outbox_id) VALUES (uuid_v7(), $1)",
        row.id,
    )
    assert await purge(rows, DAY) == {}
    assert await purge(rows) == {
        "email_outbox": 1,
        "email_attempt": 1,
        "recipient_outcome": 1,
        "email_event": 2,
        "email_unsettled": 1,
        "email_duplicate": 1,
    }
    assert await count(database) == {"email_outbox": 1}
    assert await execute(database, "SELECT id FROM email_outbox") == other.id


async def test_a_message_waits_until_no_source_can_repeat_its_events(
    database: Database, rows: UpkeepStore
) -> None:
    row = await make_row(database, "submitted")
    await apply(database, event(EventType.DELIVERED, row))
    assert await purge(rows, quiet=DAY) == {}
    await execute(database, "UPDATE email_event SET received = now() - interval '25 h'")
    assert (await purge(rows, quiet=DAY))["email_outbox"] == 1


async def test_evidence_and_what_rests_on_it_stay(database: Database, rows: UpkeepStore) -> None:
    """A streak and a suppression are derived from it again, by other rules or when an older event comes late."""
    row = await make_row(database, "submitted")
    await apply(database, event(EventType.DELIVERED, row), bounced(row))
    before = await fetch(database, "SELECT * FROM suppression")
    assert len(before) == 1
    states = await fetch(database, "SELECT * FROM recipient_state")
    await purge(rows)
    assert await count(database) == {"email_event": 1}
    assert await fetch(database, "SELECT * FROM suppression") == before
    assert await fetch(database, "SELECT * FROM recipient_state") == states
    await apply(database, bounced(row))
    assert await count(database) == {"email_event": 1}


async def test_events_of_no_message_go_but_evidence(database: Database, rows: UpkeepStore) -> None:
    for n in range(3):
        await apply(
            database,
            event(EventType.DELIVERED, name=f"d{n}", provider_message_id="strange"),
            bounced(name=f"b{n}", provider_message_id="strange"),
        )
    last, removed = await rows.purge_unmatched_events(after=LONG_AGO, older_than=DAY, limit=4)
    assert (last, removed) == (None, 0)
    at, gone = LONG_AGO, 0
    while True:
        last, removed = await rows.purge_unmatched_events(after=at, older_than=NOW, limit=2)
        gone += removed
        if last is None:
            break
        at = last
    assert gone == 3
    assert await count(database) == {"email_event": 3}


async def test_a_row_that_somebody_holds_is_passed_by_and_nobody_waits(
    database: Database, rows: UpkeepStore
) -> None:
    held = await make_row(database, "submitted")
    await make_row(database, "submitted", recipient="free@example.com")
    async with database.transaction() as connection:
        await connection.execute(
            "SELECT FROM email_outbox WHERE id = $1 FOR NO KEY UPDATE", held.id
        )
        assert await asyncio.wait_for(purge_contents(rows), 5) == 1
        assert (await asyncio.wait_for(purge(rows), 5))["email_outbox"] == 1
    assert (await purge(rows))["email_outbox"] == 1


async def test_rounds_of_two_replicas_remove_each_row_once_and_come_to_their_end(
    database: Database,
) -> None:
    await execute(
        database,
        """INSERT INTO email_outbox (recipient, sender, subject, text)
           SELECT 'user' || n || '@example.com', 'sender@example.com', 'Hello', 'Hi' FROM generate_series(1, 1700) AS n""",
    )
    await execute(database, "UPDATE email_outbox SET state = 'cancelled', reason = 'test'")
    await asyncio.sleep(0.002)
    replicas = [retention(database), retention(database)]

    async def work(replica: Retention) -> None:
        while await execute(database, "SELECT EXISTS (SELECT FROM email_outbox)"):
            await replica.purge_contents()
            await replica.purge_messages()
            await replica.purge_events()

    await asyncio.wait_for(asyncio.gather(*map(work, replicas)), 30)


async def test_kept_for_ever_is_kept(database: Database) -> None:
    await make_row(database, "submitted")
    await apply(database, event(EventType.DELIVERED, provider_message_id="strange"))
    await asyncio.sleep(0.002)
    for_ever = retention(database, contents=None, messages=None, events=None)
    for duty in (for_ever.drop_feed, for_ever.purge_contents, for_ever.purge_messages):
        await duty()
    await for_ever.purge_events()
    assert (await count(database))["email_outbox"] == 1
    assert await execute(database, "SELECT num_nonnulls(purged) FROM email_outbox") == 0
    assert (await count(database))["email_event"] == 1


async def test_pauses_that_ended_long_ago_are_forgotten(
    database: Database, rows: UpkeepStore
) -> None:
    for value, until in (("old", "-8 days"), ("new", "-1 day"), ("on", "1 day")):
        await execute(
            database,
            "INSERT INTO pause (scope, value, reason, who, until) VALUES ('tenant', $1, 'r', 'w', now() + $2::text::interval)",
            *(value, until),
        )
    await execute(
        database, "INSERT INTO pause (scope, value, reason, who) VALUES ('lane', 'bulk', 'r', 'w')"
    )
    assert await rows.forget_pauses(timedelta(days=7)) == 1
    assert await execute(database, "SELECT count(*) FROM pause") == 3


async def test_the_age_of_what_keeps_dead_rows_is_measured(
    database: Database, rows: UpkeepStore
) -> None:
    async with (
        database.connection() as connection,
        connection.transaction(isolation="repeatable_read"),
    ):
        await connection.fetchval("SELECT count(*) FROM pause")
        begun = datetime.now(UTC)
        await asyncio.sleep(0.3)
        found = await rows.upkeep(feed_kept=DAY)
        assert found.oldest_transaction >= (datetime.now(UTC) - begun).total_seconds() - 0.1


async def test_the_oldest_message_is_measured(database: Database, rows: UpkeepStore) -> None:
    assert (await rows.upkeep(feed_kept=DAY)).oldest_message == 0
    await make_row(database)
    await make_row(database, id=UUID("01900000-0000-7000-8000-000000000000"))
    assert 0 <= (await rows.upkeep(feed_kept=DAY)).oldest_message < 60
