"""Facts and suppressions rebuilt from the topic equal the live ones, and bring them back where they are gone."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from unittest.mock import AsyncMock

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from cryptography.fernet import Fernet

import devservers
from streams.adapters.facts_store import FactsStore
from streams.adapters.kafka_group import GroupConsumer
from streams.adapters.kafka_past import KafkaPast
from streams.adapters.kafka_publisher import KafkaPublisher, UnreadableTopic
from streams.adapters.postgres import Database
from streams.adapters.rebuild_store import PLANNER, LiveFactsStore, scratch_on
from streams.domain.delivery_events import DeliveryEvent, EventType, encode
from streams.domain.errors import Unavailable
from streams.domain.rebuilding import Rebuilt, Table, What
from streams.domain.records import NewRecord
from streams.domain.topics import Topics
from streams.folding.fold import fold
from streams.rebuild import Rebuild
from streams.recipients import Recipients
from tests.command_line import as_process, mailstreams
from tests.conftest import SALT
from tests.integration.outbox_rows import (
    START,
    Row,
    all_facts,
    bounced,
    complained,
    event,
    execute,
    fetch,
    make_row,
)
from tests.integration.relay_setup import eventually
from tests.integration.suppression_truth import keys_whose_last_record_differs

pytestmark = pytest.mark.servers

KEY: Final = Fernet.generate_key()
# A commit of the stage that finds no coordinator ends after half a minute, and is made again.
PATIENCE_S: Final = 90.0
# Evidence of a streak has to be fresh, or what it suppresses is over already.
DAYS_AGO: Final = 6
BY_HAND: Final = ("9" * 32, "8" * 32)
DERIVED: Final = "DELETE FROM suppression WHERE reason <> 'manual' AND evidence_id NOT LIKE 'ses-list:%' RETURNING true"


def days_ago(days: float) -> float:
    """As seconds after START."""
    return (datetime.now(UTC) - timedelta(days=days) - START).total_seconds()


class Setup:
    """Servers, topics and a database of one test."""

    def __init__(self, servers: devservers.Servers, topics: Topics, dsn: str) -> None:
        self.bootstrap_servers = servers.kafka.bootstrap_servers
        self.topics = topics
        self.dsn = dsn
        self.group = f"{topics.prefix}recipients"
        self.publisher = KafkaPublisher(self.bootstrap_servers, client_id="test")

    async def publish(self, events: Sequence[DeliveryEvent]) -> None:
        await self.publisher.publish(
            [
                NewRecord(
                    topic=self.topics.delivery_events, key=e.recipient_key.encode(), value=encode(e)
                )
                for e in events
            ]
        )

    def past(self) -> KafkaPast:
        return KafkaPast(
            self.bootstrap_servers, topic=self.topics.delivery_events, group=self.group, most=100
        )

    @asynccontextmanager
    async def folding(self) -> AsyncIterator[None]:
        """The stage runs, and has folded what is in the topic before the block goes on."""
        stage = Recipients(
            consumer=GroupConsumer(
                self.bootstrap_servers,
                topic=self.topics.delivery_events,
                group=self.group,
                stage="recipients",
            ),
            facts=FactsStore(Database(self.dsn, pool_size=4, timeout_s=20, name="recipients")),
            unreadable=UnreadableTopic(self.publisher, key=KEY, stage="recipients"),
        )
        await stage.start()
        run = asyncio.create_task(stage.run())
        past = self.past()
        try:
            await past.capture()

            async def folded() -> bool:
                return await past.unfolded() == 0

            await eventually(folded)
            await stage.match_unmatched_events()
            yield
        finally:
            await past.stop()
            await stage.stop()
            await asyncio.wait_for(run, 20)

    async def fold_all(self) -> None:
        async with self.folding():
            pass

    async def rebuild(self, *, apply: bool = False, patience_s: float = PATIENCE_S) -> Rebuilt:
        past = self.past()
        try:
            async with (
                Database(
                    self.dsn, pool_size=2, timeout_s=60, name="rebuild", server_settings=PLANNER
                ) as own,
                Database(self.dsn, pool_size=2, timeout_s=20, name="live") as live,
                scratch_on(own) as scratch,
            ):
                run = Rebuild(
                    past=past,
                    scratch=scratch,
                    live=LiveFactsStore(live),
                    patience_s=patience_s,
                    second_look_s=0.1,
                )
                return await (run.apply() if apply else run.check())
        finally:
            await past.stop()


@pytest.fixture
async def setup(
    servers: devservers.Servers, topics: Topics, database_dsn: str
) -> AsyncIterator[Setup]:
    made = Setup(servers, topics, database_dsn)
    yield made
    await made.publisher.stop()


async def messages(database: Database) -> list[Row]:
    """To twelve people, of two tenants, in every state in which events find them."""
    states = ("submitted", "ambiguous", "submitted", "pending")
    return [
        await make_row(
            database,
            states[n % 4],
            tenant="one" if n % 2 else "two",
            recipient=f"user{n % 12}@example.com",
            provider_message_id=f"p-{n}" if states[n % 4] == "submitted" else None,
        )
        for n in range(64)
    ]


def story(rows: Sequence[Row]) -> list[DeliveryEvent]:
    """Events of every kind, with and without tags, some of mail that is not ours, and a streak of soft bounces."""
    found: list[DeliveryEvent] = []
    base = days_ago(DAYS_AGO)
    for n, row in enumerate(rows):
        given: dict[str, Any] = {"provider_message_id": f"p-{n}"}
        at = base + n * 60
        tagged = row.provider_message_id is None or n % 3 > 0
        found.append(event(EventType.ACCEPTED, row, at_s=at, tagged=tagged, **given))
        match n % 6:
            case 0:
                found.append(event(EventType.DELIVERED, row, at_s=at + 2, **given))
                found.append(event(EventType.OPENED, row, at_s=at + 9, tagged=False, **given))
            case 1:
                found.append(bounced(row, at_s=at + 2, tagged=tagged, **given))
            case 2:
                found.append(event(EventType.DELIVERED, row, at_s=at + 2, tagged=tagged, **given))
                found.append(complained(row, at_s=at + 30, tagged=tagged, **given))
            case 3:
                found.append(
                    event(EventType.UNSUBSCRIBED, row, at_s=at + 3, tagged=tagged, **given)
                )
            case 4 if n % 12 != 4:
                found.append(bounced(row, label="Transient", status="4.2.2", at_s=at + 2, **given))
            case _:
                found.append(event(EventType.DELAYED, row, at_s=at + 1, **given))
    # Five soft bounces over more than three days, of one tenant and person.
    same = [r for n, r in enumerate(rows) if n % 2 == 0 and n % 12 == 4]
    found += [
        bounced(
            same[n % len(same)],
            label="Transient",
            subtype="MailboxFull",
            status="4.2.2",
            name=f"full {n}",
            at_s=base + n * 86_400,
        )
        for n in range(5)
    ]
    found += [
        complained(recipient=f"user{n}@example.com", provider_message_id=f"foreign-{n}", at_s=base)
        for n in range(3)
    ]
    return found


async def a_life(setup: Setup, database: Database) -> dict[str, Any]:
    """A mix of everything is folded, with duplicates and out of order; some is lifted. The facts that it came to."""
    rows = await messages(database)
    events = story(rows)
    mixed = random.Random(7)  # noqa: S311 a repeatable mix
    repeated = [*events, *mixed.sample(events, 20)]
    mixed.shuffle(repeated)
    half = len(repeated) // 2
    await setup.publish(repeated[:half])
    await setup.fold_all()
    lifted = await fetch(
        database, "SELECT recipient_key, tenant, lane, reason FROM suppression ORDER BY 1, 2, 3, 4"
    )
    for row in lifted[::3]:
        await execute(
            database,
            "SELECT count(*) FROM lift_suppressions(ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY[$4], 'ann', 'a mistake')",
            *row.values(),
        )
    await setup.publish(repeated[half:])
    await setup.publish([event(EventType.CLICKED, rows[0], at_s=days_ago(DAYS_AGO))])
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, reason, evidence_id, evidence_at) VALUES "
        "($1, 'manual', 'manual:1', now()), ($2, 'provider-suppression', 'ses-list:x', now()), ($1, 'hard-bounce', NULL, NULL) RETURNING true",
        *BY_HAND,
    )
    await setup.fold_all()
    facts = await all_facts(database)
    assert {row["reason"] for row in facts["suppressions"]} >= {
        *("hard-bounce", "complaint", "unsubscribed", "soft-bounces", "manual"),
        "provider-suppression",
    }
    assert any(row["outbox_id"] is None for row in facts["events"])
    assert await execute(database, "SELECT count(*) > 1 FROM suppression_log")
    return facts


async def wipe(database: Database, *statements: str) -> None:
    for statement in statements:
        await execute(database, statement)


ALL_FACTS: Final = (
    "TRUNCATE email_event",
    "TRUNCATE recipient_outcome",
    "TRUNCATE recipient_state",
    DERIVED,
)


def counts(done: Rebuilt, table: Table) -> dict[What, int]:
    return {what: n for what, n in done.comparison.tables[table].counts.items() if n}


async def test_what_is_rebuilt_equals_what_was_folded_and_nothing_is_touched(
    setup: Setup, database: Database
) -> None:
    before = await a_life(setup, database)
    feed = await execute(database, "SELECT count(*) FROM outbox_feed")
    log = await execute(database, "SELECT count(*) FROM suppression_log")
    done = await setup.rebuild()
    assert done.is_equal, done.as_json()
    assert done.horizon.is_open
    rebuilt = {name: one.rebuilt for name, one in done.comparison.tables.items()}
    assert rebuilt[Table.EVENTS] == len(before["events"])
    assert rebuilt[Table.OUTCOMES] == len(before["outcomes"])
    assert rebuilt[Table.SUPPRESSIONS] > 5
    assert await all_facts(database) == before
    assert await execute(database, "SELECT count(*) FROM outbox_feed") == feed
    assert await execute(database, "SELECT count(*) FROM suppression_log") == log
    left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'rebuilt%'"
    assert await execute(database, left) == 0


async def test_facts_that_are_gone_come_back_from_the_topic(
    setup: Setup, database: Database
) -> None:
    before = await a_life(setup, database)
    await wipe(database, *ALL_FACTS)
    found = await setup.rebuild()
    assert counts(found, Table.EVENTS) == {What.MISSING: len(before["events"])}
    assert counts(found, Table.OUTCOMES) == {What.MISSING: len(before["outcomes"])}
    assert counts(found, Table.SUPPRESSIONS).keys() == {What.MISSING}
    done = await setup.rebuild(apply=True)
    assert done.is_equal, done.as_json()
    assert await all_facts(database) == before
    assert await keys_whose_last_record_differs(database) == 0
    assert (await setup.rebuild()).is_equal


HARMS: Final = (
    ["TRUNCATE recipient_outcome"],
    ["TRUNCATE recipient_state"],
    [DERIVED],
    ["TRUNCATE recipient_outcome, recipient_state", DERIVED],
    ["DELETE FROM email_event WHERE event_id LIKE 'full%' OR type = 'delivered' RETURNING true"],
    [
        "UPDATE recipient_outcome SET bounced_at = NULL, bounce_event_id = NULL, bounce_type = NULL, bounce_reason = NULL RETURNING true"
    ],
    ["UPDATE recipient_outcome SET opened_at = '2020-01-01Z' RETURNING true"],
    [
        "UPDATE recipient_state SET hard_bounce = NULL, soft_bounce_streak = 0, soft_bounces_since = NULL RETURNING true"
    ],
    [
        "UPDATE suppression SET evidence_at = evidence_at + interval '1 h' WHERE evidence_id NOT LIKE 'ses%' AND reason <> 'manual' RETURNING true"
    ],
    [
        "UPDATE suppression SET expires = now() + interval '90 d' WHERE reason = 'soft-bounces' RETURNING true"
    ],
)


async def test_whatever_was_harmed_is_found_and_mended(setup: Setup, database: Database) -> None:
    before = await a_life(setup, database)
    for harm in HARMS:
        await wipe(database, *harm)
        assert not (await setup.rebuild()).is_equal, harm
        done = await setup.rebuild(apply=True)
        assert done.is_equal, (harm, done.as_json())
        assert await all_facts(database) == before, harm


async def test_a_suppression_that_nothing_supports_is_told_and_left_to_a_person(
    setup: Setup, database: Database
) -> None:
    await a_life(setup, database)
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, reason, evidence_id, evidence_at) VALUES ($1, 'complaint', 'nobody knows', now()) RETURNING true",
        "7" * 32,
    )
    for apply in (False, True):
        done = await setup.rebuild(apply=apply)
        assert counts(done, Table.SUPPRESSIONS) == {What.SURPLUS: 1}
        (sample,) = done.comparison.tables[Table.SUPPRESSIONS].samples
        assert (sample.recipient_key, sample.row) == ("7" * 32, "* * complaint nobody knows")


async def test_facts_older_than_the_topic_are_no_difference_and_are_left_alone(
    setup: Setup, database: Database
) -> None:
    await a_life(setup, database)
    await drop_records(setup)
    rows = [
        await make_row(database, "submitted", recipient=f"new{n}@example.com") for n in range(9)
    ]
    at = (datetime.now(UTC) - START).total_seconds() + 5
    await setup.publish([bounced(row, at_s=at) for row in rows])
    await setup.publish([event(EventType.OPENED, rows[0], at_s=at)])
    await setup.fold_all()
    before = await all_facts(database)
    done = await setup.rebuild()
    assert done.is_equal, done.as_json()
    assert not done.horizon.is_open
    assert done.comparison.tables[Table.EVENTS].untold > 40
    assert done.comparison.tables[Table.EVENTS].rebuilt == 10
    new = "recipient_key IN (SELECT recipient_key FROM email_outbox WHERE recipient LIKE 'new%')"
    await wipe(
        database,
        f"DELETE FROM suppression WHERE {new} RETURNING true",
        f"DELETE FROM recipient_outcome WHERE {new} RETURNING true",
    )
    found = await setup.rebuild()
    assert counts(found, Table.SUPPRESSIONS) == {What.MISSING: 9}
    assert counts(found, Table.OUTCOMES) == {What.MISSING: 9}
    assert (await setup.rebuild(apply=True)).is_equal
    assert await all_facts(database) == before


async def drop_records(setup: Setup) -> None:
    """Retention does so, sooner or later."""
    past = setup.past()
    await past.capture()
    ends = dict(past._ends)
    await past.stop()
    admin = AIOKafkaAdminClient(bootstrap_servers=setup.bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_records(
            {TopicPartition(*tp): RecordsToDelete(before_offset=end) for tp, end in ends.items()}
        )
    finally:
        await admin.close()


async def test_what_the_stage_has_not_folded_yet_is_waited_for(
    setup: Setup, database: Database
) -> None:
    rows = await messages(database)
    await setup.publish(story(rows))
    with pytest.raises(Unavailable, match=r"has not folded \d+ of the records yet"):
        await setup.rebuild(patience_s=0.2)
    checking = asyncio.create_task(setup.rebuild())
    async with setup.folding():
        done = await checking
    assert done.is_equal, done.as_json()


async def test_a_recipient_whom_new_events_reach_meanwhile_is_left_out(
    setup: Setup, database: Database
) -> None:
    await a_life(setup, database)
    store = FactsStore(database)
    row = await make_row(database, "submitted", recipient="user1@example.com")
    late = event(EventType.DELIVERED, row, at_s=days_ago(0))
    past = setup.past()
    async with (
        Database(
            setup.dsn, pool_size=2, timeout_s=60, name="rebuild", server_settings=PLANNER
        ) as own,
        scratch_on(own) as scratch,
    ):
        run = Rebuild(past=past, scratch=scratch, live=LiveFactsStore(database))
        await run._rebuild()
        await store.transact(partial(fold, events=[late]))
        await run._finish()
        comparison, changed = await run._compare()
    await past.stop()
    assert comparison.is_equal
    assert changed == 1


@pytest.mark.parametrize("first", ["live", "rebuilt"])
async def test_a_message_that_becomes_known_meanwhile_is_no_difference(
    setup: Setup, database: Database, first: str
) -> None:
    """SES's event was there before its message id was: whoever matches it first, the other does soon."""
    row = await make_row(database, "submitted", recipient="user1@example.com")
    early = event(EventType.DELIVERED, row, tagged=False, provider_message_id="p-1")
    await setup.publish([early])
    past = setup.past()
    async with (
        setup.folding(),
        Database(
            setup.dsn, pool_size=2, timeout_s=60, name="rebuild", server_settings=PLANNER
        ) as own,
        scratch_on(own) as scratch,
    ):
        run = Rebuild(
            past=past,
            scratch=scratch,
            live=LiveFactsStore(database),
            patience_s=PATIENCE_S,
            second_look_s=3.0,
        )
        await run._rebuild()
        await execute(database, "UPDATE email_attempt SET provider_message_id = 'p-1'")
        if first == "live":

            async def matched() -> bool:
                return bool(await fetch(database, "SELECT FROM recipient_outcome"))

            await eventually(matched)
        run._rebuild = AsyncMock(return_value=1)  # type: ignore[method-assign]
        assert (await run.check()).is_equal
    await past.stop()


async def test_settled_rows_stay_as_they_are(setup: Setup, database: Database) -> None:
    """The person decided otherwise meanwhile: a check does not settle again."""
    before = await a_life(setup, database)
    await execute(
        database,
        "INSERT INTO email_unsettled (attempt_id, outbox_id) SELECT e.attempt_id, e.outbox_id FROM email_event AS e WHERE e.attempt_id IS NOT NULL AND e.type = 'accepted' LIMIT 1 RETURNING true",
    )
    unsettled = await fetch(database, "SELECT attempt_id FROM email_unsettled")
    assert (await setup.rebuild()).is_equal
    assert await fetch(database, "SELECT attempt_id FROM email_unsettled") == unsettled
    assert (await all_facts(database))["attempts"] == before["attempts"]


async def test_the_command_tells_a_difference_by_its_exit_code(
    setup: Setup, database: Database
) -> None:
    await a_life(setup, database)

    given = {
        "MAILSTREAMS_POSTGRES_DSN": setup.dsn,
        "MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS": setup.bootstrap_servers,
        "MAILSTREAMS_TOPIC_PREFIX": setup.topics.prefix,
        "MAILSTREAMS_RECIPIENT_SALT": SALT.decode(),
    }
    done = mailstreams("rebuild", "--json", environment=given)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["equal"] is True
    await wipe(database, *ALL_FACTS)
    done = await asyncio.to_thread(as_process, "rebuild", environment=given)
    assert done.returncode == 1
    assert "NOT equal" in done.stdout
    assert "example.com" not in done.stdout
    done = mailstreams("rebuild", "--apply", "--json", environment=given)
    assert done.returncode == 0, done.stdout
    told = json.loads(done.stdout)
    assert told["applied"] is True
    assert told["tables"]["email_event"]["missing"] == 0
