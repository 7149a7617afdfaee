"""Runs many inputs against the endpoint and judges every answer."""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from streams.domain.sns import Reason
from streams.events import MAX_BODY
from tests.fuzz.body_mutations import CHANGES
from tests.fuzz.client import Client, NoAnswerError
from tests.fuzz.endpoint import CERTIFICATE_PATH, Effects, running
from tests.fuzz.inputs import Input
from tests.fuzz.judge import fetched_path, is_acceptable
from tests.fuzz.originals import Original, originals
from tests.fuzz.wire_mutations import TRICKS

WORKERS: Final = 24
GROWTH_LIMIT: Final = 64 * 1024 * 1024
SHOWN: Final = 20
_REASONS: Final = frozenset(Reason)
_KINDS: Final = [*CHANGES, *TRICKS]
_WEIGHTS: Final = [w for _, w in CHANGES.values()] + [w for _, w in TRICKS.values()]


@dataclass(slots=True)
class Report:
    """What came of a campaign; findings is empty when nothing was wrong."""

    seed: str
    inputs: int = 0
    answers: Counter[tuple[int, str]] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0
    found: int = 0
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    growth: int = 0

    def add(self, finding: str) -> None:
        self.found += 1
        if len(self.findings) < SHOWN:
            self.findings.append(finding)

    def lines(self) -> Iterator[str]:
        rate = self.inputs / max(self.seconds, 0.001)
        yield f"seed {self.seed}: {self.inputs} inputs in {self.seconds:.0f} s ({rate:.0f} a second)"
        for (status, reason), count in sorted(self.answers.items()):
            yield f"  {status} {reason:<26} {count:>8}"
        yield f"  connections closed without an answer {self.unanswered:>4}"
        yield "accepted, and rightly so, by kind: " + ", ".join(
            f"{kind} {count}" for kind, count in sorted(self.accepted.items())
        )
        yield f"memory: {self.growth / 1024 / 1024:+.1f} MiB after the first quarter"
        yield from (f"FINDING {finding}" for finding in self.findings)
        yield f"findings: {self.found}"


def made_input(seed: str, number: int, starts: list[Original]) -> Input:
    """The same input for the same seed and number (its signatures follow the clock and the keys of the process)."""
    random = Random(f"{seed}:{number}")  # noqa: S311 nothing secret
    kind = random.choices(_KINDS, _WEIGHTS)[0]
    original = random.choice(starts)
    if kind in TRICKS:
        return TRICKS[kind][0](random, original)
    body = CHANGES[kind][0](random, original)
    # Ours has bounds that the judge has not.
    plain = kind not in ("nesting", "number") and len(body) <= MAX_BODY
    return Input(kind=kind, original=original, body=body, plain=plain)


async def campaign(seed: str, inputs: int, *, first: int = 0) -> Report:
    report, effects, starts = Report(seed=seed), Effects(), originals()
    started = time.monotonic()
    async with running(effects) as port:
        expected = Effects(fetched={CERTIFICATE_PATH})
        numbers = iter(range(first, first + inputs))
        memory: list[int] = []

        async def work() -> None:
            client = Client(port)
            for number in numbers:
                if number - first in (inputs // 4, inputs - 1):
                    gc.collect()
                    memory.append(resident())
                await judge_one(client, made_input(seed, number, starts), number, report, expected)
            await client.close()

        workers = [asyncio.create_task(work()) for _ in range(min(WORKERS, inputs))]
        await asyncio.gather(*workers)
        gc.collect()  # a task that failed unheard is told of when it goes
    report.seconds = time.monotonic() - started
    report.growth = memory[-1] - memory[0]
    judge_all(report, effects, expected)
    return report


async def judge_one(
    client: Client, given: Input, number: int, report: Report, expected: Effects
) -> None:
    report.inputs += 1
    report.kinds[given.kind] += 1
    judged = given.body if given.judged is None else given.judged
    acceptable = is_acceptable(judged, given.original)
    if (path := fetched_path(judged)) is not None:
        expected.fetched.add(path)
    where = f"{number} ({given.kind}): {given.bytes()[:600]!r}"
    try:
        answers = await asked(client, given, must=acceptable and given.plain)
    except NoAnswerError as error:
        report.add(f"{error}: {where}")
        return
    report.unanswered += not answers
    for status, text in answers:
        report.answers[status, text if text in _REASONS else "(of the HTTP server)"] += 1
        if status >= 500 and status != 503:
            report.add(f"answer {status}: {where}")
        if 200 <= status < 300 and not acceptable:
            report.add(f"accepted ({text}): {where}")
        if 200 <= status < 300 and acceptable:
            report.accepted[given.kind] += 1
            expected.events += given.original.events
            expected.kept += given.original.kept
            expected.confirmations += given.original.confirmations
            if text != given.original.reason:
                report.add(f"{text} instead of {given.original.reason}: {where}")
    if acceptable and given.plain and not any(status == 200 for status, _ in answers):
        report.add(f"refused although genuine ({answers}): {where}")


async def asked(client: Client, given: Input, *, must: bool) -> list[tuple[int, str]]:
    """The answers; a genuine envelope is posted again after a 503, as SNS does."""
    if given.wire is not None:
        return await client.send(given.wire)
    for _ in range(20):
        answer = await client.ask(given.bytes())
        if not (must and answer[0] == 503):
            break
        await asyncio.sleep(0.2)
    return [answer]


def judge_all(report: Report, effects: Effects, expected: Effects) -> None:
    """What all inputs together have caused is what the accepted ones may cause, and nothing else was connected to."""
    for name in ("events", "kept", "confirmations"):
        caused, allowed = getattr(effects, name), getattr(expected, name)
        if caused != allowed:
            report.add(f"{caused} {name} instead of {allowed}")
    for path in sorted(effects.fetched - expected.fetched):
        report.add(f"fetched {path!r}, which no input with an allowed URL named")
    for connection in effects.strange_connections[:SHOWN]:
        report.add(f"an outgoing connection: {connection}")
    for error in effects.errors[:SHOWN]:
        report.add(f"an error of ours: {error}")
    if report.growth > GROWTH_LIMIT:
        report.add(f"memory grew by {report.growth} bytes")
    if not report.accepted["neutral"]:
        report.add("nothing was accepted: the campaign shows nothing")


def resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096
