"""The queues of the events stage: for installations that prefer pull, and for the dead letters of SNS subscriptions."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from streams.domain.errors import Unavailable
from streams.domain.sns import Reason
from streams.intake import Intake, Verdict
from streams.intake_watch import IntakeWatch
from streams.ports.events import MessageQueue, QueuedMessage
from streams.ports.kafka_writing import EventPublisher
from streams.refusals import Refusals, unforeseen
from streams.runtime import metrics
from streams.runtime.lifecycle import Health, run_loop

WAIT_S = 20
DRAIN_WAIT_S = 2
READERS = 4
# Less than the visibility timeout that a queue has by default (30 s): nobody else gets a message while we are at it.
MESSAGE_TIMEOUT_S = 20.0


class QueueKind(StrEnum):
    """What a queue is for; messages of both are checked and handled alike."""

    INTAKE = "intake"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A queue and its kind."""

    queue: MessageQueue
    kind: QueueKind


class QueueIntake:
    """Reads queues with the handler of the endpoint; the intake's settings have no age limit.

    A message is deleted after it was accepted, that is after Kafka acknowledged. One that is refused for good is set aside
    encrypted, with its reason, and then deleted, so that it neither loops nor vanishes. Temporary trouble of ours
    leaves it to its visibility timeout, and nothing more is received while Kafka is away.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        intake: Intake,
        publisher: EventPublisher,
        watch: IntakeWatch | None = None,
    ) -> None:
        self._sources = sources
        self._intake = intake
        self._publisher = publisher
        self._watch = watch
        self._refusals = Refusals(watch)
        self._readers: list[asyncio.Task[None]] = []
        for source in sources:
            for reason in Reason:
                metrics.EVENTS_QUEUE_MESSAGES.labels(kind=source.kind, reason=reason)

    async def run(self, health: Health, stopping: asyncio.Event) -> None:
        """Reads until stopping is set; each queue with four readers, so that at most forty of its messages are under way."""
        self._readers = [
            asyncio.create_task(self._read(source, number, health, stopping))
            for source in self._sources
            for number in range(READERS)
        ]
        await asyncio.gather(*self._readers)

    async def _read(
        self, source: Source, number: int, health: Health, stopping: asyncio.Event
    ) -> None:
        async def step() -> float:
            await self._publisher.start()
            messages = await _unless_stopped(source.queue.receive(wait_s=WAIT_S), stopping)
            failed = (await self._handle(source, messages)).failed
            if failed and failed == len(messages):  # one of several does not hold up the others
                raise Unavailable("messages could not be handled now and are left in their queue")
            return 0.0

        await run_loop(
            step, name=f"queue {source.queue.name} {number}", health=health, stopping=stopping
        )

    async def drain(self) -> Counter[Reason]:
        """Reads the queues until they give nothing more, and tells what became of the messages. Unavailable when Kafka or SQS is."""
        counts: Counter[Reason] = Counter()
        for source in self._sources:
            while True:
                await self._publisher.start()
                messages = await source.queue.receive(wait_s=DRAIN_WAIT_S)
                handled = await self._handle(source, messages)
                counts += handled.reasons
                if handled.failed == len(messages):  # none is left, or none can be handled now
                    break
        return counts

    async def _handle(self, source: Source, messages: Sequence[QueuedMessage]) -> "_Handled":
        verdicts = await asyncio.gather(*(self._verdict(message) for message in messages))
        if messages and source.kind is QueueKind.DEAD_LETTER and self._watch is not None:
            self._watch.trouble("dead-letter")
        reasons = Counter(verdict.reason for verdict in verdicts)
        for verdict in verdicts:
            self._refusals.tell(verdict)
        for reason, count in reasons.items():
            metrics.EVENTS_QUEUE_MESSAGES.labels(kind=source.kind, reason=reason).inc(count)
        done = [
            message.receipt
            for message, verdict in zip(messages, verdicts, strict=True)
            if verdict.reason.status != 503
        ]
        if done:
            await source.queue.delete(done)
        return _Handled(reasons=reasons, failed=len(messages) - len(done))

    async def _verdict(self, message: QueuedMessage) -> Verdict:
        now = datetime.now(UTC)
        try:
            async with asyncio.timeout(MESSAGE_TIMEOUT_S):
                verdict = await self._intake.receive(message.body, now=now)
                if 400 <= verdict.reason.status < 500:
                    await self._intake.keep(message.body, why=f"refused: {verdict.reason}", now=now)
        except TimeoutError:
            return Verdict(reason=Reason.OVERLOADED, detail="it was not done in time")
        except Unavailable as error:
            return Verdict(reason=Reason.PUBLISH_FAILED, detail=str(error))
        except Exception as error:  # noqa: BLE001 it costs one message, not those received with it
            return unforeseen(error, duty="queue")
        return verdict

    async def stop(self) -> None:
        """Waits for what is under way, then disconnects from SQS. Whoever runs it has set `stopping`."""
        await asyncio.gather(*self._readers, return_exceptions=True)
        for source in self._sources:
            await source.queue.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handled:
    """What became of some messages, and how many of them were left in their queue."""

    reasons: Counter[Reason]
    failed: int


async def _unless_stopped(
    receiving: Coroutine[None, None, Sequence[QueuedMessage]], stopping: asyncio.Event
) -> Sequence[QueuedMessage]:
    """What is received; nothing when it stops first. A message that was on its way comes again."""
    received, stopped = asyncio.create_task(receiving), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((received, stopped), return_when=asyncio.FIRST_COMPLETED)
        return received.result() if received.done() else ()
    finally:
        received.cancel()
        stopped.cancel()
        await asyncio.gather(received, stopped, return_exceptions=True)
