"""Queues: deleted after it is kept, never before; what is refused for good is set aside; trouble of ours leaves it there."""

import asyncio
import json
import socket
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from streams import cli
from streams.adapters.sqs import SqsQueue
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.sns import Reason
from streams.intake import Intake, Verdict
from streams.ports.events import QueuedMessage
from streams.queue_intake import QueueIntake, QueueKind, Source
from streams.runtime.lifecycle import Health
from streams.runtime.settings import load
from tests.events_rig import Confirmer, Publisher, Rig, Unreadable, eventually
from tests.sns_signing import (
    certificate,
    confirmation,
    delivery,
    notification,
    ses_event,
    signed,
    timestamp,
)

NOW = datetime.now(UTC)
OLD = timestamp(NOW - timedelta(days=13))
GOOD = signed(notification(ses_event("Delivery", delivery()), Timestamp=OLD))
FORGED = signed(notification(ses_event("Delivery", delivery())), key="attacker")


@dataclass
class Queue:
    """Hides what was received until return_hidden()."""

    waiting: deque[QueuedMessage] = field(default_factory=deque)
    hidden: dict[str, QueuedMessage] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    most_hidden: int = 0
    keeps: bool = False
    stopped: bool = False
    name: str = "ses-events"

    def put(self, *bodies: bytes) -> None:
        for body in bodies:
            receipt = str(len(self.waiting) + len(self.hidden) + len(self.deleted))
            self.waiting.append(QueuedMessage(body=body, receipt=receipt))

    async def receive(self, *, wait_s: int) -> Sequence[QueuedMessage]:
        if not self.waiting and wait_s > 5:
            await asyncio.sleep(wait_s)
        taken = [self.waiting.popleft() for _ in range(min(10, len(self.waiting)))]
        self.hidden |= {message.receipt: message for message in taken}
        self.most_hidden = max(self.most_hidden, len(self.hidden))
        return taken

    async def delete(self, receipts: Sequence[str]) -> None:
        if self.keeps:
            raise Unavailable("SQS did not delete")
        self.deleted += receipts
        for receipt in receipts:
            del self.hidden[receipt]

    def return_hidden(self) -> None:
        self.waiting += self.hidden.values()
        self.hidden.clear()

    async def stop(self) -> None:
        self.stopped = True


def queue_intake(rig: Rig, *queues: Queue, kind: QueueKind = QueueKind.DEAD_LETTER) -> QueueIntake:
    rig.max_age = None
    rig.certificates.pem = certificate(now=NOW)
    sources = [Source(queue=queue, kind=kind) for queue in queues]
    return QueueIntake(sources, rig.intake(), rig.publisher)


async def drained(rig: Rig, queue: Queue) -> Counter[Reason]:
    return await queue_intake(rig, queue).drain()


def counted(kind: str, reason: str) -> float:
    labels = {"kind": kind, "reason": reason}
    name = "mailstreams_events_queue_messages_total"
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_what_is_accepted_is_deleted_whatever_its_age() -> None:
    rig, queue = Rig(), Queue()
    queue.put(*[GOOD] * 25)
    before = counted("dead-letter", "accepted")
    assert await drained(rig, queue) == {Reason.ACCEPTED: 25}
    assert len(queue.deleted) == len(rig.publisher.records) == 25
    assert counted("dead-letter", "accepted") == before + 25


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (FORGED, Reason.BAD_SIGNATURE),
        (b"nonsense", Reason.MALFORMED),
        (json.dumps(ses_event("Delivery", delivery())).encode(), Reason.RAW_DELIVERY),
        (signed(confirmation(Timestamp=OLD)), Reason.STALE),
        (signed(notification(TopicArn="arn:aws:sns:eu-central-1:1:x")), Reason.UNKNOWN_TOPIC),
    ],
)
async def test_what_is_refused_for_good_is_set_aside_with_its_reason_and_deleted(
    body: bytes, reason: Reason
) -> None:
    rig, queue = Rig(), Queue()
    queue.put(body)
    assert await drained(rig, queue) == {reason: 1}
    assert [(record.value, why) for record, why in rig.unreadable.kept] == [
        (body, f"refused: {reason}")
    ]
    assert queue.deleted == ["0"]
    assert not rig.publisher.records
    assert not rig.confirmer.confirmed


async def test_what_cannot_be_set_aside_stays_in_its_queue() -> None:
    rig, queue = Rig(unreadable=Unreadable(down=True)), Queue()
    queue.put(FORGED, b"nonsense")
    assert await drained(rig, queue) == {Reason.PUBLISH_FAILED: 2}
    assert not queue.deleted


async def test_trouble_of_ours_leaves_the_message_in_its_queue() -> None:
    rig, queue = Rig(confirmer=Confirmer(down=True)), Queue()
    queue.put(signed(confirmation(Timestamp=timestamp(NOW))), GOOD)
    assert await drained(rig, queue) == {Reason.CONFIRMATION_FAILED: 1, Reason.ACCEPTED: 1}
    assert queue.deleted == ["1"]


async def test_an_error_of_ours_costs_one_message_and_quotes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    receive = Intake.receive

    async def broken(self: Intake, body: bytes, **given: Any) -> Verdict:
        if body.startswith(b"user1"):
            raise KeyError(body)
        return await receive(self, body, **given)

    monkeypatch.setattr(Intake, "receive", broken)
    rig, queue = Rig(), Queue()
    queue.put(b"user1@example.com", GOOD)
    assert await drained(rig, queue) == {Reason.OVERLOADED: 1, Reason.ACCEPTED: 1}
    assert queue.deleted == ["1"]
    assert "user1" not in str([record.__dict__ for record in caplog.records])


async def test_nothing_is_received_while_kafka_is_away() -> None:
    rig, queue = Rig(publisher=Publisher(down=True)), Queue()
    queue.put(GOOD)
    with pytest.raises(Unavailable):
        await drained(rig, queue)
    assert not queue.hidden


async def test_a_failed_deletion_repeats_the_same_event() -> None:
    rig, queue = Rig(), Queue(keeps=True)
    queue.put(GOOD)
    with pytest.raises(Unavailable):
        await drained(rig, queue)
    queue.keeps = False
    queue.return_hidden()
    await drained(rig, queue)
    assert len({event.id for event in rig.publisher.events()}) == 1


async def test_readers_are_bounded_and_stop_at_once() -> None:
    rig, queue, other = Rig(), Queue(), Queue(name="other")
    queue.put(*[GOOD] * 200)
    other.put(FORGED)
    health, stopping = Health(stage="events"), asyncio.Event()
    queues = queue_intake(rig, queue, other, kind=QueueKind.INTAKE)
    running = asyncio.create_task(queues.run(health, stopping))
    await eventually(lambda: len(queue.deleted) == 200 and len(other.deleted) == 1)
    assert queue.most_hidden <= 40
    stopping.set()
    await asyncio.wait_for(queues.stop(), 2)
    await running
    assert queue.stopped
    assert other.stopped


async def test_an_outage_of_kafka_is_readiness_and_ends_by_itself() -> None:
    rig, queue = Rig(publisher=Publisher(down=True)), Queue()
    queue.put(GOOD)
    health, stopping = Health(stage="events"), asyncio.Event()
    queues = queue_intake(rig, queue)
    running = asyncio.create_task(queues.run(health, stopping))
    await eventually(lambda: "queue ses-events 0" in health.missing())
    rig.publisher.down = False
    await eventually(lambda: len(queue.deleted) == 1)
    stopping.set()
    await running


async def test_a_message_under_way_ends_before_the_connection() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    class Waiting(Publisher):
        async def publish(self, _records: object) -> None:
            entered.set()
            await leave.wait()

    rig, queue = Rig(publisher=Waiting()), Queue()
    queue.put(GOOD)
    stopping = asyncio.Event()
    queues = queue_intake(rig, queue)
    running = asyncio.create_task(queues.run(Health(stage="events"), stopping))
    await entered.wait()
    stopping.set()
    ending = asyncio.create_task(queues.stop())
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(ending), 0.05)
    assert not queue.stopped
    leave.set()
    await ending
    await running
    assert queue.deleted == ["0"]


def test_the_command_knows_which_reasons_are_trouble_of_ours() -> None:
    assert set(cli.TEMPORARY) == {reason for reason in Reason if reason.status == 503}


@pytest.mark.parametrize(
    ("url", "region"),
    [
        ("https://sqs.eu-central-1.amazonaws.com/111122223333/ses-events", "eu-central-1"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/111122223333/ses-events", "cn-north-1"),
        ("http://127.0.0.1:8600/111122223333/ses-events", "us-east-1"),
    ],
)
def test_the_region_is_that_of_the_url_else_of_the_environment(
    url: str, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    queue = SqsQueue(url)
    assert (queue.name, queue.region) == ("ses-events", region)


@pytest.mark.parametrize(
    "url", ["ses-events", "https://", "https://host", "ftp://host/x", "http://[x/y"]
)
def test_a_url_that_is_none_of_a_queue_is_named(url: str) -> None:
    with pytest.raises(Misconfigured, match="not the URL of an SQS queue"):
        SqsQueue(url)


async def test_an_endpoint_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:  # bound, and nobody listens
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test")):
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", endpoint)
        queue = SqsQueue("https://sqs.eu-central-1.amazonaws.com/111122223333/ses-events")
        with pytest.raises(Unavailable, match=f"at {endpoint} fails with EndpointConnection"):
            await queue.receive(wait_s=0)
        await queue.stop()


def test_a_queue_is_for_one_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SQS_QUEUES", "SQS_DEAD_LETTER_QUEUES"):
        monkeypatch.setenv(f"MAILSTREAMS_{name}", "http://127.0.0.1/1/x,")
    with pytest.raises(Misconfigured, match="sqs_dead_letter_queues"):
        load()
