"""Bad input gets one clear reason; its neighbours go out."""

import asyncio
import json
from urllib.error import HTTPError

import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import devservers
from demo.system import System, get, post
from streams.domain.topics import Lane, Topics, unreadable
from tests.acceptance.conftest import Connection, enqueue, state_of, until_state

pytestmark = pytest.mark.servers


def test_an_unknown_template_is_dead_lettered_and_its_neighbours_go_out(
    system: System, application: Connection
) -> None:
    with application.transaction():
        before = enqueue(application, "before@example.com")
        broken = enqueue(application, "broken@example.com", template="no-such-template")
        after = enqueue(application, "after@example.com")
    for good in (before, after):
        until_state(system, application, good, "submitted")
    until_state(system, application, broken, "failed")
    reason = state_of(application, broken)[1]
    assert reason is not None
    assert "no-such-template" in reason
    letter = application.execute(
        "SELECT reason FROM dead_letter WHERE outbox_id = %s", (broken,)
    ).fetchone()
    assert letter is not None
    assert "no-such-template" in str(letter[0])


def test_a_message_that_ses_would_refuse_is_refused_by_the_insert_without_its_address(
    system: System, application: Connection
) -> None:
    headers = json.dumps({"Subject": "twice"})
    with pytest.raises(psycopg.errors.CheckViolation, match="headers") as refused:
        enqueue(application, "refused@example.com", headers=headers)
    assert "refused@example.com" not in str(refused.value)
    good = enqueue(application, "fine@example.com")
    until_state(system, application, good, "submitted")


@pytest.mark.parametrize(
    "value", [b"not json", b"{}", b'{"id": 3}', b"\xff\xfe", b'{"id": "not-a-uuid", "tenant": "a"}']
)
def test_an_unreadable_pointer_is_set_aside_and_the_others_go_on(
    system: System,
    application: Connection,
    topics_of: Topics,
    servers: devservers.Servers,
    value: bytes,
) -> None:
    topic = topics_of.outbox(Lane.TRANSACTIONAL)
    found = asyncio.run(_set_aside(servers.kafka.bootstrap_servers, topic, value))
    assert found["topic"] == topic
    assert found["stage"] == "sender"
    assert found["reason"]
    until_state(system, application, enqueue(application, "next@example.com"), "submitted")


async def _set_aside(bootstrap_servers: str, topic: str, value: bytes) -> dict[str, str]:
    """Writes the value to the topic and waits for it in <topic>.unreadable; its headers."""
    consumer = AIOKafkaConsumer(
        unreadable(topic), bootstrap_servers=bootstrap_servers, auto_offset_reset="latest"
    )
    await consumer.start()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers)
    await producer.start()
    try:
        # "latest" is looked up now, so that this test sees its own record only.
        await consumer.seek_to_end()
        for partition in consumer.assignment():
            await consumer.position(partition)
        sent = await producer.send_and_wait(topic, value, key=b"0" * 32)
        async with asyncio.timeout(30):
            async for record in consumer:
                headers = {name: text.decode() for name, text in record.headers}
                if headers["offset"] == str(sent.offset) and headers["partition"] == str(
                    sent.partition
                ):
                    assert record.value is not None
                    assert value not in record.value
                    return headers
        raise AssertionError
    finally:
        await producer.stop()
        await consumer.stop()


def test_an_unreadable_event_is_set_aside(
    system: System, application: Connection, topics_of: Topics, servers: devservers.Servers
) -> None:
    found = asyncio.run(
        _set_aside(
            servers.kafka.bootstrap_servers, topics_of.delivery_events, b'{"specversion": "1.0"}'
        )
    )
    assert found["stage"] == "recipients"
    outbox_id = enqueue(application, "event-after@example.com")
    system.wait_for(
        lambda: (
            application.execute(
                "SELECT 1 FROM recipient_outcome WHERE outbox_id = %s AND delivered_at IS NOT NULL",
                (outbox_id,),
            ).fetchone()
            is not None
        ),
        "the delivery to be folded",
    )


def test_a_forged_event_is_refused(system: System) -> None:
    body = {"Type": "Notification", "TopicArn": "arn:aws:sns:eu-central-1:999988887777:other"}
    with pytest.raises(HTTPError) as refused:
        post(system.sns_endpoint, body)
    assert refused.value.code in (400, 403)
    refused.value.close()


def test_every_stage_tells_health_and_metrics(system: System) -> None:
    for stage in ("relay", "sender", "events", "recipients", "scheduler"):
        assert get(system.url(stage, "/health/live"))[0] == 200
        assert get(system.url(stage, "/health/ready"))[0] == 200
        status, body = get(system.url(stage, "/metrics"))
        assert status == 200
        assert f"mailstreams_{stage}_".encode() in body


def test_logs_are_json_without_addresses(system: System, application: Connection) -> None:
    until_state(
        system, application, enqueue(application, "Marked-Recipient@example.com"), "submitted"
    )
    for stage in ("relay", "sender", "events", "recipients", "scheduler"):
        text = (system.directory / f"{stage}.log").read_text(encoding="utf-8")
        assert "marked-recipient" not in text.lower()
        for line in text.splitlines():
            assert json.loads(line)["action"]


def test_the_outbox_row_of_somebody_elses_transaction_is_not_sent_before_its_commit(
    system: System, application: Connection
) -> None:
    with psycopg.connect(system.dsn) as slow:
        uncommitted = enqueue(slow, "uncommitted@example.com")
        until_state(system, application, enqueue(application, "quick@example.com"), "submitted")
        slow.rollback()
    assert not [c for c in system.ledger() if c["outbox"] == uncommitted]
