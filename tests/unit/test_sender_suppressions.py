"""The suppression table: which record counts, when a partition may be decided for, what survives a rebalance."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from streams.domain.addresses import RecipientKey
from streams.domain.errors import Unavailable
from streams.domain.suppressions import (
    Applied,
    PartitionLost,
    Span,
    SuppressionPage,
    SuppressionSet,
)
from streams.domain.topics import Lane
from streams.runtime import metrics
from streams.suppression_table import SuppressionTable

ANN = RecipientKey("0123456789abcdef0123456789abcdef")
BOB = RecipientKey("f" * 32)
T0 = 1_700_000_000.0


class SuppressionRecord(NamedTuple):
    """One record as it stands in the topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    sequence: bytes | None


def page_of(
    records: list[SuppressionRecord], partition: int = 0, position: int | None = None
) -> SuppressionPage:
    """The records of one partition as the feed hands them over."""
    behind = records[-1].offset + 1 if position is None else position
    return SuppressionPage(
        partition,
        behind,
        [r.offset for r in records],
        [r.key for r in records],
        [r.value for r in records],
        [r.sequence for r in records],
    )


def put(table: SuppressionSet, *records: SuppressionRecord) -> Applied:
    return table.apply(page_of(list(records)))


CHANGED = Applied(1, 0, 0, [])
OLDER = Applied(0, 1, 0, [])
HEARTBEAT = Applied(0, 0, 1, [])


def text_of(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def rule(**fields: Any) -> dict[str, Any]:
    return {"tenant": "*", "lane": "*", "reason": "hard-bounce"} | fields


def record(
    key: str = ANN, *rules: dict[str, Any], seq: int | None = 1, partition: int = 0, offset: int = 0
) -> SuppressionRecord:
    value = json.dumps({"suppressions": rules}).encode() if rules else None
    header = None if seq is None else str(seq).encode()
    return SuppressionRecord(partition, offset, key.encode(), value, header)


def heartbeat(at: float, partition: int = 0) -> SuppressionRecord:
    value = json.dumps({"heartbeat": text_of(at)}).encode()
    return SuppressionRecord(partition, 0, b"heartbeat-7", value, b"5")


def hit(table: SuppressionSet, key: RecipientKey = ANN, tenant: str = "shop", lane: Lane = Lane.BULK, now: float = T0) -> int | None:  # fmt: skip
    return table.hit(key, tenant, lane, now)


# One partition ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 1),
        ({"tenant": "shop"}, 1),
        ({"tenant": "bank"}, None),
        ({"lane": "bulk"}, 1),
        ({"lane": "transactional"}, None),
        ({"lane": "a-lane-of-tomorrow"}, 1),
        ({"expires": text_of(T0 + 1)}, 1),
        ({"expires": text_of(T0 - 1)}, None),
        ({"tenant": "sh"}, None),
    ],
)
def test_suppression_counts_for_its_tenant_and_lane_while_in_force(
    fields: dict[str, Any], expected: int | None
) -> None:
    table = SuppressionSet()
    assert put(table, record(ANN, rule(**fields))) == CHANGED
    assert hit(table) == expected
    assert hit(table, BOB) is None


def test_one_rule_of_several_is_enough() -> None:
    table = SuppressionSet()
    put(table, record(ANN, rule(tenant="bank"), rule(tenant="shop", lane="bulk"), seq=7))
    assert hit(table) == 7
    assert hit(table, lane=Lane.TRANSACTIONAL) is None


def test_newest_set_of_a_recipient_counts_whatever_comes_late() -> None:
    table = SuppressionSet()
    put(table, record(ANN, rule(), seq=5))
    assert put(table, record(ANN, seq=3)) == OLDER
    assert hit(table) == 5
    assert put(table, record(ANN, seq=6)) == CHANGED
    assert hit(table) is None
    assert put(table, record(ANN, rule(), seq=5)) == OLDER
    assert hit(table) is None
    assert len(table) == 0


def test_same_record_again_changes_nothing() -> None:
    table = SuppressionSet()
    put(table, record(ANN, rule(), seq=5))
    put(table, record(ANN, rule(), seq=5))
    assert (hit(table), len(table)) == (5, 1)


def test_record_without_a_sequence_is_taken() -> None:
    table = SuppressionSet()
    put(table, record(ANN, seq=5))
    put(table, record(ANN, rule(), seq=None))
    assert hit(table) == 5


def test_null_in_json_lifts_too() -> None:
    table = SuppressionSet()
    put(table, record(ANN, rule(), seq=1))
    put(table, SuppressionRecord(0, 1, ANN.encode(), b"null", b"2"))
    assert hit(table) is None


def test_tombstone_and_new_value_in_one_batch_end_with_the_new_value() -> None:
    table = SuppressionSet()
    put(table, record(ANN, rule(), seq=1), record(ANN, seq=2), record(ANN, rule(), seq=3))
    assert (hit(table), len(table)) == (3, 1)


def test_heartbeat_is_the_newest_by_its_own_time() -> None:
    table = SuppressionSet()
    assert put(table, heartbeat(T0)) == HEARTBEAT
    put(table, heartbeat(T0 - 5))
    assert table.heartbeat == T0
    assert len(table) == 0


@pytest.mark.parametrize(
    "bad",
    [
        SuppressionRecord(0, 0, None, b"{}", b"1"),
        SuppressionRecord(0, 0, b"ann@example.com", b"{}", b"1"),
        SuppressionRecord(0, 0, ANN.encode(), b"{}", b"1"),
        SuppressionRecord(0, 0, ANN.encode(), b"nonsense", b"1"),
        SuppressionRecord(0, 0, ANN.encode(), b'{"suppressions":[{}]}', b"1"),
        SuppressionRecord(0, 0, ANN.encode(), b'{"suppressions":[7]}', b"1"),
        SuppressionRecord(0, 0, ANN.encode(), None, b"x"),
        SuppressionRecord(0, 0, ANN.encode(), None, b"9" * 30),
        SuppressionRecord(0, 0, b"heartbeat-1", b"{}", b"1"),
        SuppressionRecord(0, 0, b"heartbeat-1", None, b"1"),
    ],
)
def test_record_of_another_form_is_bad_and_changes_nothing(bad: SuppressionRecord) -> None:
    table = SuppressionSet()
    put(table, record(ANN, rule(), seq=1))
    [(offset, reason)] = put(table, bad).unreadable
    assert offset == 0
    assert reason.startswith("not a ")
    assert (hit(table), table.heartbeat) == (1, None)


# The table of a sender ----------------------------------------------------------------------------------------------


@dataclass
class Feed:
    """A topic in memory: records by partition, ends as Kafka would tell them."""

    records: dict[int, list[SuppressionRecord]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    followed: dict[int, int] = field(default_factory=dict)
    asked: list[Mapping[int, int | None]] = field(default_factory=list)
    per_fetch: int = 1000
    fails: bool = False
    went_back: bool = False
    count: int | None = None

    async def follow(self, positions: Mapping[int, int | None]) -> dict[int, Span]:
        self.asked.append(dict(positions))
        self.followed = {n: self.starts.get(n, 0) if p is None else p for n, p in positions.items()}
        return {n: Span(self.starts.get(n, 0), self.ends.get(n, 0)) for n in positions}

    async def fetch(self, *, timeout_s: float) -> list[SuppressionPage | PartitionLost]:  # noqa: ARG002
        if self.fails:
            raise Unavailable("Kafka is away")
        found: list[SuppressionPage | PartitionLost] = []
        for number, position in self.followed.items():
            if position > self.ends.get(number, 0) and self.went_back:
                found.append(PartitionLost(number, "its end went back"))
                continue
            fresh = [r for r in self.records.get(number, []) if r.offset >= position]
            fresh = fresh[: self.per_fetch]
            behind = fresh[-1].offset + 1 if fresh else max(position, self.ends.get(number, 0))
            self.followed[number] = behind
            found.append(page_of(fresh, number, behind))
        return found

    def partitions(self) -> int | None:
        return self.count

    async def stop(self) -> None:
        self.followed = {}


def beaten(partition: int, offset: int, at: float = T0) -> SuppressionRecord:
    return heartbeat(at, partition)._replace(offset=offset)


def resets_counted() -> float:
    return float(metrics.CONSUMER_RESETS.labels(stage="sender")._value.get())


def table_of(feed: Feed, now: float = T0) -> SuppressionTable:
    return SuppressionTable(feed, staleness_s=30.0, clock=lambda: now)


async def test_partition_is_usable_once_it_is_read_up_to_the_end_of_its_assignment() -> None:
    feed = Feed(
        records={0: [beaten(0, 0), *(record(ANN, rule(), seq=n, offset=n) for n in range(1, 4))]},
        ends={0: 4},
        per_fetch=2,
    )
    table = table_of(feed)
    table.own(frozenset({0}))
    assert not table.usable(0, Lane.BULK)
    await table.follow()
    assert not table.usable(0, Lane.BULK)
    assert table.missing() == "suppressions of partitions 0 are being read"
    await table.follow()
    assert table.usable(0, Lane.BULK)
    assert table.missing() is None
    assert table.hit(0, ANN, "shop", Lane.BULK) == 3


async def test_end_that_compaction_emptied_and_empty_partitions_are_reached() -> None:
    feed = Feed(
        records={0: [beaten(0, 2)], 1: [beaten(1, 18)]}, ends={0: 10, 1: 17}, starts={1: 17}
    )
    table = table_of(feed)
    table.own(frozenset({0, 1}))
    await table.follow()
    await table.follow()
    assert table.usable(0, Lane.BULK)
    assert table.usable(1, Lane.BULK)


async def test_without_a_fresh_heartbeat_nothing_is_usable() -> None:
    feed = Feed(records={0: [beaten(0, 0, at=T0 - 31)]}, ends={0: 1})
    table = table_of(feed)
    table.own(frozenset({0, 1}))
    await table.follow()
    assert not table.usable(0, Lane.BULK)
    assert not table.usable(1, Lane.BULK)
    missing = table.missing()
    assert missing is not None
    assert missing.startswith("suppressions of partitions 0, 1 had no heartbeat for 30 s")


async def test_sender_without_partitions_misses_nothing() -> None:
    table = table_of(Feed())
    table.own(frozenset())
    await table.follow()
    assert table.missing() is None
    assert not table.usable(0, Lane.BULK)


async def test_kept_partition_goes_on_where_it_was_and_stays_usable() -> None:
    feed = Feed(records={0: [beaten(0, 0), record(ANN, rule(), offset=1)]}, ends={0: 2})
    table = table_of(feed)
    table.own(frozenset({0}))
    await table.follow()
    table.own(frozenset({0, 1}))
    assert table.usable(0, Lane.BULK)
    await table.follow()
    assert feed.asked == [{0: None}, {0: 2, 1: None}]
    assert table.hit(0, ANN, "shop", Lane.BULK) == 1


async def test_partition_that_went_and_came_back_is_read_from_its_beginning() -> None:
    feed = Feed(records={0: [beaten(0, 0), record(ANN, rule(), offset=1)]}, ends={0: 2})
    table = table_of(feed)
    table.own(frozenset({0}))
    await table.follow()
    table.own(frozenset())
    table.own(frozenset({0}))
    assert not table.usable(0, Lane.BULK)
    assert table.hit(0, ANN, "shop", Lane.BULK) is None
    await table.follow()
    assert feed.asked == [{0: None}, {0: None}]
    assert table.hit(0, ANN, "shop", Lane.BULK) == 1


async def test_after_an_outage_it_takes_up_where_it_was() -> None:
    feed = Feed(records={0: [beaten(0, 0)]}, ends={0: 1})
    table = table_of(feed)
    table.own(frozenset({0}))
    await table.follow()
    feed.fails = True
    with pytest.raises(Unavailable):
        await table.follow()
    feed.fails = False
    feed.records[0].append(record(ANN, rule(), offset=1))
    await table.follow()
    assert feed.asked == [{0: None}, {0: 1}]
    assert table.hit(0, ANN, "shop", Lane.BULK) == 1


def republished(offset: int, at: float, partition: int = 0) -> SuppressionRecord:
    value = json.dumps({"heartbeat": text_of(at), "republished": True}).encode()
    return SuppressionRecord(partition, offset, b"heartbeat-7", value, b"9")


async def lost(feed: Feed, *owned: int) -> SuppressionTable:
    """A table whose partition 0 had a record, when the topic was made anew, with a heartbeat only."""
    feed.records[0], feed.ends[0] = [beaten(0, 0), record(ANN, rule(), offset=1)], 2
    table = table_of(feed)
    table.own(frozenset(owned))
    await table.follow()
    assert table.usable(0, Lane.BULK)
    feed.records[0], feed.ends[0], feed.went_back = [beaten(0, 0)], 1, True
    return table


async def test_partition_whose_topic_was_made_anew_is_not_usable_until_all_was_put_in_again() -> (
    None
):
    feed = Feed(
        records={1: [beaten(1, 0), record(BOB, rule(), partition=1, offset=1)]}, ends={1: 2}
    )
    table = await lost(feed, 0, 1)
    resets = resets_counted()
    for _ in range(3):
        await table.follow()
    assert resets_counted() == resets + 1
    assert feed.asked[-1] == {0: None, 1: 2}
    assert not table.usable(0, Lane.BULK)
    assert table.usable(1, Lane.BULK)
    missing = table.missing()
    assert missing is not None
    assert 'run "mailstreams suppressions republish"' in missing
    assert "partitions 0 (its end went back)" in missing
    feed.records[0] += [record(ANN, rule(), offset=1), republished(2, T0)]
    await table.follow()
    assert table.usable(0, Lane.BULK)
    assert table.missing() is None
    assert table.hit(0, ANN, "shop", Lane.BULK) == 1


async def test_word_of_before_the_loss_does_not_make_the_partition_usable() -> None:
    feed = Feed()
    table = await lost(feed, 0)
    feed.records[0] = [republished(0, T0 - 1)]
    for _ in range(3):
        await table.follow()
    assert not table.usable(0, Lane.BULK)


@pytest.mark.parametrize("span", [Span(0, 1), Span(3, 9)])
async def test_position_that_is_gone_when_kafka_comes_back_means_that_the_partition_is_lost(
    span: Span,
) -> None:
    feed = Feed(records={0: [beaten(0, 0), record(ANN, rule(), offset=1)]}, ends={0: 2})
    table = table_of(feed)
    table.own(frozenset({0}))
    await table.follow()
    feed.fails = True
    with pytest.raises(Unavailable):
        await table.follow()
    feed.fails, feed.records[0] = False, []
    feed.starts[0], feed.ends[0] = span
    await table.follow()
    assert table.hit(0, ANN, "shop", Lane.BULK) is None
    assert "lost what was read" in (table.missing() or "")


async def test_topics_with_different_numbers_of_partitions_make_nothing_usable() -> None:
    feed = Feed(records={0: [beaten(0, 0)]}, ends={0: 1}, count=3)
    table = table_of(feed)
    table.own(frozenset({0}))
    await table.follow()
    table.compare({"mail.outbox.bulk": 3})
    assert table.usable(0, Lane.BULK)
    table.compare({"mail.outbox.bulk": 4})
    assert not table.usable(0, Lane.BULK)
    missing = table.missing()
    assert missing is not None
    assert "mail.outbox.bulk 4, the suppressions 3" in missing
    assert "suppressions republish" in missing
    feed.count = 4
    table.compare({"mail.outbox.bulk": 4})
    assert table.usable(0, Lane.BULK)


async def test_stale_table_stops_bulk_and_lets_a_lane_go_on_where_that_is_wanted() -> None:
    feed = Feed(records={0: [beaten(0, 0, at=T0 - 31)]}, ends={0: 1})
    table = SuppressionTable(feed, staleness_s=30.0, goes_on={Lane.TRANSACTIONAL}, clock=lambda: T0)
    table.own(frozenset({0, 1}))
    assert not table.usable(0, Lane.TRANSACTIONAL)
    await table.follow()
    assert table.usable(0, Lane.TRANSACTIONAL)
    assert not table.usable(0, Lane.BULK)
    assert (table.missing() or "").endswith("; transactional goes on")


async def test_recipient_whose_last_record_is_an_older_one_is_named_until_a_newer_one_comes() -> (
    None
):
    feed = Feed(
        records={
            0: [beaten(0, 0), record(ANN, rule(), seq=5, offset=1), record(ANN, seq=3, offset=2)]
        },
        ends={0: 4},
        per_fetch=2,
    )
    table = table_of(feed)
    table.own(frozenset({0}))
    await table.follow()
    feed.records[0].append(record(BOB, seq=4, offset=3))
    assert table.overtaken() == {}
    await table.follow()
    assert table.overtaken() == {ANN: 5}
    assert table.hit(0, ANN, "shop", Lane.BULK) == 5
    feed.records[0].append(record(ANN, rule(), seq=6, offset=4))
    await table.follow()
    assert table.overtaken() == {}


async def test_records_that_come_again_in_their_order_overtake_nobody() -> None:
    first, second = record(ANN, rule(), seq=5, offset=1), record(ANN, seq=6, offset=2)
    again = [first._replace(offset=3), second._replace(offset=4)]
    feed = Feed(records={0: [beaten(0, 0), first, second, *again]}, ends={0: 5})
    table = table_of(feed)
    table.own(frozenset({0}))
    await table.follow()
    assert table.overtaken() == {}
    assert table.hit(0, ANN, "shop", Lane.BULK) is None


async def test_age_counts_by_the_clock_that_the_table_is_told() -> None:
    feed = Feed(records={0: [beaten(0, 0, at=T0)]}, ends={0: 1})
    table = table_of(feed, now=T0 + 3600)
    now = T0
    table.tell_time(lambda: now)
    table.own(frozenset({0}))
    await table.follow()
    assert table.usable(0, Lane.BULK)
    now = T0 + 31
    assert not table.usable(0, Lane.BULK)


async def test_heartbeat_from_the_future_is_told_once_and_is_fresh_from_its_arrival_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed = Feed(records={0: [beaten(0, 0, at=T0 + 3600)]}, ends={0: 2})
    table = table_of(feed)
    now = T0
    table.tell_time(lambda: now)
    table.own(frozenset({0}))
    await table.follow()
    feed.records[0].append(beaten(0, 1, at=T0 + 3601))
    await table.follow()
    assert table.usable(0, Lane.BULK)
    assert [r.action for r in caplog.records if hasattr(r, "action")] == [
        "suppressions.heartbeat_ahead"
    ]
    now = T0 + 31
    assert not table.usable(0, Lane.BULK)


async def test_unreadable_record_does_not_stop_the_others() -> None:
    bad = SuppressionRecord(0, 1, b"nobody", b"{}", b"1")
    feed = Feed(records={0: [beaten(0, 0), bad, record(ANN, rule(), offset=2)]}, ends={0: 3})
    table = table_of(feed)
    table.own(frozenset({0}))
    await table.follow()
    assert table.usable(0, Lane.BULK)
    assert table.hit(0, ANN, "shop", Lane.BULK) == 1
