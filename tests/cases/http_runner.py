"""Runs a group of sns_http variants against the endpoint, and tells what is not as expected."""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from streams.domain.addresses import recipient_key
from tests.cases import http_client
from tests.cases.differences import Difference, report
from tests.cases.envelopes import TOPIC, Made, Urls, make, sns_host
from tests.cases.http_client import Answer
from tests.cases.internet import Behaviour, same_url
from tests.cases.loading import Group, Variant
from tests.cases.observation import requests_by_reason, unforeseen
from tests.cases.records import published, quarantined
from tests.cases.scene import KEY, Running, Scene
from tests.cases.topic_reader import Mark
from tests.cases.words import HTTP_REASONS, fits
from tests.conftest import SALT

_CERTIFICATE: Final = re.compile(r"/SimpleNotificationService-[0-9A-Fa-f]+\.pem")
_WORDS: Final = frozenset({"accepted", *(r for r in HTTP_REASONS if r is not None)})


@dataclass(slots=True, kw_only=True)
class Asked:
    """What was sent and answered in one variant. `first` answers of requests that were repeated count only for metrics."""

    made: list[Made] = field(default_factory=list)
    last: list[Answer] = field(default_factory=list)
    first: list[Answer] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Chain:
    """What a variant leaves to those that continue it."""

    start: Mark
    urls: Urls = field(default_factory=Urls)
    setup: dict[str, Any] = field(default_factory=dict)
    running: Running | None = None
    served: tuple[Any, ...] = ()


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
    if len(skipped) < len(group.variants) and not reports:
        last = [v for v in group.variants if v["name"] not in skipped][-1]
        if late := await _late(scene, chain, last):
            reports.append(report(group.file, last["name"], late))
    return reports, skipped


async def _run(scene: Scene, chain: Chain, variant: Variant) -> list[Difference]:
    chain.setup |= variant.get("setup", {})
    await scene.gate.open()
    await _serve(scene, chain)
    behaviour = _behaviour(chain, variant)
    scene.internet.behave(behaviour)
    if chain.setup.get("kafka") == "down":
        scene.gate.shut()
    scene.logs.clear()
    scene.network.names.clear()
    scene.network.refused.clear()
    before, before_unforeseen = requests_by_reason(), unforeseen()
    start = await scene.reader.mark()
    asked = await _ask(chain, variant, behaviour)
    # Marked right after the last answer: what is answered 200 has to be there by now.
    end = await scene.reader.mark()
    counted = await _counted(before, len(asked.last) + len(asked.first))
    expect = variant["expect"]
    return [
        *_answers(expect, asked, endless=_is_endless(variant)),
        *_reasons(expect, asked, counted),
        *await _topics(scene, chain, expect, start, end),
        *_outside(expect, behaviour, asked),
        *_strangers(scene, behaviour, asked),
        *_crashes(scene, unforeseen() - before_unforeseen),
    ]


async def _serve(scene: Scene, chain: Chain) -> None:
    """Starts the service; anew where a setting changed that it reads at its start."""
    topics = tuple(chain.setup.get("topics", (TOPIC,)))
    credentials = chain.setup.get("basic_auth")
    if chain.running is not None and chain.served != (topics, credentials):
        await chain.running.stop()
        chain.running = None
    if chain.running is None:
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


async def _ask(chain: Chain, variant: Variant, behaviour: Behaviour) -> Asked:
    asked, slots = Asked(), asyncio.Semaphore(variant.get("concurrent", 1))

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


async def _ask_until_taken(chain: Chain, variant: Variant, made: Made, asked: Asked) -> None:
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


def _answers(expect: Variant, asked: Asked, *, endless: bool) -> list[Difference]:
    found = []
    if asked.silent:
        found.append(Difference(key="answer", expected="every request", found=asked.silent))
    statuses = Counter(answer.status for answer in asked.last)
    allowed = expect["status"]
    if allowed is not None and set(statuses) - set(allowed):
        found.append(
            Difference(key="status", expected=f"one of {allowed}", found=_counts(statuses))
        )
    slow = [round(a.seconds, 1) for a in [*asked.first, *asked.last]]
    if not endless and slow and max(slow) > http_client.ANSWER_WITHIN_S:
        found.append(Difference(key="seconds", expected="at most 15", found=max(slow)))
    for name, start in (expect.get("headers") or {}).items():
        values = {answer.headers.get(name.lower()) for answer in asked.last}
        if any(value is None or not value.startswith(start) for value in values):
            found.append(
                Difference(
                    key=f"headers: {name}", expected=f"{start}…", found=sorted(map(str, values))
                )
            )
    return found


def _reasons(expect: Variant, asked: Asked, counted: Counter[str]) -> list[Difference]:
    """By the metric; the text of an answer tells which of the counted ones was its own."""
    texts = [answer.text.strip() for answer in [*asked.first, *asked.last]]
    known = Counter(text for text in texts if text in _WORDS)
    if known - counted:
        return [Difference(key="reason counted", expected=_counts(known), found=_counts(counted))]
    others = counted - known
    last = Counter(a.text.strip() for a in asked.last if a.text.strip() in _WORDS) + others
    words = {None if word == "accepted" else word for word in last}
    uncounted = len(texts) - counted.total()
    if uncounted > 0:
        words.add("uncounted")
    allowed = expect["reason"]
    if allowed is not None and words - set(allowed):
        found = sorted(words, key=str)
        return [Difference(key="reason", expected=f"one of {allowed}", found=found)]
    return []


def _counts(counter: Mapping[Any, int]) -> dict[str, int]:
    return {str(key): number for key, number in counter.items()}


async def _topics(
    scene: Scene, chain: Chain, expect: Variant, start: Mark, end: Mark
) -> list[Difference]:
    records = await scene.reader.between(chain.start, end)
    found = _published(expect, records[scene.topics.delivery_events])
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


def _published(expect: Variant, records: Sequence[Any]) -> list[Difference]:
    if expect["published"] is None:
        return []
    names = {recipient_key(e["recipient"], SALT): e["recipient"] for e in expect["published"]}
    wanted = Counter((e["type"], recipient_key(e["recipient"], SALT)) for e in expect["published"])
    events = published(records)
    there = Counter((event.type, event.key) for event in events)
    if wanted == there:
        return []
    lines = [
        [
            {"type": kind, "recipient": names.get(key, f"key {key}")}
            for kind, key in sorted(side.elements())
        ]
        for side in (wanted, there)
    ]
    return [Difference(key="published", expected=lines[0], found=lines[1])]


async def _late(scene: Scene, chain: Chain, variant: Variant) -> list[Difference]:
    """What came into the topic only after the last answer, once the service has stopped."""
    records = await scene.reader.since(chain.start)
    found = _published(variant["expect"], records[scene.topics.delivery_events])
    return [
        Difference(
            key=f"{d.key}, after the service had stopped", expected=d.expected, found=d.found
        )
        for d in found
    ]


def _outside(expect: Variant, behaviour: Behaviour, asked: Asked) -> list[Difference]:
    counts = {
        "certificate_fetches": len(behaviour.fetched),
        "confirmations": len(behaviour.confirmed),
    }
    found = [
        Difference(key=key, expected=expect[key], found=number)
        for key, number in counts.items()
        if expect[key] is not None and not fits(number, expect[key])
    ]
    calls = {
        (sns_host(e.get("TopicArn")), e.get("TopicArn"), e.get("Token"))
        for e in (m.envelope for m in asked.made)
        if e is not None
    }
    for call in behaviour.confirmed:
        own = (call.host, call.topic, call.token)
        region = call.topic.split(":")[3:4]
        if own not in calls or [call.region] != region:
            found.append(
                Difference(
                    key="confirmation",
                    expected="a call to the region of TopicArn, with TopicArn and Token of the envelope",
                    found=call,
                )
            )
    return found


def _strangers(scene: Scene, behaviour: Behaviour, asked: Asked) -> list[Difference]:
    """Requests that nobody may make us send."""
    envelopes = [made.envelope for made in asked.made if made.envelope is not None]
    allowed = {same_url(url) for e in envelopes if (url := _allowed_url(e)) is not None}
    hosts = {urlsplit(url).hostname for url in allowed}
    hosts |= {sns_host(e.get("TopicArn")) for e in envelopes}
    strange = [url for url in behaviour.fetched if same_url(url) not in allowed]
    strange += behaviour.strange
    strange += [n for n in scene.network.names if n.rsplit(":", 1)[0].lower() not in hosts]
    strange += scene.network.refused
    if not strange:
        return []
    return [
        Difference(key="outgoing requests", expected="none of these", found=sorted(set(strange)))
    ]


def _allowed_url(envelope: Mapping[str, Any]) -> str | None:
    """SigningCertURL, if it is that of SNS in the region and partition of TopicArn."""
    url, host = envelope.get("SigningCertURL"), sns_host(envelope.get("TopicArn"))
    if not isinstance(url, str) or host is None:
        return None
    origin, rest = url[: len(host) + 8], url[len(host) + 8 :]
    return url if origin.lower() == f"https://{host}" and _CERTIFICATE.fullmatch(rest) else None


def _crashes(scene: Scene, unforeseen_errors: float) -> list[Difference]:
    found = []
    if scene.logs.tracebacks:
        found.append(
            Difference(key="log", expected="no traceback", found=scene.logs.tracebacks[:3])
        )
    if unforeseen_errors:
        found.append(Difference(key="errors nobody foresaw", expected=0, found=unforeseen_errors))
    return found
