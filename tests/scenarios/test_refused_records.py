"""Cases D13 and D17: records that Kafka refuses, and records that a consumer cannot read."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest
from aiokafka.admin.config_resource import ConfigResourceType
from cryptography.fernet import Fernet
from psycopg.types.json import Jsonb

import devservers
from demo.system import UNREADABLE_KEY
from streams.domain.records import Record
from streams.domain.topics import Lane, unreadable
from tests.scenarios.conftest import Place
from tests.scenarios.scene import Scene, scene_on
from tests.scenarios.topics import configure, facts, partitions_of, publish, records_of

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]

RECIPIENTS: Final = "recipients"
LIMIT: Final = 102_400
TWO_MB: Final = 2_000_000


@pytest.fixture
def limited(place: Place) -> Iterator[Place]:
    """A broker that takes no batch of more than 100 KB."""
    asyncio.run(limit(place, LIMIT))
    yield place
    asyncio.run(limit(place, 1_048_588))


async def limit(place: Place, bytes_: int) -> None:
    await configure(
        place.broker.bootstrap_servers,
        ConfigResourceType.BROKER,
        "1",
        {"message.max.bytes": str(bytes_)},
    )


def test_d13_a_record_that_is_too_large_holds_up_no_other_and_is_not_dropped(
    limited: Place, tmp_path: Path
) -> None:
    with scene_on(limited.servers, tmp_path, simulator=False) as scene:
        scene.run("relay")
        scene.wait_ready("relay", 60)
        mails_of_two_megabytes_are_pointers(scene)
        a_row_of_two_megabytes_is_set_aside(scene)
        scene.kill("relay")


def mails_of_two_megabytes_are_pointers(scene: Scene) -> None:
    """As large as the table lets a mail be in every place, and then two megabytes; larger headers are refused by name."""
    headers = {f"X-Header-{n}": "v" * 870 for n in range(15)}
    tags = {f"tag-{n}": "v" * 256 for n in range(5)}
    statement = (
        "INSERT INTO email_outbox (recipient, sender, subject, text, headers, tags) "
        "VALUES (%s, 'shop@example.com', 'Hello', %s, %s, %s) RETURNING id"
    )
    with scene.connect() as connection:
        with pytest.raises(psycopg.errors.CheckViolation, match="headers"):
            connection.execute(
                statement, ("large@example.com", "Hi", Jsonb({"X": "v" * TWO_MB}), Jsonb(tags))
            )
        ids = []
        for address, text in (("a", "Hi"), ("large", "x" * TWO_MB), ("c", "Hi")):
            row = connection.execute(
                statement, (f"{address}@example.com", text, Jsonb(headers), Jsonb(tags))
            ).fetchone()
            assert row is not None
            ids.append(str(row[0]).encode())
    topic = scene.topics.outbox(Lane.TRANSACTIONAL)

    def relayed() -> bool:
        return sum(i in (r.value or b"") for r in records(scene, topic) for i in ids) == len(ids)

    scene.wait_for(relayed, "the three mails to be relayed", timeout_s=10)


def a_row_of_two_megabytes_is_set_aside(scene: Scene) -> None:
    """The relay carries whatever the feed has; the position waits for what is neither acknowledged nor set aside."""
    statement = (
        "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) "
        "SELECT 'dead-letters', %s, 'dead-letters', jsonb_build_object('mark', %s::text, 'pad', repeat('x', %s)) RETURNING id"
    )
    ids = [
        scene.value(statement, "0" * 32, mark, size)
        for mark, size in (("before", 10), ("large", TWO_MB), ("after", 10))
    ]
    end = scene.value("SELECT pg_current_wal_lsn() - '0/0'")

    def small_ones() -> bool:
        values = [r.value or b"" for r in records(scene, scene.topics.dead_letters)]
        return all(any(mark in value for value in values) for mark in (b"before", b"after"))

    scene.wait_for(small_ones, "both small rows to be relayed", timeout_s=10)
    confirmed = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE database = current_database()"
    scene.wait_for(lambda: scene.value(confirmed) >= end, "the position to be confirmed")
    found = scene.rows("SELECT id, reason FROM relay_refused")
    assert [i for i, _ in found] == [ids[1]]
    assert found[0][1]
    assert scene.metric("relay", "mailstreams_relay_refused_rows_total") == 1


def records(scene: Scene, topic: str) -> list[Record]:
    async def read() -> list[Record]:
        return await records_of(scene.kafka, await partitions_of(scene.kafka, topic))

    return asyncio.run(read())


# Kinds of bad records: no JSON, no text, nothing, JSON of another shape, and an event with a word that nobody knows.
BAD: Final = (
    b"{",
    b"\xff\xfe\x00",
    b"",
    b'["an", "array"]',
    facts(1, "bad")[0].replace(b"delivered", b"teleported"),
)


def test_d17_bad_records_between_good_ones_are_set_aside_and_too_many_stop_the_consumer(
    servers: devservers.Servers, tmp_path: Path
) -> None:
    with scene_on(servers, tmp_path, partitions=1, simulator=False) as scene:
        topic = scene.topics.delivery_events
        values: list[bytes | None] = list(facts(1000, "good"))
        places = [100, 300, 500, 700, 904]
        for place, bad in zip(places, BAD, strict=True):
            values.insert(place, bad)
        asyncio.run(publish(scene.kafka, topic, values))
        scene.run(RECIPIENTS)
        scene.wait_for(
            lambda: scene.value("SELECT count(*) FROM email_event") == 1000,
            "1,000 events to be folded",
            alive=RECIPIENTS,
            timeout_s=90,
        )
        scene.wait_for(lambda: len(records(scene, unreadable(topic))) == 5, "five set aside")
        for record, place, bad in zip(records(scene, unreadable(topic)), places, BAD, strict=True):
            headers = {name: (value or b"").decode() for name, value in record.headers}
            assert (headers["topic"], headers["partition"]) == (topic, "0")
            assert headers["offset"] == str(place)
            assert headers["reason"]
            assert record.value is not None
            assert Fernet(UNREADABLE_KEY).decrypt(record.value) == bad
        assert scene.missing(RECIPIENTS) == {}
        assert len(scene.said(RECIPIENTS, "process.started")) == 1

        asyncio.run(publish(scene.kafka, topic, [BAD[0]] * 1000))
        halted = "recipients.records"
        scene.wait_for(
            lambda: halted in scene.missing(RECIPIENTS), "the stop", alive=RECIPIENTS, timeout_s=90
        )
        assert "unreadable records" in scene.missing(RECIPIENTS)[halted]
        assert topic in scene.missing(RECIPIENTS)[halted]
        assert scene.metric(RECIPIENTS, "mailstreams_consumer_halted", stage=RECIPIENTS) == 1
        scene.kill(RECIPIENTS)
