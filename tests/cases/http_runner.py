"""Runs a group of sns_http variants against the endpoint, and tells what is not as expected."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.cases import http_checks, http_client
from tests.cases.differences import Difference, report
from tests.cases.envelopes import TOPIC, Made, Urls, make
from tests.cases.internet import Behaviour
from tests.cases.loading import Group, Variant
from tests.cases.observation import requests_by_reason, unforeseen
from tests.cases.records import quarantined
from tests.cases.scene import KEY, Running, Scene
from tests.cases.topic_reader import Mark
from tests.cases.words import fits


@dataclass(slots=True, kw_only=True)
class Chain:
    """What a variant leaves to those that continue it."""

    start: Mark
    urls: Urls = field(default_factory=Urls)
    setup: dict[str, Any] = field(default_factory=dict)
    running: Running | None = None
    served: tuple[Any, ...] = ()
    last: Variant | None = None
    was_put_off: bool = False


async def run_group(scene: Scene, group: Group) -> tuple[list[str], list[str]]:
    """The reports of variants that failed, and the names of those that were skipped."""
    chain = Chain(start=await scene.reader.mark())
    reports: list[str] = []
    skipped: list[str] = []
    try:
        for variant in group.variants:
            if variant.get("needs") == "basic-auth" and not scene.has_basic_auth:
                skipped.append(variant["name"])
                continue
            if found := await _run(scene, chain, variant):
                reports.append(report(group.file, variant["name"], found))
    finally:
        await scene.gate.open()
        scene.internet.behave(Behaviour())
        if chain.running is not None:
            await chain.running.stop()
    # After a 503 an event may still come, or come again: it was not refused.
    if chain.last is None or chain.was_put_off or reports:
        return reports, skipped
    if late := await _late(scene, chain, chain.last):
        reports.append(report(group.file, chain.last["name"], late))
    return reports, skipped


async def _run(scene: Scene, chain: Chain, variant: Variant) -> list[Difference]:
    chain.setup |= variant.get("setup", {})
    await _serve(scene, chain)
    behaviour = _behaviour(chain, variant)
    scene.internet.behave(behaviour)
    if chain.setup.get("kafka") == "down":
        scene.gate.shut()
    else:
        await scene.gate.open()
    scene.logs.clear()
    scene.network.names.clear()
    scene.network.refused.clear()
    before, before_unforeseen = requests_by_reason(), unforeseen()
    start = await scene.reader.mark()
    asked = await _ask(chain, variant, behaviour)
    # Marked right after the last answer: what is answered 200 has to be there by now.
    end = await scene.reader.mark()
    counted = await _counted(before, len(asked.last) + len(asked.first))
    chain.last = variant
    chain.was_put_off |= any(answer.status == 503 for answer in [*asked.first, *asked.last])
    expect = variant["expect"]
    return [
        *http_checks.answers(expect, asked, endless=_is_endless(variant)),
        *http_checks.reasons(expect, asked, counted),
        *await _topics(scene, chain, expect, start, end),
        *http_checks.outside(expect, behaviour, asked),
        *http_checks.strangers(scene.network, behaviour, asked),
        *http_checks.crashes(scene.logs, unforeseen() - before_unforeseen),
    ]


async def _serve(scene: Scene, chain: Chain) -> None:
    """Starts the service; anew where a setting changed that it reads at its start."""
    topics = tuple(chain.setup.get("topics", (TOPIC,)))
    credentials = chain.setup.get("basic_auth")
    if chain.running is not None and chain.served != (topics, credentials):
        await chain.running.stop()
        chain.running = None
    if chain.running is None:
        # It does not start without Kafka.
        await scene.gate.open()
        changes: dict[str, Any] = {"sns_topics": topics}
        if credentials is not None:
            changes["events_basic_auth"] = credentials
        chain.running = await scene.serve(scene.settings(**changes))
        chain.served = (topics, credentials)


def _behaviour(chain: Chain, variant: Variant) -> Behaviour:
    topic = variant.get("envelope", {}).get("TopicArn")
    given = chain.setup.get("certificates", {"*": "trusted"})
    own = chain.urls.certificate_url(topic)
    named = {own if url == "<certificate-url>" else url: a for url, a in given.items()}
    return Behaviour(certificates=named, confirm=chain.setup.get("confirm", "ok"))


def _is_endless(variant: Variant) -> bool:
    body = variant.get("body")
    return isinstance(body, Mapping) and body["bytes"] is None


async def _ask(chain: Chain, variant: Variant, behaviour: Behaviour) -> http_checks.Asked:
    asked, slots = http_checks.Asked(), asyncio.Semaphore(variant.get("concurrent", 1))

    async def one() -> None:
        async with slots:
            made = make(variant, chain.urls, datetime.now(UTC))
            asked.made.append(made)
            answers = dict(behaviour.certificates)
            if "<new-certificate-url>" in answers:
                answers[made.new_certificate_url] = answers["<new-certificate-url>"]
                behaviour.certificates = answers
            await _ask_until_taken(chain, variant, made, asked)

    async with asyncio.TaskGroup() as requests:
        for _ in range(variant.get("repeat", 1)):
            requests.create_task(one())
    return asked


async def _ask_until_taken(
    chain: Chain, variant: Variant, made: Made, asked: http_checks.Asked
) -> None:
    assert chain.running is not None
    body = variant.get("body")
    stream = (body["repeat"], body["bytes"]) if isinstance(body, Mapping) else None
    loop = asyncio.get_running_loop()
    until = loop.time() + variant.get("retry_for_s", 0)
    while True:
        try:
            answer = await http_client.post(chain.running.address, made.headers, made.body, stream)
        except (http_client.NoAnswer, OSError) as error:
            asked.silent.append(str(error) or type(error).__name__)
            return
        if answer.status != 503 or loop.time() + 1 > until:
            asked.last.append(answer)
            return
        asked.first.append(answer)
        await asyncio.sleep(1)


async def _counted(before: Counter[str], answers: int) -> Counter[str]:
    """By what each request was counted; a moment is given to one whose connection was closed."""
    for _ in range(50):
        counted = requests_by_reason()
        counted.subtract(before)
        counted = +counted
        if counted.total() >= answers:
            break
        await asyncio.sleep(0.01)
    return counted


async def _topics(
    scene: Scene, chain: Chain, expect: Variant, start: Mark, end: Mark
) -> list[Difference]:
    records = await scene.reader.between(chain.start, end)
    found = http_checks.events(expect, records[scene.topics.delivery_events])
    if expect["quarantined"] is not None:
        during = await scene.reader.between(start, end)
        all_kept = quarantined(records[scene.unreadable], KEY)
        kept = quarantined(during[scene.unreadable], KEY)
        if not {len(kept), len(all_kept)} & _fitting(expect["quarantined"], kept, all_kept):
            found.append(
                Difference(key="quarantined", expected=expect["quarantined"], found=len(kept))
            )
    return found


def _fitting(count: Any, *kept: Sequence[bytes]) -> set[int]:
    return {len(k) for k in kept if fits(len(k), count)}


async def _late(scene: Scene, chain: Chain, variant: Variant) -> list[Difference]:
    """What came into the topic only after the last answer, once the service has stopped."""
    records = await scene.reader.since(chain.start)
    found = http_checks.events(variant["expect"], records[scene.topics.delivery_events])
    return [
        Difference(
            key=f"{d.key}, after the service had stopped", expected=d.expected, found=d.found
        )
        for d in found
    ]
