"""Runs a ses_event variant in several orders of arrival: through the endpoint, Kafka and the fold."""

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient

from streams.adapters.kafka_positions import committed_positions
from tests.cases import event_checks, http_client, observation
from tests.cases.differences import Difference, report
from tests.cases.envelopes import Urls, genuine
from tests.cases.literal_times import with_recent_times
from tests.cases.loading import Group, Variant
from tests.cases.placeholders import filled, filling
from tests.cases.recipients_state import RecipientsState
from tests.cases.records import published, quarantined
from tests.cases.scene import KEY, Running, Scene
from tests.cases.topic_reader import Mark
from tests.cases.words import fits
from tests.integration.outbox_rows import Row

FOLDED_WITHIN_S: Final = 60.0
MATCHED_WITHIN_S: Final = 5.0
SEED: Final = 20260115


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """In which order the deliveries arrive. one_by_one: each is folded before the next one comes. goes_on: on what the order
    before it left, else on fresh state."""

    name: str
    arrivals: tuple[int, ...]
    one_by_one: bool = False
    goes_on: bool = False


def orders(count: int) -> list[Order]:
    """As given, all of it once more, reversed, and shuffled with each twice; what would be the same again is left out."""
    given = tuple(range(count))
    found = [
        Order(name="as given", arrivals=given, one_by_one=True),
        Order(name="each twice", arrivals=given, goes_on=True),
    ]
    if count > 1:
        shuffled = [*given, *given]
        random.Random(SEED).shuffle(shuffled)  # noqa: S311 no secret
        found += [
            Order(name="reversed", arrivals=given[::-1], one_by_one=True),
            Order(name="shuffled, each twice", arrivals=tuple(shuffled)),
        ]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """What all runs share: the scene, the database, and a client that asks how far the fold is."""

    scene: Scene
    state: RecipientsState
    admin: AIOKafkaAdminClient

    async def folded(self) -> None:
        """Returns once the fold has committed all that is in the topic."""
        topic, group = self.scene.topics.delivery_events, f"{self.scene.topics.prefix}recipients"
        ends = {p: end for p, end in (await self.scene.reader.mark()).items() if p.topic == topic}
        async with asyncio.timeout(FOLDED_WITHIN_S):
            while True:
                committed = await committed_positions(self.admin, group)
                if all(end == 0 or committed.get(p, -1) >= end for p, end in ends.items()):
                    return
                await asyncio.sleep(0.01)


async def run_variant(folding: Folding, group: Group) -> list[str]:
    """A report for each set of differences, with the orders in which it was found."""
    (variant,) = group.variants
    found: dict[str, list[str]] = {}
    run: Run | None = None
    try:
        for order in orders(len(variant["deliveries"])):
            if run is None or not order.goes_on:
                if run is not None:
                    await run.stop()
                run = await Run.start(folding, with_recent_times(variant))
            if differences := await run.arrive(order):
                text = report(group.file, variant["name"], differences)
                found.setdefault(text, []).append(order.name)
    finally:
        if run is not None:
            await run.stop()
    return [f"{text}\n  arrived: {'; '.join(names)}" for text, names in found.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A variant on fresh state: the rows that were sent, and the envelopes; one that comes again is the same, as SNS repeats it."""

    folding: Folding
    variant: Variant
    start_mark: Mark
    rates: Mapping[str, float]
    running: Running
    sent: Sequence[Row]
    bodies: Sequence[bytes]

    @classmethod
    async def start(cls, folding: Folding, variant: Variant) -> "Run":
        scene = folding.scene
        await folding.state.clear()
        scene.logs.clear()
        sent = await folding.state.send(variant["sent"])
        attempts = {f"attempt-{n}": str(row.attempt_id) for n, row in enumerate(sent, 1)}
        urls, now = Urls(), datetime.now(UTC)
        fill = filling(now, attempts)
        return cls(
            folding=folding,
            variant=variant,
            start_mark=await scene.reader.mark(),
            rates=observation.rates(),
            running=await scene.serve(scene.settings(), recipients=True),
            sent=sent,
            bodies=[wrapped(d, fill, now, urls) for d in variant["deliveries"]],
        )

    async def stop(self) -> None:
        await self.running.stop()

    async def arrive(self, order: Order) -> list[Difference]:
        """What is not as expected once all of this is folded."""
        answers: list[str] = []
        for number in order.arrivals:
            answers += await self._deliver(number)
            if order.one_by_one:
                await self.folding.folded()
        await self.folding.folded()
        found = await _differences(self.folding, self.variant, self.start_mark, self.sent)
        found += event_checks.rates(self.variant["expect"], observation.added(self.rates))
        if bad := [answer for answer in answers if answer != "200"]:
            found.insert(0, Difference(key="answers", expected="200 to every delivery", found=bad))
        return found

    async def _deliver(self, number: int) -> list[str]:
        """The statuses of the answers, or why there was none."""
        delivery = self.variant["deliveries"][number]
        slots = asyncio.Semaphore(delivery.get("concurrent", 1))
        address, body = self.running.address, self.bodies[number]
        posts = (post(address, body, slots) for _ in range(delivery.get("times", 1)))
        return await asyncio.gather(*posts)


def wrapped(delivery: Mapping[str, Any], fill: Any, now: datetime, urls: Urls) -> bytes:
    """The delivery in a genuine envelope."""
    if "message" in delivery:
        return genuine(str(filled(delivery["message"], fill)), now, urls)
    return genuine(json.dumps(filled(delivery["ses"], fill)), now, urls)


async def post(address: str, body: bytes, slots: asyncio.Semaphore) -> str:
    """The status of the answer, with its text unless it is 200; or why there was none."""
    headers = {
        "Content-Type": "text/plain; charset=UTF-8",
        "User-Agent": "Amazon Simple Notification Service Agent",
        "x-amz-sns-message-type": "Notification",
    }
    async with slots:
        try:
            answer = await http_client.post(address, headers, body)
        except (http_client.NoAnswer, OSError) as error:
            return str(error) or type(error).__name__
    return str(answer.status) if answer.status == 200 else f"{answer.status} {answer.text.strip()}"


async def _differences(
    folding: Folding, variant: Variant, start: Mark, sent: Sequence[Row]
) -> list[Difference]:
    scene, state, expect = folding.scene, folding.state, variant["expect"]
    records = await scene.reader.since(start)
    found = published(records[scene.topics.delivery_events])
    kept = quarantined(records[scene.unreadable], KEY)
    times: dict[str, list[datetime]] = {}
    for event in found:
        times.setdefault(event.key, []).append(event.time)
    differences = [
        *(event_checks.events(expect, found) if expect["events"] is not None else ()),
        *_kept(expect, kept),
        *await _settled(expect, state, sent, times),
        # Last, since it inserts and claims rows.
        *await event_checks.new_sends(expect, state),
    ]
    places = {
        "topics": [repr((r.key, r.value, r.headers)) for part in records.values() for r in part],
        "feed": await state.written(),
        "logs": scene.logs.lines,
        "labels": [observation.exposed()],
    }
    differences += event_checks.leaks(variant, places)
    if scene.logs.tracebacks:
        shown = scene.logs.tracebacks[:3]
        differences.append(Difference(key="log", expected="no traceback", found=shown))
    return differences


async def _settled(
    expect: Mapping[str, Any],
    state: RecipientsState,
    sent: Sequence[Row],
    times: Mapping[str, Sequence[datetime]],
) -> list[Difference]:
    """What PostgreSQL says. Events that find their message only later are matched by a duty of its own, so a while is given."""
    until = asyncio.get_running_loop().time() + MATCHED_WITHIN_S
    while True:
        suppressions = event_checks.Suppressions(rows=await state.suppressed(), times=times)
        found = await event_checks.facts(expect, state, sent)
        if expect["suppressed"] is not None:
            found += suppressions.differences(expect)
        if not found or asyncio.get_running_loop().time() > until:
            return found
        await asyncio.sleep(0.1)


def _kept(expect: Mapping[str, Any], kept: Sequence[bytes]) -> list[Difference]:
    count = expect["quarantined"]
    if count is None or fits(len(kept), count):
        return []
    return [Difference(key="quarantined", expected=count, found=len(kept))]
