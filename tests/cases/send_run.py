"""One ses_send variant on fresh state: its stages, its fake SES, and what is done with them."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import asyncpg

from streams.enqueue import NewEmail, enqueue
from tests.cases.differences import Difference
from tests.cases.envelopes import Urls
from tests.cases.event_runner import post, wrapped
from tests.cases.loading import Variant
from tests.cases.placeholders import filled, filling
from tests.cases.recipients_state import TENANT
from tests.cases.records import published
from tests.cases.send_account import account
from tests.cases.send_found import Found
from tests.cases.send_processes import SenderProcess
from tests.cases.send_scene import (
    READY_WITHIN_S,
    Place,
    SendScene,
    Stages,
    needs_processes,
    place,
)
from tests.cases.send_state import SendState, settled
from tests.cases.ses_network import Route
from tests.cases.ses_script import Call, Script
from tests.cases.ses_server import FakeSes
from tests.cases.topic_reader import TopicReader

LOOK_EVERY_S: Final = 0.1
# Nothing should follow once every row is settled; whoever calls again does so within this.
QUIET_S: Final = 1.5
# A busy machine takes so long at most from an insert to its call, and from the end of a call to its outcome.
BEGINS_WITHIN_S: Final = 60.0
WRITTEN_WITHIN_S: Final = 30.0
LEASE_S: Final = 45.0
MANY_PARTITIONS: Final = 6


@dataclass(slots=True, kw_only=True)
class Run:
    """One variant on fresh state."""

    variant: Variant
    place: Place
    fake: FakeSes
    stages: Stages
    state: SendState
    route: Route
    broken_port: int
    senders: list[SenderProcess] = field(default_factory=list)
    replacing: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def script(self) -> Script:
        return self.fake.script

    # Stages and processes ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self.stages.start(("scheduler", "relay"), self.route)
        if needs_processes(self.variant):
            for instance in range(self.variant.get("senders", 1)):
                await self._start_process(instance)
            await self._until(self._processes_are_ready, "the senders are not ready")
            return
        port = await self._in_thread(self.fake.open)
        way = Route(port_for_call=self._async_gate(port), servers=self.place.scene.outside)
        [sender] = await self.stages.start(("sender",), way)
        await self._until(lambda: not sender.health.missing(), "the sender is not ready")
        self.route.refused = way.refused

    async def _start_process(self, instance: int) -> None:
        port = await self._in_thread(self.fake.open)
        gate = await self._in_thread(lambda: self.fake.open_gate(self._gate(port)))
        process = await SenderProcess.start(
            self.place, number=len(self.senders), instance=instance, port=port, gate=gate
        )
        self.senders.append(process)

    async def _processes_are_ready(self) -> bool:
        return all([await process.is_ready() for process in self.senders])

    def _gate(self, port: int) -> Callable[[], int | None]:
        """Where the next connection goes."""

        def port_for_call() -> int | None:
            failed = self.script.connection_fault()
            if failed is None:
                return port
            return None if failed.answer["fault"] == "refuse-connection" else self.broken_port

        return port_for_call

    def _async_gate(self, port: int) -> Callable[[], Any]:
        gate = self._gate(port)

        async def port_for_call() -> int | None:
            return gate()

        return port_for_call

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await self.place.scene.thread.run(work())

    async def _until(self, condition: Callable[[], Any], otherwise: str) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(otherwise)
            await asyncio.sleep(0.05)

    def disturb(self) -> Callable[[int, int], None]:
        """What happens before the answer of an accepted call, in the fake's thread."""
        wanted, loop = self.variant.get("disturb"), asyncio.get_running_loop()

        def on_accepted(count: int, port: int) -> None:
            if wanted is None or count != wanted["after_accepted"]:
                return
            [caller] = [process for process in self.senders if process.port == port]
            caller.signal(getattr(signal, wanted["signal"]))
            loop.call_soon_threadsafe(self._replace, caller.instance)

        return on_accepted

    def _replace(self, instance: int) -> None:
        self.replacing.append(asyncio.create_task(self._start_process(instance)))

    async def stop(self) -> None:
        try:
            await asyncio.gather(*self.replacing)
            await asyncio.gather(*(process.stop() for process in self.senders))
        finally:
            await self.stages.stop()

    # What is done -----------------------------------------------------------------------------------------------------

    async def insert(self) -> None:
        """All rows in one transaction, as an application does it."""
        await asyncio.sleep(self.variant.get("idle_s", 0.0))
        connection = await asyncpg.connect(self.place.dsn)
        try:
            async with connection.transaction():
                for email in emails(self.variant):
                    await enqueue(connection, email)
        finally:
            await connection.close()

    async def observe(self) -> Found:
        """Until every row is settled and nothing follows, or the variant's time is over. Where a call may come it counts from
        the first one, since how long it takes to that is a matter of the machine."""
        lasting = self.variant.get("observe_s", 5)
        begins = BEGINS_WITHIN_S if self.script.stub else 0.0
        quiet_since: float | None = None
        calls = 0
        latest = time.monotonic() + lasting + begins
        while (now := time.monotonic()) < latest:
            if self.script.calls:
                latest = min(latest, self.script.calls[0].arrived + lasting)
            rows = await self.state.look()
            if not settled(rows) or len(self.script.calls) > calls:
                quiet_since, calls = None, len(self.script.calls)
            elif quiet_since is None:
                quiet_since = now
            elif now - quiet_since > QUIET_S:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        return await self._found()

    async def _found(self) -> Found:
        """What is so now; outcomes of calls that have ended are waited for, later calls do not count."""
        calls = list(self.script.calls)
        deadline = time.monotonic() + WRITTEN_WITHIN_S
        while True:
            found = await self.found(calls)
            known = {attempt.id for attempt in found.attempts}
            ended = [c for c in calls if c.attempt is not None and c.ended is not None]
            if time.monotonic() > deadline or self.script.beyond:
                return found
            if all(c.attempt in known for c in ended) or "disturb" in self.variant:
                return found
            await asyncio.sleep(LOOK_EVERY_S)

    async def found(self, calls: Sequence[Call]) -> Found:
        rows = await self.state.look()
        return Found(
            rows=rows,
            attempts=await self.state.attempts(),
            calls=calls,
            pauses=set(self.state.pauses),
            leases=dict(self.state.leases),
            tries=await self.state.tries(rows[0].id) if rows else [],
            refused=None,
            dead_letters=await self.state.reasons(),
        )

    async def deliver(self, found: Found) -> list[Difference]:
        """Hands the deliveries over through the endpoint; returns once the fold has taken them."""
        [endpoint, recipients_stage] = await self.stages.start(("events", "recipients"), self.route)
        assert recipients_stage.name == "recipients"
        given = {f"attempt-{n}": id_ for n, id_ in enumerate(found.attempt_ids(), 1)}
        given["provider-message-id"] = self.script.last_message_id or "none"
        fill = filling(datetime.now(UTC), given)
        address: str = endpoint.address  # type: ignore[attr-defined]
        answers: list[str] = []
        urls, now = Urls(), datetime.now(UTC)
        for delivery in self.variant["deliveries"]:
            body = wrapped(delivery, fill, now, urls)
            slots = asyncio.Semaphore(delivery.get("concurrent", 1))
            posts = (post(address, body, slots) for _ in range(delivery.get("times", 1)))
            answers += await asyncio.gather(*posts)
        await self._folded()
        await asyncio.sleep(QUIET_S)
        bad = [answer for answer in answers if answer != "200"]
        return [Difference(key="answers", expected="200", found=bad)] if bad else []

    async def _folded(self) -> None:
        topics, admin = self.place.topics, self.place.scene.admin
        reader = self._reader()
        await reader.start()
        try:
            ends = await reader.mark()
        finally:
            await reader.stop()

        async def is_folded() -> bool:
            committed = await admin.list_consumer_group_offsets(f"{topics.prefix}recipients")
            known = {partition: offset.offset for partition, offset in committed.items()}
            return all(end == 0 or known.get(p, -1) >= end for p, end in ends.items())

        await self._until(is_folded, "the fold did not take the deliveries")

    def _reader(self) -> TopicReader:
        settings = self.place.settings
        return TopicReader(
            settings.kafka_bootstrap_servers,
            {self.place.topics.delivery_events: settings.partitions},
        )

    async def events(self) -> list[str]:
        """The types of what is in the topic of events."""
        reader = self._reader()
        await reader.start()
        try:
            ends = await reader.mark()
            records = await reader.between(dict.fromkeys(ends, 0), ends)
        finally:
            await reader.stop()
        return [e.type for e in published(records[self.place.topics.delivery_events])]

    @property
    def lines(self) -> list[str]:
        return [*self.place.lines, *(line for process in self.senders for line in process.lines)]

    @property
    def dead(self) -> list[str]:
        """What should still run and does not."""
        processes = [
            f"sender {process.number}"
            for process in self.senders
            if process.process.returncode is not None and not process.is_ended_by_us
        ]
        return [*self.stages.ended, *processes]


def emails(variant: Variant) -> list[NewEmail]:
    """What the application inserts."""
    row = filled(variant["row"], filling(datetime.now(UTC), {}))
    return [
        NewEmail(**row | {"recipient": recipient}, tenant=TENANT)
        for recipient in recipients(row["recipient"], variant.get("rows", 1))
    ]


def recipients(first: str, count: int) -> list[str]:
    """So many addresses, each of its own."""
    local, at, domain = first.rpartition("@")
    return [first, *(f"{local}-{n}{at}{domain}" for n in range(2, count + 1))]


@asynccontextmanager
async def running(scene: SendScene, variant: Variant) -> AsyncIterator[Run]:
    """The variant with everything started, and nothing inserted yet."""
    async with AsyncExitStack() as stack:
        partitions = MANY_PARTITIONS if needs_processes(variant) else 1
        made = await stack.enter_async_context(place(scene, partitions=partitions, lease_s=LEASE_S))
        script = Script(
            stub=variant["stub"],
            cycle=variant.get("cycle", False),
            enforced=variant.get("limits", {}).get("enforced"),
        )
        fake = FakeSes(
            script=script, context=scene.server_context(), account=lambda: account(variant, script)
        )
        stack.push_async_callback(lambda: scene.thread.run(fake.close()))
        port = await scene.thread.run(fake.open())

        async def port_for_account() -> int | None:
            return port

        run = Run(
            variant=variant,
            place=made,
            fake=fake,
            stages=Stages(place=made),
            state=SendState(database=made.database),
            route=Route(port_for_call=port_for_account, servers=scene.outside),
            broken_port=await scene.thread.run(fake.open_broken()),
        )
        fake.on_accepted = run.disturb()
        stack.push_async_callback(run.stop)
        await run.start()
        yield run
