"""When unreadable records are too many, and what a batch is made of."""

from datetime import UTC, datetime

import pytest

from streams.domain.addresses import RecipientKey
from streams.domain.delivery_events import DeliveryEvent, EventId, EventType, encode
from streams.domain.records import Record
from streams.domain.unreadable_limit import UnreadableLimit
from streams.recipients import read


def test_as_many_as_the_limit_may_be_set_aside_and_no_more() -> None:
    limit = UnreadableLimit(most=3, within_s=600)
    assert limit.allows(3, 0.0)
    assert not limit.allows(4, 0.0)
    limit.add(0.0)
    assert limit.allows(2, 0.0)
    assert not limit.allows(3, 0.0)


def test_what_is_long_ago_does_not_count() -> None:
    limit = UnreadableLimit(most=1, within_s=600)
    limit.add(0.0)
    assert not limit.allows(1, 600.0)
    assert limit.allows(1, 601.0)


def record(offset: int, value: bytes | None) -> Record:
    return Record(topic="mail.delivery-events", partition=0, offset=offset, key=None, value=value)


@pytest.mark.parametrize("kind", EventType)
def test_a_batch_parts_facts_from_life_cycle_and_unreadable(kind: EventType) -> None:
    event = DeliveryEvent(
        id=EventId("e"),
        type=kind,
        time=datetime(2026, 1, 15, tzinfo=UTC),
        recipient_key=RecipientKey("0" * 32),
    )
    batch = read([record(0, encode(event)), record(1, b"{"), record(2, None)])
    assert [r.offset for r, _ in batch.unreadable] == [1, 2]
    assert [e for _, e in batch.events] == ([] if kind.is_life_cycle else [event])
    assert len(batch.records) == 3
