"""What the stages of the intake write down of their watch, for policy resend-when-silent."""

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from streams.adapters.facts_store import FactsStore
from streams.adapters.intake_watch_log import IntakeWatchLog
from streams.adapters.kafka_group import GroupConsumer
from streams.adapters.kafka_publisher import KafkaPublisher
from streams.adapters.postgres import Database
from streams.adapters.schedule_store import ScheduleStore
from streams.domain.delivery_events import EventType, encode
from streams.domain.records import NewRecord, Record
from streams.domain.sns import Reason
from streams.domain.topics import Topics
from streams.intake import Verdict
from streams.intake_watch import IntakeWatch
from streams.recipients import Recipients
from streams.refusals import Refusals
from tests.integration.outbox_rows import event, execute, fetch, make_row

pytestmark = pytest.mark.servers


def watch_on(dsn: str, stage: str = "events", **more: Any) -> IntakeWatch:
    own = Database(dsn, pool_size=3, timeout_s=20, name="watch")
    return IntakeWatch(IntakeWatchLog(own, stage=stage, process=uuid4(), **more), stage=stage)


async def watches(database: Database) -> list[dict[str, Any]]:
    return await fetch(
        database,
        "SELECT stage, trouble_kind, ended, trouble IS NOT NULL AS troubled FROM intake_watch",
    )


async def test_a_process_tells_that_it_watches_what_went_wrong_and_that_it_ends(
    database_dsn: str, database: Database
) -> None:
    watch = watch_on(database_dsn)
    await watch.report()
    expected = {"stage": "events", "trouble_kind": None, "ended": False, "troubled": False}
    assert await watches(database) == [expected]
    watch.trouble("stale")
    await watch.report()
    expected |= {"trouble_kind": "stale", "troubled": True}
    assert await watches(database) == [expected]
    at = await execute(database, "SELECT trouble FROM intake_watch")
    await watch.report()
    assert await execute(database, "SELECT trouble FROM intake_watch") == at
    await watch.stop()
    assert await watches(database) == [expected | {"ended": True}]


async def test_a_process_that_was_frozen_tells_it_as_trouble(
    database_dsn: str, database: Database
) -> None:
    watch = watch_on(database_dsn, longest=timedelta(seconds=30))
    await watch.report()
    await execute(database, "UPDATE intake_watch SET reported = reported - interval '31 s'")
    await watch.report()
    assert (await watches(database))[0]["trouble_kind"] == "no-report-for-long"
    await watch.stop()


async def test_trouble_that_could_not_be_written_is_written_later(
    database_dsn: str, database: Database
) -> None:
    away = watch_on("postgresql://nobody@127.0.0.1:1/nothing")
    away.trouble("publish-failed")
    await away.report()
    back = IntakeWatchLog(
        Database(database_dsn, pool_size=3, timeout_s=20, name="watch"),
        stage="events",
        process=uuid4(),
    )
    away._log = back
    await away.report()
    assert (await watches(database))[0]["trouble_kind"] == "publish-failed"
    await away.stop()


@pytest.mark.parametrize(
    ("reason", "is_trouble"),
    [
        (Reason.ACCEPTED, False),
        # SNS sends its credentials only after it was asked for them.
        (Reason.UNAUTHORIZED, False),
        (Reason.UNREADABLE, True),
        (Reason.STALE, True),
        (Reason.OVERLOADED, True),
    ],
)
async def test_whatever_is_not_accepted_is_trouble(
    database_dsn: str, database: Database, reason: Reason, is_trouble: bool
) -> None:
    watch = watch_on(database_dsn)
    Refusals(watch).tell(Verdict(reason=reason))
    await watch.report()
    assert (await watches(database))[0]["troubled"] is is_trouble
    await watch.stop()


async def test_watches_of_processes_long_gone_are_forgotten(
    database_dsn: str, database: Database
) -> None:
    for _ in range(2):
        watch = watch_on(database_dsn)
        await watch.report()
        await watch.stop()
    await execute(
        database,
        "UPDATE intake_watch SET reported = reported - interval '3 days' WHERE process = (SELECT min(process::text)::uuid FROM intake_watch)",
    )
    assert await ScheduleStore(database).forget_watches(timedelta(days=2)) == 1
    assert len(await watches(database)) == 1


class Unreadable:
    """Keeps nothing."""

    async def put(self, record: Record, *, reason: str) -> None: ...

    async def stop(self) -> None: ...


async def test_the_fold_says_that_it_is_at_the_end_of_its_partitions(
    servers: Any, topics: Topics, database_dsn: str, database: Database
) -> None:
    bootstrap = servers.kafka.bootstrap_servers
    consumer = GroupConsumer(
        bootstrap, topic=topics.delivery_events, group=f"{topics.prefix}watch", stage="recipients"
    )
    facts = FactsStore(Database(database_dsn, pool_size=3, timeout_s=20, name="facts"))
    watch = watch_on(database_dsn, "recipients")
    stage = Recipients(consumer=consumer, facts=facts, unreadable=Unreadable(), watch=watch)
    row = await make_row(database, "ambiguous")
    publisher = KafkaPublisher(bootstrap, client_id="test")
    await publisher.start()
    await publisher.publish(records(topics, event(EventType.ACCEPTED, row)))
    stage._caught_up_at = -1e9
    await stage.start()
    run = asyncio.create_task(stage.run())
    try:
        await until(database, "SELECT state = 'submitted' FROM email_outbox")
        stage._caught_up_at = -1e9
        deadline = time.monotonic() + 90
        while stage._caught_up_at < 0:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        await publisher.publish([NewRecord(topic=topics.delivery_events, key=b"k", value=b"?")])
        await until(database, "SELECT trouble_kind = 'unreadable' FROM intake_watch")
    finally:
        await stage.stop()
        await run
        await publisher.stop()
    assert [one["ended"] for one in await watches(database)] == [True]


async def test_a_fold_that_is_behind_says_so(database_dsn: str, database: Database) -> None:
    watch = watch_on(database_dsn, "recipients")
    stage = Recipients(consumer=None, facts=None, unreadable=None, watch=watch)  # type: ignore[arg-type]
    stage._caught_up_at = time.monotonic() - 21
    await stage._report(watch)
    assert (await watches(database))[0]["trouble_kind"] == "late"
    await watch.stop()


def records(topics: Topics, *events: Any) -> Sequence[NewRecord]:
    return [
        NewRecord(topic=topics.delivery_events, key=e.recipient_key.encode(), value=encode(e))
        for e in events
    ]


async def until(database: Database, sql: str) -> None:
    deadline = time.monotonic() + 90
    while await execute(database, sql) is not True:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
