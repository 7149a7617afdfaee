"""A sender on real servers: a scripted SES, a hand that carries the feed to Kafka, and questions about the rows."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from streams.adapters.attachment_files import AttachmentFiles
from streams.adapters.attempt_journal import AttemptJournalFile
from streams.adapters.kafka_pointers import KafkaPointers
from streams.adapters.kafka_publisher import KafkaPublisher, UnreadableTopic
from streams.adapters.kafka_suppressions import KafkaSuppressions
from streams.adapters.outbox_store import PLANNER, OutboxStore
from streams.adapters.postgres import Database
from streams.adapters.schedule_store import ScheduleStore
from streams.adapters.ses import SesApi
from streams.adapters.suppression_announcer import SuppressionAnnouncer
from streams.domain.circuit import ProbeIntervals
from streams.domain.errors import Unavailable
from streams.domain.heartbeats import heartbeat_keys
from streams.domain.topics import Lane, Topics
from streams.ports.sender import Outbox
from streams.sender import Sender, SenderSettings
from streams.suppression_table import SuppressionTable

REGION = "eu-central-1"
# Half an hour of an outage, with probes at the intervals of production, is 18 s here.
PROBE_INTERVALS = ProbeIntervals(first_s=0.05, longest_s=2.4, unreachable_s=0.3, answer_s=5.0)
UNREADABLE_KEY = b"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
Answer = Callable[[web.Request, int], Awaitable[web.StreamResponse]]


async def until(condition: Callable[[], Awaitable[bool] | bool], seconds: float = 60.0) -> None:
    """Polls until it holds; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)


@dataclass
class StubSes:
    """Answers SendEmail by `answer` (request, number of the call from 0); remembers every request."""

    answer: Answer | None = None
    delay_s: float = 0.0
    port: int = 0
    calls: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    under_way: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0
    most_of_one_recipient: int = 0
    _runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(client_max_size=50 * 1024 * 1024)
        app.router.add_post("/v2/email/outbound-emails", self._handle)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        number = len(self.calls)
        body = json.loads(await request.read())
        self.calls.append(body)
        self.headers.append(dict(request.headers))
        self.times.append(time.monotonic())
        to = body["Destination"]["ToAddresses"][0]
        self.under_way[to] += 1
        self.most_at_once = max(self.most_at_once, self.under_way.total())
        self.most_of_one_recipient = max(self.most_of_one_recipient, self.under_way[to])
        try:
            await asyncio.sleep(self.delay_s)
            answer = self.answer or accept
            response = await answer(request, number)
            if isinstance(response, web.Response) and response.status == 200:
                self.accepted.append(tag(body, "outbox"))
            return response
        finally:
            self.under_way[to] -= 1


def tag(body: dict[str, Any], name: str) -> str:
    return str({t["Name"]: t["Value"] for t in body["EmailTags"]}[name])


async def accept(_: web.Request, number: int) -> web.Response:
    return web.json_response({"MessageId": f"m-{number}"})


def refusing(status: int, code: str, message: str, *, times: int = 10**9) -> Answer:
    """Refuses the first calls, accepts the others."""

    async def answer(request: web.Request, number: int) -> web.StreamResponse:
        if number >= times:
            return await accept(request, number)
        return web.json_response(
            {"message": message}, status=status, headers={"x-amzn-ErrorType": code}
        )

    return answer


async def hang_up(request: web.Request, _: int) -> web.StreamResponse:
    """Closes the connection after the whole request was read."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


class Hand:
    """Carries the feed to Kafka as the relay would, beats as the scheduler would, and moves what is due."""

    def __init__(self, bootstrap_servers: str, database: Database, topics: Topics) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._database = database
        self._topics = topics
        self._schedule = ScheduleStore(database)
        self._keys: list[str] = []
        self._sequence = 0
        self.beats = True
        self.moves_due = True
        self.carried: list[tuple[str, bytes, bytes | None]] = []
        self._producer: AIOKafkaProducer | None = None

    async def run(self, partitions: int = 3) -> None:
        self._keys = heartbeat_keys(partitions)
        self._producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap_servers, acks="all")
        await self._producer.start()
        beaten = 0.0
        try:
            while True:
                with suppress(Unavailable, KafkaError):
                    if self.beats and time.monotonic() - beaten > 0.5:
                        await self._beat()
                        beaten = time.monotonic()
                    if self.moves_due:
                        await self._schedule.take_due(1000)
                    await self.carry()
                await asyncio.sleep(0.03)
        finally:
            await self._producer.stop()

    async def send(
        self, topic: str, key: bytes, value: bytes | None, sequence: int | None = None
    ) -> None:
        assert self._producer is not None
        headers = [] if sequence is None else [("seq", str(sequence).encode())]
        await self._producer.send_and_wait(topic, value, key=key, headers=headers)

    async def _beat(self) -> None:
        now = datetime.now(UTC).isoformat()
        value = json.dumps({"heartbeat": now}).encode()
        for key in self._keys:
            await self.send(self._topics.suppressions, key.encode(), value)

    async def carry(self) -> None:
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                "SELECT * FROM outbox_feed WHERE seq > $1 ORDER BY seq", self._sequence
            )
        assert self._producer is not None
        sent = []
        for row in rows:
            value = None if row["payload"] is None else row["payload"].encode()
            topic = self._topics.of_aggregate(row["aggregatetype"])
            key, headers = row["aggregateid"].encode(), [("seq", str(row["seq"]).encode())]
            sent.append(await self._producer.send(topic, value, key=key, headers=headers))
            self.carried.append((topic, key, value))
        await asyncio.gather(*sent)
        if rows:
            self._sequence = rows[-1]["seq"]


@dataclass
class Rig:
    """Everything of one test."""

    bootstrap_servers: str
    dsn: str
    database: Database
    topics: Topics
    ses: StubSes
    hand: Hand

    def sender(
        self,
        *,
        outbox: Callable[[Database], Outbox] | None = None,
        max_in_flight: int = 32,
        lease_s: float = 20.0,
        read_timeout_s: float = 5.0,
        connect_timeout_s: float = 1.0,
        drain_s: float = 20.0,
        staleness_s: float = 30.0,
        intervals: ProbeIntervals = PROBE_INTERVALS,
        journal: Path | None = None,
        attachments: AttachmentFiles | None = None,
        bulk: bool = False,
    ) -> Sender:
        pool = Database(self.dsn, pool_size=5, timeout_s=5, name="sender", server_settings=PLANNER)
        store = outbox(pool) if outbox else OutboxStore(pool, max_attempts=5)
        publisher = KafkaPublisher(self.bootstrap_servers, client_id="sender-unreadable")
        return Sender(
            SenderSettings(
                configuration_set="mailstreams",
                max_in_flight=max_in_flight,
                lease_s=lease_s,
                call_s=read_timeout_s + connect_timeout_s,
                drain_s=drain_s,
                intervals=intervals,
                bulk=bulk,
            ),
            outbox=store,
            provider=SesApi(
                max_in_flight=max_in_flight,
                connect_timeout_s=connect_timeout_s,
                read_timeout_s=read_timeout_s,
            ),
            pointers=KafkaPointers(self.bootstrap_servers, self.topics, client_id="sender"),
            suppressions=SuppressionTable(
                KafkaSuppressions(
                    self.bootstrap_servers, self.topics.suppressions, client_id="sender"
                ),
                staleness_s=staleness_s,
            ),
            unreadable=UnreadableTopic(publisher, key=UNREADABLE_KEY, stage="sender"),
            announcer=SuppressionAnnouncer(pool),
            journal=None if journal is None else AttemptJournalFile(journal),
            attachments=attachments,
        )

    async def states(self) -> Counter[str]:
        async with self.database.connection() as connection:
            rows = await connection.fetch(
                "SELECT state, count(*) AS n FROM email_outbox GROUP BY state"
            )
        return Counter({row["state"]: row["n"] for row in rows})

    async def all_in(self, state: str, count: int, seconds: float = 90.0) -> None:
        """Waits until so many rows are in this state."""

        async def there() -> bool:
            return (await self.states())[state] == count

        try:
            await until(there, seconds)
        except AssertionError:
            raise AssertionError(f"{dict(await self.states())}, not {count} {state}") from None

    async def rate(self, per_second: float = 2000.0) -> None:
        async with self.database.connection() as connection:
            await connection.execute(
                "INSERT INTO send_rate (scope, per_second) VALUES ($1, $2) "
                "ON CONFLICT (scope) DO UPDATE SET per_second = excluded.per_second",
                REGION,
                per_second,
            )

    async def permits_granted(self) -> int:
        async with self.database.connection() as connection:
            return int(await connection.fetchval("SELECT granted FROM send_rate"))

    async def fill(self, count: int, **columns: Any) -> list[UUID]:
        """So many rows to recipients of their own, in one statement."""
        values = {"sender": "shop@example.com", "subject": "Hello", "text": "Hi"} | columns
        names = ", ".join(values)
        places = ", ".join(f"${n}" for n in range(2, len(values) + 2))
        async with self.database.connection() as connection:
            rows = await connection.fetch(
                f"INSERT INTO email_outbox (recipient, {names}) "
                f"SELECT 'user' || n || '@example.com', {places} FROM generate_series(1, $1::int) AS n RETURNING id",
                count,
                *values.values(),
            )
        return [UUID(str(row["id"])) for row in rows]

    async def uncommitted(self) -> int:
        """Pointers that the group has not committed."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap_servers,
            group_id=f"{self.topics.prefix}sender",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            partitions = [
                TopicPartition(self.topics.outbox(lane), n) for lane in Lane for n in range(3)
            ]
            ends = await consumer.end_offsets(partitions)
            missing = 0
            for partition in partitions:
                missing += ends[partition] - (await consumer.committed(partition) or 0)
            return missing
        finally:
            await consumer.stop()

    async def all_committed(self, seconds: float = 60.0) -> None:
        async def done() -> bool:
            return await self.uncommitted() == 0

        await until(done, seconds)

    def sent_twice(self) -> list[str]:
        """Outbox ids that the stub accepted more than once."""
        return [id_ for id_, times in Counter(self.ses.accepted).items() if times > 1]


@asynccontextmanager
async def running(*senders: Sender) -> AsyncIterator[Sequence[Sender]]:
    """The senders run while the block does; what one raised is raised here."""
    runs = []
    try:
        for sender in senders:
            await sender.start()
            runs.append(asyncio.create_task(sender.run()))
        yield senders
    finally:
        await asyncio.gather(*(sender.stop() for sender in senders))
        for run in runs:
            await asyncio.wait_for(run, 10)


async def ready(*senders: Sender, seconds: float = 60.0) -> None:
    await until(lambda: not any(sender.health.missing() for sender in senders), seconds)


async def stopped(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@asynccontextmanager
async def rig_on(
    bootstrap_servers: str,
    dsn: str,
    database: Database,
    topics: Topics,
    *,
    patch: pytest.MonkeyPatch | None = None,
) -> AsyncIterator[Rig]:
    """The rig on these servers, with a known rate, while the block runs.

    patch: the fixture's, where the test sets variables too: what two of them set is put back in the wrong order.
    """
    ses = StubSes()
    await ses.start()
    hand = Hand(bootstrap_servers, database, topics)
    made = Rig(
        bootstrap_servers=bootstrap_servers,
        dsn=dsn,
        database=database,
        topics=topics,
        ses=ses,
        hand=hand,
    )
    await made.rate()
    carrying = asyncio.create_task(hand.run())
    with nullcontext(patch) if patch else pytest.MonkeyPatch.context() as own:
        own.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        own.setenv("AWS_SECRET_ACCESS_KEY", "example")
        own.setenv("AWS_REGION", REGION)
        own.setenv("AWS_DEFAULT_REGION", REGION)
        own.setenv("AWS_ENDPOINT_URL_SESV2", ses.url)
        try:
            yield made
        finally:
            await ses.stop()
            await stopped(carrying)
