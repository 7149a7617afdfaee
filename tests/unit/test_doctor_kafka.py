"""The doctor's rules on topics, their copies and their heartbeats."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.domain.diagnosis import Finding, Level
from streams.domain.diagnosis_kafka import (
    Cluster,
    Heartbeats,
    Partition,
    Topic,
    judge_heartbeats,
    judge_topics,
)
from streams.domain.topics import Topics

NAMES = Topics()
BULK, SUPPRESSIONS = "mail.outbox.bulk", "mail.suppressions"
UNREADABLE = "mail.suppressions.unreadable"


def topic(count: int, settings: dict[str, str]) -> Topic:
    whole = (1, 2, 3)
    return Topic(
        partitions=[
            Partition(number=n, leader=1, replicas=whole, in_sync=whole) for n in range(count)
        ],
        settings=settings,
    )


def good() -> dict[str, Topic]:
    made = {}
    for name, wanted in NAMES.configurations().items():
        given = {"min.insync.replicas": "2", "max.message.bytes": "1048588"} | wanted
        made[name] = topic(1 if name.endswith(".unreadable") else 12, given)
    return made


def changed(name: str, **settings: str) -> dict[str, Topic]:
    topics = good()
    before = topics[name]
    given = {key.replace("_", "."): value for key, value in settings.items()}
    topics[name] = replace(before, settings={**(before.settings or {}), **given})
    return topics


def levels(topics: dict[str, Topic], brokers: Sequence[int] = (1, 2, 3)) -> dict[str, str]:
    found = judge_topics(Cluster(brokers=brokers, topics=topics), NAMES, partitions=12)
    return {f.id: str(f.level) for f in found if f.level is not Level.OK}


def test_topics_as_migrate_makes_them_are_right() -> None:
    assert levels(good()) == {}


def test_a_missing_topic_is_named_and_the_others_are_judged() -> None:
    topics = changed(BULK, cleanup_policy="compact")
    del topics[SUPPRESSIONS]
    assert levels(topics) == {"kafka.topics": "error", "kafka.cleanup": "error"}
    found = judge_topics(Cluster(brokers=[1], topics=topics), NAMES, partitions=12)
    [missing] = [f.found for f in found if f.id == "kafka.topics"]
    assert missing == f"missing: {SUPPRESSIONS}"


def test_without_any_topic_there_is_one_finding() -> None:
    assert levels({}) == {"kafka.topics": "error"}


def test_another_number_of_partitions_is_an_error() -> None:
    topics = good()
    topics[BULK] = replace(topics[BULK], partitions=topics[BULK].partitions[:6])
    assert levels(topics) == {"kafka.partitions": "error"}


@pytest.mark.parametrize(
    ("name", "settings", "id_", "level"),
    [
        (SUPPRESSIONS, {"cleanup_policy": "delete"}, "kafka.cleanup", "error"),
        (SUPPRESSIONS, {"cleanup_policy": "compact,delete"}, "kafka.cleanup", "error"),
        (BULK, {"cleanup_policy": "compact"}, "kafka.cleanup", "error"),
        (BULK, {"retention_ms": "86400000"}, "kafka.retention", "warning"),
        (BULK, {"retention_ms": "60000"}, "kafka.retention", "error"),
        (BULK, {"min_insync_replicas": "1"}, "kafka.copies", "warning"),
        (BULK, {"min_insync_replicas": "3"}, "kafka.copies", "warning"),
        (BULK, {"min_insync_replicas": "4"}, "kafka.copies", "error"),
        (BULK, {"max_message_bytes": "1000"}, "kafka.message-bytes", "warning"),
        (UNREADABLE, {"max_message_bytes": "1048588"}, "kafka.message-bytes", "warning"),
        (BULK, {"unclean_leader_election_enable": "true"}, "kafka.unclean", "warning"),
    ],
)
def test_a_topic_that_is_not_as_needed_is_told(
    name: str, settings: dict[str, str], id_: str, level: str
) -> None:
    assert levels(changed(name, **settings)) == {id_: level}


def test_records_that_are_kept_for_ever_are_right() -> None:
    assert levels(changed(BULK, retention_ms="-1")) == {}


def test_one_replica_is_a_warning() -> None:
    topics = good()
    topics[BULK] = replace(
        topics[BULK],
        partitions=[replace(p, replicas=(1,), in_sync=(1,)) for p in topics[BULK].partitions],
        settings={**(topics[BULK].settings or {}), "min.insync.replicas": "1"},
    )
    assert levels(topics) == {"kafka.copies": "warning"}


@pytest.mark.parametrize(("leader", "level"), [(1, "warning"), (None, "error")])
def test_a_broker_that_is_away_is_named(leader: int | None, level: str) -> None:
    topics = good()
    partitions = [replace(p, in_sync=(1, 2), leader=leader) for p in topics[BULK].partitions]
    topics[BULK] = replace(topics[BULK], partitions=partitions)
    assert levels(topics, brokers=(1, 2)) == {"kafka.replicas": level}
    found = judge_topics(Cluster(brokers=[1, 2], topics=topics), NAMES, partitions=12)
    [told] = [f.found for f in found if f.id == "kafka.replicas"]
    assert "brokers that are away: 3" in told


def test_settings_that_may_not_be_read_are_a_warning() -> None:
    topics = good()
    topics[BULK] = replace(topics[BULK], settings=None)
    assert levels(topics) == {"kafka.cleanup": "warning"}


def heartbeat(
    ages: dict[int, float | None], *, empty: bool = False, relay_was_here: bool = True
) -> Finding:
    return judge_heartbeats(
        Heartbeats(ages_s=ages, empty=empty), staleness_s=30.0, relay_was_here=relay_was_here
    )


@pytest.mark.parametrize(
    ("finding", "level"),
    [
        (heartbeat({0: 1.0, 1: 2.0}), "ok"),
        (heartbeat({0: 1.0, 1: 31.0}), "error"),
        (heartbeat({0: 1.0, 1: None}), "error"),
        (heartbeat({0: None}, empty=True), "error"),
        (heartbeat({0: None}, empty=True, relay_was_here=False), "warning"),
    ],
)
def test_each_partition_needs_a_fresh_heartbeat_once_a_relay_has_run(
    finding: Finding, level: str
) -> None:
    assert (finding.id, finding.level) == ("heartbeats.age", level)
