"""Case D18: three brokers, everything three times, each restarted once while mail flows; and Kafka that takes no records."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.admin.config_resource import ConfigResourceType

import devservers
from devservers import Servers, ServerSettings
from devservers.settings import KAFKA_BOOTSTRAP_SERVERS, POSTGRES_DSN, SERVERS
from tests.scenarios.load import Application, Watch
from tests.scenarios.scene import LONG, Scene, scene_on
from tests.scenarios.telling import all_told, goes_on, under_way
from tests.scenarios.topics import admin_of, configure

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800 if LONG else 900)]

BOUND_S = 60.0
LATE_S = 5.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Servers]:
    with pytest.MonkeyPatch.context() as patch:
        for name in (POSTGRES_DSN, KAFKA_BOOTSTRAP_SERVERS, SERVERS):
            patch.delenv(name, raising=False)
        with devservers.running(ServerSettings(kafka_brokers=3)) as running:
            yield running


def wait_in_sync(scene: Scene) -> None:
    """Until every broker has every record again, as whoever restarts brokers one after the other waits for."""

    async def in_sync() -> bool:
        async with admin_of(scene.kafka) as admin:
            topics = await admin.describe_topics()
        return all(len(part["isr"]) == 3 for topic in topics for part in topic["partitions"])

    scene.wait_for(lambda: asyncio.run(in_sync()), "the replicas to be in sync", timeout_s=120)


def test_d18_no_stage_stands_still_while_the_brokers_are_restarted_one_after_the_other(
    cluster: Servers, tmp_path: Path
) -> None:
    pause_s = 30.0 if LONG else 0.0
    names = ["around", "sender-1", "sender-2"]
    with scene_on(cluster, tmp_path) as scene:
        scene.run_around()
        with scene.senders("sender-1", "sender-2"):
            watch = Watch(scene, names, folding=True)
            with watch, Application(scene) as application:
                for broker in cluster.brokers:
                    begun = time.monotonic()
                    broker.stop()
                    broker.start()
                    wait_in_sync(scene)
                    time.sleep(max(0.0, begun + pause_s - time.monotonic()))  # the case's pace
                application.stop()
                if watch.restarts:
                    scene.wait_settled_after_kills(application.ids, 180)
                else:
                    scene.wait_submitted(application.ids, 180)
                unfolded = (
                    "SELECT count(*) FROM email_outbox o LEFT JOIN recipient_outcome r ON r.outbox_id = o.id "
                    "WHERE o.state = 'submitted' AND r.delivered_at IS NULL"
                )
                scene.wait_for(lambda: scene.value(unfolded) == 0, "all events", timeout_s=120)
            assert watch.longest.keys() == {"rows", "events"}
            assert max(watch.longest.values()) <= BOUND_S + LATE_S, watch.restarts
        scene.assert_none_accepted_twice()


def test_while_kafka_takes_no_records_every_stage_that_writes_says_so_and_goes_on_afterwards(
    cluster: Servers, tmp_path: Path
) -> None:
    with scene_on(cluster, tmp_path) as scene:
        scene.run_around()
        with scene.senders("sender-1"):
            ids = scene.commit(f"before-{n}@example.com" for n in range(10))
            scene.wait_submitted(ids, 60)
            away = cluster.brokers[-1]
            try:
                with under_way(scene, 10) as held:
                    asyncio.run(copies_wanted(scene, "3"))
                    away.stop()
                # Rows to the relay, events to the endpoint, outcomes to the sender, whose positions are records too.
                ids += [*held, *scene.commit(f"during-{n}@example.com" for n in range(30))]
                scene.wait_for(
                    all_told(scene, ("relay", "events", "sender"), "min.insync.replicas"),
                    "every stage that writes to say what is wrong",
                    timeout_s=120,
                )
            finally:
                away.start()
                asyncio.run(copies_wanted(scene, None))
            goes_on(scene, ids)


async def copies_wanted(scene: Scene, copies: str | None) -> None:
    """From now on a record, or a position, counts only when so many of the three brokers have it."""
    offsets = {"__consumer_offsets": {"cleanup.policy": "compact", "segment.bytes": "104857600"}}
    for topic, given in (scene.topics.configurations() | offsets).items():
        values = given if copies is None else given | {"min.insync.replicas": copies}
        await configure(scene.kafka, ConfigResourceType.TOPIC, topic, values)
