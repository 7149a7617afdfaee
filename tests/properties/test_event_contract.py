"""Any event there can be keeps to the schema and survives its record; nothing that a record may hold makes a reader raise."""

import json
from datetime import UTC
from pathlib import Path
from typing import Any

import orjson
from aiokafka import ConsumerRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.domain.addresses import RecipientKey
from streams.domain.delivery_events import (
    LIFE_CYCLE_SOURCE,
    PROVIDER_SOURCE,
    Bounce,
    BounceReason,
    BounceType,
    Complaint,
    DeliveryEvent,
    EventId,
    EventType,
    decode,
    encode,
    interpret,
)
from streams.subscribers import Skipped
from streams.subscribers.reading import Wanted
from tests.contract.schema_files import SCHEMAS, current, faults

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
maybe_texts = st.none() | texts
keys = st.text("0123456789abcdef", min_size=32, max_size=32)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=10,
)
bounces = st.builds(
    Bounce,
    type=st.sampled_from(BounceType),
    reason=st.sampled_from(BounceReason),
    provider_type=maybe_texts,
    provider_subtype=maybe_texts,
    status=st.none() | st.from_regex(r"[245]\.[0-9]{1,3}\.[0-9]{1,3}", fullmatch=True),
    diagnostic=maybe_texts,
)
complaints = st.builds(Complaint, type=maybe_texts, subtype=maybe_texts)


@st.composite
def events(draw: st.DrawFn) -> DeliveryEvent:
    """One as the intake or the outbox can write it."""
    kind = draw(st.sampled_from(EventType))
    unknown: st.SearchStrategy[Any] = st.nothing() if kind.is_life_cycle else st.none()
    return DeliveryEvent(
        id=EventId(draw(keys)),
        type=kind,
        time=draw(st.datetimes(timezones=st.just(UTC))),
        recipient_key=RecipientKey(draw(keys)),
        tenant=draw(unknown | st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)),
        outbox_id=draw(unknown | st.uuids()),
        attempt_id=draw(st.none() | st.uuids()),
        provider_message_id=draw(maybe_texts),
        sender_domain=draw(
            st.none() | st.from_regex(r"[a-z0-9-]{1,9}(\.[a-z0-9-]{1,9}){1,3}", fullmatch=True)
        ),
        dedup_key=draw(maybe_texts),
        bounce=draw(bounces) if kind is EventType.BOUNCED else None,
        complaint=draw(complaints) if kind is EventType.COMPLAINED else None,
        reason=draw(maybe_texts),
        source=LIFE_CYCLE_SOURCE if kind.is_life_cycle else PROVIDER_SOURCE,
        raw=draw(st.none() | st.dictionaries(texts, texts, max_size=3)),
    )


@given(events())
def test_every_event_keeps_to_the_schema_and_survives_its_record(event: DeliveryEvent) -> None:
    value = encode(event)
    body = json.loads(value)
    assert faults(current("delivery-events"), body) == []
    read = decode(value)
    assert interpret(body) == read
    shortened = event.time.replace(microsecond=event.time.microsecond // 1000 * 1000)
    assert (read, read.time) == (event_at(event, read), shortened)


def event_at(event: DeliveryEvent, read: DeliveryEvent) -> DeliveryEvent:
    """The event with the time as a record keeps it, in milliseconds."""
    return DeliveryEvent(
        **{name: getattr(event, name) for name in event.__slots__} | {"time": read.time}
    )


def record(value: bytes | None) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord("t", 0, 0, 0, 0, None, value, None, 0, 0, ())


EXAMPLES = [
    json.loads(path.read_text())
    for path in sorted(Path(SCHEMAS, "delivery-events", "examples").glob("*.json"))
]
WANTED = (Wanted(), Wanted(types=frozenset({"bounced"}), tenants=frozenset({"shop"})))


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """An example in which something is replaced or missing, at any depth."""
    body = json.loads(json.dumps(draw(st.sampled_from(EXAMPLES))))
    at = body
    while True:
        name = draw(st.sampled_from(sorted(at)))
        if isinstance(at[name], dict) and at[name] and draw(st.booleans()):
            at = at[name]
            continue
        if draw(st.booleans()):
            at[name] = draw(json_values)
        else:
            del at[name]
        return body


@settings(max_examples=300)
@given(damaged() | json_values)
def test_whatever_json_a_record_holds_a_subscriber_never_raises(body: Any) -> None:
    try:
        value = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        value = json.dumps(body).encode()
    for wanted in WANTED:
        assert isinstance(wanted.read(record(value)), DeliveryEvent | Skipped | None)


@given(st.none() | st.binary(max_size=60))
def test_bytes_that_are_no_event_are_skipped(value: bytes | None) -> None:
    assert isinstance(Wanted().read(record(value)), Skipped)


@settings(max_examples=300)
@given(damaged())
def test_what_the_schema_takes_the_subscriber_reads(body: Any) -> None:
    value = json.dumps(body).encode()
    if faults(current("delivery-events"), json.loads(value)) == []:
        found = Wanted().read(record(value))
        assert isinstance(found, DeliveryEvent) or (
            isinstance(found, Skipped) and found.event is not None
        ), found
