"""`mailstreams status` on a database with rows of every kind, and while servers are away."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

import devservers
from streams.adapters.overview_store import SAMPLE, SAMPLED, OverviewStore
from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.adapters.schedule_store import ScheduleStore
from streams.domain.heartbeats import heartbeat_keys
from streams.domain.topics import Lane, Topics
from tests.command_line import as_process
from tests.conftest import PARTITIONS
from tests.integration.outbox_rows import execute, make_row
from tests.integration.test_outbox_commands import Command
from tests.integration.test_scheduler_plans import plan, scans
from tests.integration.test_unknown_by_hand import failed, held

pytestmark = pytest.mark.servers

AWAY = "127.0.0.1:1"


class Status(Command):
    """The command on one database and the topics of one test."""

    def __init__(self, dsn: str, kafka: str, topics: Topics | None = None) -> None:
        super().__init__(dsn)
        self.environment["MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS"] = kafka
        if topics is not None:
            self.environment["MAILSTREAMS_TOPIC_PREFIX"] = topics.prefix

    async def parts(self, code: int = 1) -> dict[str, dict[str, Any]]:
        found = await asyncio.to_thread(self.json, "status", code=code)
        assert found["verdict"] == ("ok" if code == 0 else "attention")
        return {part["part"]: part for part in found["parts"]}


async def healthy(database: Database, servers: devservers.Servers, topics: Topics) -> None:
    """As a scheduler, a relay and consumers leave it."""
    schedule = ScheduleStore(database)
    await schedule.set_rate("eu-central-1", 14)
    keys = heartbeat_keys(PARTITIONS)
    assert await schedule.beat(keys, every=timedelta(seconds=1))
    producer = AIOKafkaProducer(bootstrap_servers=servers.kafka.bootstrap_servers)
    await producer.start()
    try:
        value = b'{"heartbeat": "%s"}'
        now = await execute(database, "SELECT utc_text(clock_timestamp())")
        for key in keys:
            await producer.send_and_wait(topics.suppressions, value % now.encode(), key.encode())
        for _ in range(5):
            await producer.send_and_wait(topics.outbox(Lane.BULK), b"{}", b"a key")
    finally:
        await producer.stop()


async def commit(servers: devservers.Servers, topics: Topics, back: int) -> None:
    """The sender's group has read all of the bulk lane but so many records."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers.kafka.bootstrap_servers,
        group_id=f"{topics.prefix}sender",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        places = [TopicPartition(topics.outbox(Lane.BULK), n) for n in range(PARTITIONS)]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        done = {p: OffsetAndMetadata(max(end - back, 0), "") for p, end in ends.items()}
        await consumer.commit(done)
    finally:
        await consumer.stop()


async def test_healthy_is_exit_code_0_and_what_waits_is_told_with_its_reason(
    servers: devservers.Servers, database_dsn: str, database: Database, topics: Topics
) -> None:
    status = Status(database_dsn, servers.kafka.bootstrap_servers, topics)
    slot = f"status_{topics.prefix.strip('.').replace('-', '_')}"
    status.environment["MAILSTREAMS_RELAY_SLOT"] = slot
    await healthy(database, servers, topics)
    await commit(servers, topics, 0)
    parts = await status.parts()
    # No relay has ever run here; everything else is as it should be.
    wrong = {name for name, part in parts.items() if part["level"] != "ok"}
    assert wrong == {"relay"}, parts
    assert slot in parts["relay"]["told"]
    bulk = f"lag {topics.outbox(Lane.BULK)}"
    assert parts[bulk]["told"] == f"{topics.prefix}sender has done everything"

    await commit(servers, topics, 3)
    await held(database, recipient="held@example.com")
    await failed(database, recipient="failed@example.com")
    await make_row(database, "ambiguous", since="1 h", recipient="ambiguous@example.com")
    await execute(
        database,
        "UPDATE send_rate SET open_since = now() - interval '5 min', probe_at = now(), failing_reason = '503'",
    )
    await execute(
        database,
        "INSERT INTO pause (scope, value, reason, who) VALUES ('tenant', 'shop', 'a wrong price', 'Ann')",
    )
    old = "0199a000-0000-7000-8000-000000000000"
    await execute(
        database,
        "INSERT INTO email_due (id, due, tenant, lane, why) VALUES ($1, now() - interval '3 h', 'shop', 'transactional', 'paused')",
        old,
    )
    parts = await status.parts()
    assert "3 records to do, the oldest" in parts[bulk]["told"]
    assert parts["dead letters"]["told"].startswith("2 messages failed for good")
    assert parts["held"]["level"] == parts["ambiguous"]["level"] == "attention"
    assert "open for 5 min" in parts["circuit"]["told"]
    assert "tenant shop is paused by Ann since" in parts["pauses"]["told"]
    assert parts["pending transactional"]["level"] == "attention"
    assert "waits for 3 h; 1 wake-ups are due" in parts["pending transactional"]["told"]
    text = (await asyncio.to_thread(status.run, "status")).stdout
    assert "mailstreams ambiguous settle" in text
    assert text.splitlines()[-1].endswith("want attention")


@pytest.mark.parametrize("away", ["postgres", "kafka"])
async def test_a_server_that_is_away_is_told_and_the_rest_is_shown_all_the_same(
    servers: devservers.Servers, request: pytest.FixtureRequest, away: str
) -> None:
    if away == "postgres":
        status = Status(f"postgresql://x@{AWAY}/x", servers.kafka.bootstrap_servers)
    else:
        status = Status(request.getfixturevalue("database_dsn"), AWAY)
    parts = await status.parts()
    if away == "postgres":
        assert parts["postgres"]["level"] == "unseen"
        assert "PostgreSQL does not answer" in parts["postgres"]["told"]
        assert "lag" in parts
    else:
        assert parts["lag"]["level"] == parts["suppressions"]["level"] == "unseen"
        assert "cannot be reached" in parts["lag"]["told"]
        assert parts["pauses"]["level"] == "ok"


def test_the_exit_code_is_the_process_s() -> None:
    nowhere = {"MAILSTREAMS_POSTGRES_DSN": f"postgresql://x@{AWAY}/x"}
    done = as_process("status", environment=nowhere | {"MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS": AWAY})
    assert (done.returncode, done.stderr) == (1, "")
    assert "postgres" in done.stdout


async def test_relays_that_poll_are_told_of(database_dsn: str, database: Database) -> None:
    status = Status(database_dsn, AWAY)
    status.environment["MAILSTREAMS_RELAY_MODE"] = "poll"
    assert (await status.parts())["relay"]["told"] == "0 of 0 shares of the keys are polled"
    await execute(
        database,
        "INSERT INTO relay_shard (shard, shards, holder, expires) SELECT n, 2, uuid_v7(), now() + interval '1 min' FROM generate_series(0, 1) AS n",
    )
    assert (await status.parts())["relay"]["level"] == "ok"
    await execute(
        database,
        "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, ts) VALUES ('x', 'y', 'z', now() - interval '3 min')",
    )
    part = (await status.parts())["relay"]
    assert (part["level"], part["told"]) == (
        "attention",
        "2 of 2 shares of the keys are polled, the oldest row waits for 3 min",
    )


# Bounded


async def test_pending_rows_of_any_age_are_found_by_ids(database: Database) -> None:
    store = OverviewStore(database, slot="none")
    assert await store.oldest_pending(Lane.BULK) is None
    insert = "INSERT INTO email_outbox (recipient, sender, subject, text, lane) SELECT 'u' || n || '@example.com', 's@example.com', 'Hello', 'Hi', 'bulk' FROM generate_series(1, 30) AS n"
    await execute(database, insert)
    age = await store.oldest_pending(Lane.BULK)
    assert age is not None
    assert 0 <= age < 60
    assert await store.oldest_pending(Lane.TRANSACTIONAL) is None


async def test_the_outbox_is_read_by_id_only(database: Database) -> None:
    await execute(
        database,
        "INSERT INTO email_outbox (recipient, sender, subject, text) SELECT 'u' || n || '@example.com', 's@example.com', 'Hello', 'Hi' FROM generate_series(1, 3000) AS n",
    )
    await execute(database, "ANALYZE email_outbox")
    found = await execute(database, f"EXPLAIN (FORMAT JSON) {query('measure_waiting')}")
    for node in [*scans(json.loads(found)), *scans(await plan(database, "find_oldest_pending"))]:
        assert "Index Cond" in node, node
    assert SAMPLE * len(SAMPLED) <= 10_000
