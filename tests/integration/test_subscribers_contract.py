"""What really stands in the topics keeps to the schemas: events of the intake, and all that the relay takes from the tables."""

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet

import devservers
from streams.adapters.kafka_publisher import KafkaPublisher, UnreadableTopic
from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.domain.delivery_events import CONTENT_TYPE, EventType
from streams.domain.heartbeats import heartbeat_keys
from streams.domain.topics import Lane, Topics, unreadable
from streams.intake import Intake, IntakeSettings
from streams.subscribers import Subscriber, Subscription
from tests.conftest import PARTITIONS, SALT
from tests.contract.schema_files import RELEASED, current, faults, validator
from tests.contract.test_event_contract import NOTICES
from tests.events_rig import Certificates, Confirmer
from tests.integration.outbox_rows import execute, make_row
from tests.integration.relay_setup import Reader, Setup, streaming
from tests.sns_signing import TOPIC, certificate, notification, signed, timestamp

pytestmark = pytest.mark.servers
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def is_valid_event(record: Any) -> bool:
    """In today's schema and in every released one, with the header of a CloudEvent, under its recipient's key."""
    body = json.loads(record.value)
    schemas = [current("delivery-events"), *map(validator, RELEASED.glob("*/schema.json"))]
    assert [fault for schema in schemas for fault in faults(schema, body)] == []
    assert dict(record.headers)[CONTENT_TYPE[0]] == CONTENT_TYPE[1]
    assert record.key.decode() == body["subject"] == body["data"]["recipient_key"]
    return True


async def test_events_of_the_intake_keep_to_the_schema(
    servers: devservers.Servers, topics: Topics
) -> None:
    bootstrap_servers = servers.kafka.bootstrap_servers
    publisher = KafkaPublisher(bootstrap_servers, client_id="events")
    now = datetime.now(UTC)
    settings = IntakeSettings(
        topics=frozenset((TOPIC,)),
        signature_versions=frozenset(("1",)),
        max_age=None,
        salt=SALT,
        events_topic=topics.delivery_events,
    )
    aside = UnreadableTopic(publisher, key=Fernet.generate_key(), stage="events")
    intake = Intake(settings, publisher, aside, Certificates(pem=certificate(now=now)), Confirmer())
    try:
        for notice in (*NOTICES.values(), {"eventType": "Odd"}):
            body = signed(notification(notice, Timestamp=timestamp(now)))
            await intake.receive(body, now=now)
    finally:
        await publisher.stop()
    written = topics.delivery_events
    async with Reader(bootstrap_servers, written, unreadable(written)) as reader:
        records = await reader.read(lambda found: len(found) >= len(NOTICES) + 2)
    events = [record for record in records if record.topic == written]
    assert all(is_valid_event(record) for record in events)
    assert len(events) == len(NOTICES) + 1  # one of them has two recipients
    (kept,) = (record for record in records if record.topic != written)
    assert faults(current("unreadable"), {n: v.decode() for n, v in kept.headers}) == []


async def happen(database: Database) -> dict[str, str]:
    """Everything that the tables tell, by the statements that tell it; returns the id of the row of each end."""
    rows = {
        "suppressed": await make_row(database, recipient="gone@example.com", dedup_key="order-1"),
        "expired": await make_row(
            database, expires_at=datetime.now(UTC) - timedelta(minutes=1), traceparent=TRACEPARENT
        ),
        "cancelled": await make_row(database, lane="bulk"),
        "failed": await make_row(database, "ambiguous", since="2 days"),
    }
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, tenant, lane, reason, evidence_id, expires) VALUES "
        "($1, '*', '*', 'hard-bounce', 'e1', NULL), ($1, 'shop', 'bulk', 'soft-bounces', NULL, now() + interval '14 days')",
        rows["suppressed"].key,
    )
    ids = [rows["suppressed"].id, rows["expired"].id]
    await execute(database, query("close_unsendable"), ids)
    await execute(
        database, "UPDATE email_outbox SET state = 'cancelled' WHERE id = $1", rows["cancelled"].id
    )
    await execute(database, query("hold_ambiguous"), timedelta(days=1), 10)
    await execute(database, "DELETE FROM suppression")
    await execute(
        database, query("insert_heartbeats"), heartbeat_keys(PARTITIONS), timedelta(seconds=1)
    )
    return {kind: str(row.id) for kind, row in rows.items()}


async def test_records_of_the_relay_keep_to_the_schemas(
    servers: devservers.Servers, database_dsn: str, database: Database, topics: Topics
) -> None:
    setup = Setup(
        dsn=database_dsn, bootstrap_servers=servers.kafka.bootstrap_servers, topics=topics
    )
    await setup.make_slot()
    names = [name for name in topics.configurations() if not name.endswith(".unreadable")]
    async with streaming(setup.relay()), Reader(setup.bootstrap_servers, *names) as reader:
        ids = await happen(database)
        # Four pointers, four ends, a dead letter, the suppressions and that they are gone, a heartbeat a partition.
        records = await reader.read(lambda found: len(found) >= 11 + PARTITIONS)
    by_topic = defaultdict(list)
    for record in records:
        by_topic[record.topic].append(record)
    for folder, topic in (
        ("outbox", topics.outbox(Lane.TRANSACTIONAL)),
        ("outbox", topics.outbox(Lane.BULK)),
        ("suppressions", topics.suppressions),
        ("dead-letters", topics.dead_letters),
    ):
        values = [json.loads(r.value) for r in by_topic[topic] if r.value is not None]
        assert values
        for value in values:
            assert faults(current(folder), value) == []
        assert all(CONTENT_TYPE[0] not in dict(record.headers) for record in by_topic[topic])
    assert [r.value for r in by_topic[topics.suppressions]].count(None) == 1
    events = by_topic[topics.delivery_events]
    assert all(is_valid_event(record) for record in events)
    subscription = Subscription(
        bootstrap_servers=setup.bootstrap_servers, group=topics.prefix, topic=topics.delivery_events
    )
    async with Subscriber(subscription) as subscribed:
        read = [await anext(subscribed) for _ in events]
    assert {event.type.value: str(event.outbox_id) for event in read} == ids
    assert {event.type for event in read} == {kind for kind in EventType if kind.is_life_cycle}
    told = {event.type: event for event in read}
    assert told[EventType.SUPPRESSED].dedup_key == "order-1"
    assert told[EventType.SUPPRESSED].reason == "hard-bounce"
    assert {event.sender_domain for event in read} == {"example.com"}
    (expired,) = (r for r in events if b"email.expired" in r.value)
    assert dict(expired.headers)["traceparent"] == TRACEPARENT.encode()


async def test_cancelling_is_told_once_in_whatever_way_it_is_done(database: Database) -> None:
    """Of many rows in one statement, of an ambiguous row, and again of a row that is cancelled already."""
    rows = [await make_row(database) for _ in range(3)]
    rows.append(await make_row(database, "ambiguous"))
    ids = [row.id for row in rows]
    for _ in range(2):
        await execute(
            database, "UPDATE email_outbox SET state = 'cancelled' WHERE id = ANY ($1)", ids
        )
    told = await execute(
        database, "SELECT array_agg(payload -> 'data' ->> 'outbox_id') FROM outbox_feed"
    )
    assert sorted(told) == sorted(map(str, ids))
