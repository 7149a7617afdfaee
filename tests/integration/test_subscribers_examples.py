"""The examples as anybody would start them, on a real Kafka."""

import asyncio
import importlib.util
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

import devservers
from streams.domain.addresses import RecipientKey
from streams.domain.delivery_events import (
    Bounce,
    BounceReason,
    BounceType,
    DeliveryEvent,
    EventId,
    EventType,
    encode,
)
from streams.domain.topics import Topics
from tests.conftest import PARTITIONS

pytestmark = pytest.mark.servers
ROOT = Path(__file__).parents[2]
HARD = Bounce(type=BounceType.PERMANENT, reason=BounceReason.MAILBOX_UNKNOWN)
SOFT = Bounce(type=BounceType.TRANSIENT, reason=BounceReason.MAILBOX_FULL)
_ids = itertools.count(1)


def event(
    kind: EventType,
    domain: str | None = "example.com",
    *,
    minute: int = 0,
    bounce: Bounce | None = None,
    simulator: bool = False,
) -> DeliveryEvent:
    number = next(_ids)
    return DeliveryEvent(
        id=EventId(f"{number:032x}"),
        type=kind,
        time=datetime(2026, 1, 15, 10, minute, 30, tzinfo=UTC),
        recipient_key=RecipientKey(f"{number:032x}"),
        tenant="shop",
        outbox_id=UUID(int=number, version=4),
        sender_domain=domain,
        bounce=bounce,
        raw={"mailbox_simulator": True} if simulator else {},
    )


async def put(
    servers: devservers.Servers, topic: str, *events: DeliveryEvent | bytes | None
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers.kafka.bootstrap_servers) as producer:
        for made in events:
            key = made.recipient_key.encode() if isinstance(made, DeliveryEvent) else b"x"
            value = encode(made) if isinstance(made, DeliveryEvent) else made
            await producer.send_and_wait(topic, value, key=key)


class Example:
    """A running example and the lines that it has printed."""

    def __init__(self, process: asyncio.subprocess.Process, lines: list[str]) -> None:
        self.process = process
        self.lines = lines

    async def printed(self, enough: Callable[[list[str]], bool]) -> list[str]:
        async with asyncio.timeout(60):
            while not enough(self.lines):
                assert self.process.returncode is None, "it ended"
                await asyncio.sleep(0.05)
        return self.lines

    async def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            return await self.process.wait()


@asynccontextmanager
async def running(name: str, cwd: Path, *args: str, **environment: str) -> AsyncIterator[Example]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "examples" / name), *args),
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    output, lines = process.stdout, []

    async def collect() -> None:
        async for line in output:
            lines.append(line.decode().rstrip())  # noqa: PERF401 one by one, as they come

    collecting = asyncio.create_task(collect())
    try:
        yield Example(process, lines)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await collecting


async def committed(servers: devservers.Servers, group: str, topic: str) -> int:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers.kafka.bootstrap_servers, group_id=group, enable_auto_commit=False
    )
    async with consumer:
        partitions = [TopicPartition(topic, n) for n in range(PARTITIONS)]
        return sum([await consumer.committed(p) or 0 for p in partitions])


async def committed_all(servers: devservers.Servers, group: str, topic: str, position: int) -> None:
    """Returns once so many records of the topic are committed."""
    async with asyncio.timeout(60):
        while await committed(servers, group, topic) < position:  # noqa: ASYNC110 another process
            await asyncio.sleep(0.1)


async def test_the_plain_example_prints_each_bounce_once_and_goes_on_after_a_restart(
    servers: devservers.Servers, topics: Topics, tmp_path: Path
) -> None:
    topic, group = topics.delivery_events, f"{topics.prefix}bounces"
    options = ("--brokers", servers.kafka.bootstrap_servers, "--group", group, "--topic", topic)
    first, second = (event(EventType.BOUNCED, bounce=HARD) for _ in range(2))
    await put(servers, topic, event(EventType.DELIVERED), first, b"no event", None, b"[]", first)
    async with running("plain_aiokafka.py", tmp_path, *options) as example:
        await example.printed(lambda lines: len(lines) >= 1)
        await put(servers, topic, second, first)
        lines = await example.printed(lambda lines: len(lines) >= 2)
        await committed_all(servers, group, topic, 8)  # the last repetition may come after the line
        assert await example.end() == 0
    assert [line.split()[3] for line in lines] == [first.recipient_key, second.recipient_key]
    assert lines[0].split()[1:3] == ["shop", str(first.outbox_id)]
    assert lines[0].split()[4:] == ["permanent", "mailbox-unknown"]
    third = event(EventType.BOUNCED, bounce=SOFT)
    await put(servers, topic, third)
    async with running("plain_aiokafka.py", tmp_path, *options) as example:
        lines = await example.printed(lambda lines: len(lines) >= 1)
        assert await example.end() == 0
    assert [line.split()[3] for line in lines] == [third.recipient_key]
    assert await committed(servers, group, topic) == 9


@pytest.mark.parametrize(
    ("brokers", "said"),
    [
        (None, "there is no topic nope at "),
        ("127.0.0.1:1", "no broker can be reached at 127.0.0.1:1: KafkaConnectionError"),
    ],
)
async def test_the_plain_example_ends_with_one_sentence_without_a_broker_or_its_topic(
    servers: devservers.Servers, brokers: str | None, said: str
) -> None:
    at = brokers or servers.kafka.bootstrap_servers
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "examples" / "plain_aiokafka.py")),
        *("--brokers", at, "--topic", "nope", "--group", "nobody"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    lines = output.decode().splitlines()
    assert process.returncode == 1, lines
    assert len(lines) == 1, lines
    assert lines[0].startswith(said)


@pytest.fixture
async def application(servers: devservers.Servers) -> AsyncIterator[str]:
    """A name for Faust's application, whose topics are removed afterwards."""
    name = f"bounce-rate-{os.getpid()}-{next(_ids)}"
    yield name
    admin = AIOKafkaAdminClient(bootstrap_servers=servers.kafka.bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_topics([t for t in await admin.list_topics() if t.startswith(name)])
    finally:
        await admin.close()


@pytest.mark.skipif(importlib.util.find_spec("faust") is None, reason="needs the extra faust")
async def test_the_faust_example_counts_the_bounces_of_each_domain_by_minute(
    servers: devservers.Servers, topics: Topics, application: str, tmp_path: Path
) -> None:
    topic = topics.delivery_events
    accepted = [event(EventType.ACCEPTED) for _ in range(10)]
    accepted += [event(EventType.ACCEPTED, "example.org") for _ in range(4)]
    accepted += [event(EventType.ACCEPTED, minute=1) for _ in range(5)]
    hard = [event(EventType.BOUNCED, bounce=HARD) for _ in range(2)]
    others: list[DeliveryEvent | bytes | None] = [
        event(EventType.BOUNCED, bounce=SOFT),
        event(EventType.BOUNCED, bounce=HARD, simulator=True),
        event(EventType.BOUNCED, None, bounce=HARD),
        event(EventType.COMPLAINED),
        b"no event",
        None,
        b'{"id": 1}',
    ]
    await put(servers, topic, *accepted, *others)
    environment = {
        "BROKERS": servers.kafka.bootstrap_servers,
        "TOPIC": topic,
        "PARTITIONS": str(PARTITIONS),
        "APP": application,
    }
    script = ("faust_bounce_rate.py", tmp_path, "worker", "-l", "warn")
    async with running(*script, **environment) as example:  # type: ignore[arg-type]
        await example.printed(
            lambda lines: (
                {
                    "10:00 example.com 0 of 10 bounced: 0.0%",
                    "10:00 example.org 0 of 4 bounced: 0.0%",
                }
                <= set(lines)
            )
        )
        late = event(EventType.BOUNCED, bounce=HARD, minute=1)
        await put(servers, topic, *hard, *accepted, *hard, late)
        lines = await example.printed(
            lambda lines: any(line.startswith("10:01 example.com 1") for line in lines)
        )
        lines = await example.printed(lambda lines: any("2 of 10" in line for line in lines))
        await example.end()
    assert not os.listdir(tmp_path), "it leaves nothing where it was started"
    assert "10:00 example.com 2 of 10 bounced: 20.0%" in lines
    assert "10:01 example.com 1 of 5 bounced: 20.0%" in lines
    counted = [line.split() for line in lines if " bounced: " in line]
    assert max(int(words[2]) for words in counted) == 2
    assert max(int(words[4]) for words in counted) == 10


@pytest.mark.skipif(importlib.util.find_spec("faust") is None, reason="needs the extra faust")
async def test_the_models_of_faust_are_the_contract(tmp_path: Path) -> None:
    """In a process of its own: importing Faust warns, and warnings are errors here."""
    script = tmp_path / "models.py"
    script.write_text(MODELS)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", str(script), str(ROOT / "schemas" / "delivery-events")),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert (process.returncode, output.decode().strip()) == (0, "the same")


MODELS = """
import dataclasses, json, sys, typing
from pathlib import Path
from streams.domain import delivery_events as domain
from streams.subscribers import faust_models as models

schema = json.loads((Path(sys.argv[1]) / "v1.json").read_text())
data = schema["$defs"]["data"]
for model, members in (
    (models.DeliveryEvent, schema["properties"]),
    (models.Data, data["properties"]),
    (models.Bounce, data["$defs"]["bounce"]["properties"]),
    (models.Complaint, data["$defs"]["complaint"]["properties"]),
):
    assert typing.get_type_hints(model).keys() >= members.keys(), model
    assert set(model._options.fields) == set(members), (model, set(model._options.fields) ^ set(members))
for path in (Path(sys.argv[1]) / "examples").glob("*.json"):
    value = path.read_bytes()
    body, event = json.loads(value), models.read(value)
    assert event.type == body["type"] and event.id == body["id"], path
    assert event.time.isoformat().replace("+00:00", "Z")[:19] == body["time"][:19], path
    for name in data["properties"]:
        wanted, found = body["data"].get(name), getattr(event.data, name)
        if name in ("bounce", "complaint") and wanted is not None:
            assert {k: getattr(found, k) for k in wanted} == wanted, (path, name)
        else:
            assert found == wanted, (path, name)
refused = 0
for path in (Path(sys.argv[1]) / "examples" / "invalid").glob("*.json"):
    refused += models.read(path.read_bytes()) is None
assert refused >= 8, refused
assert models.read(None) is models.read(b"[1]") is models.read(b"{") is None
print("the same")
"""
