"""The SNS intake under load, and the delay from a notification to the suppression that it causes.

One `mailstreams events` process and one `mailstreams recipients` process on real Kafka and PostgreSQL. What counts is the
processor time of the events process, since its neighbours, the load generator too, share the machine with it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any, Final

from benchmarks import event_parts, machine
from benchmarks.events_stand import CONNECTIONS, EventsStand
from benchmarks.sns_corpus import body_of
from benchmarks.suppression_watch import SuppressionWatch
from demo.system import SALT
from streams.domain.addresses import recipient_key
from streams.domain.topics import Topics

NAME: Final = "events"
TARGET_A_CORE: Final = 4000
TARGET_P99_MS: Final = 500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured. rates: notifications a second at which the delay is measured, each for delay_s."""

    rounds: int
    round_size: int
    rates: Sequence[int]
    delay_s: float
    parts_size: int

    @property
    def total(self) -> int:
        """Notifications that are posted: the rounds, one more that warms up, and the delays."""
        delays = sum(int(rate * self.delay_s) for rate in self.rates)
        return (self.rounds + 1) * self.round_size + delays


FULL: Final = Sizes(
    rounds=7, round_size=4000, rates=(250, 500, 1000, 2000), delay_s=8.0, parts_size=2000
)
QUICK: Final = Sizes(rounds=1, round_size=300, rates=(150,), delay_s=2.0, parts_size=100)


def run(*, quick: bool) -> dict[str, Any]:
    """The numbers; what is measured is told on the way."""
    sizes = QUICK if quick else FULL
    say(f"signing {sizes.total} notifications, then starting servers and stages: not timed")
    with EventsStand(sizes.total) as stand:
        numbers = _measure(stand, sizes)
    return {"benchmark": NAME, "quick": quick, **numbers, **machine.description()}


def say(line: str) -> None:
    print(line, flush=True)


def _measure(stand: EventsStand, sizes: Sizes) -> dict[str, Any]:
    _round(stand, sizes.round_size)  # the certificate is fetched, connections and code are warm
    rounds, bare = [], []
    with event_parts.bare_http() as (port, cpu_s):
        for number in range(sizes.rounds):
            rounds.append(_round(stand, sizes.round_size))
            bare.append(_bare_round(stand, sizes.round_size, port, cpu_s))
            say(
                f"round {number + 1}: {rounds[-1]['per_second']:.0f} notifications a second of wall time, "
                f"{rounds[-1]['us']:.0f} us of the events process each; bare HTTP {bare[-1]:.0f} us"
            )
    intake = _intake_numbers(rounds)
    parts = _parts(stand, sizes.parts_size, bare, [r["us"] for r in rounds])
    fold = _fold_backlog(stand)
    return {
        "target_per_core_second": TARGET_A_CORE,
        "target_p99_ms": TARGET_P99_MS,
        **intake,
        "parts_us": parts,
        "whole_to_signature": round(parts["whole"] / parts["signature"], 2),
        "fold": fold,
        "delay": [_delay(stand, rate, sizes.delay_s) for rate in sizes.rates],
        "body_bytes": stand.corpus.size,
        "notifications": len(stand.corpus.notices),
        "connections": CONNECTIONS,
    }


# The intake ---------------------------------------------------------------------------------------------------------


def _round(stand: EventsStand, count: int) -> dict[str, float]:
    before = stand.events.cpu_s()
    load = stand.post(count).result()
    cpu = stand.events.cpu_s() - before
    return {
        "per_second": count / load.wall_s,
        "us": cpu / count * 1e6,
        "generator_us": load.cpu_s / count * 1e6,
        "answer_p99_ms": _percentile(load.answers, 99) * 1000,
    }


def _bare_round(stand: EventsStand, count: int, port: int, cpu_s: Callable[[], float]) -> float:
    before = cpu_s()
    stand.submit(0, count, port, None).result()
    return (cpu_s() - before) / count * 1e6


def _intake_numbers(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    costs = sorted(r["us"] for r in rounds)
    walls = sorted(r["per_second"] for r in rounds)
    numbers = {
        "per_core_second": round(1e6 / median(costs)),
        "per_core_second_min": round(1e6 / costs[-1]),
        "per_core_second_max": round(1e6 / costs[0]),
        "per_wall_second": round(median(walls)),
        "per_wall_second_min": round(walls[0]),
        "per_wall_second_max": round(walls[-1]),
        "generator_us": round(median(r["generator_us"] for r in rounds), 1),
        "answer_p99_ms": round(median(r["answer_p99_ms"] for r in rounds), 1),
    }
    say(
        f"{numbers['per_core_second']} notifications a second of one core "
        f"({numbers['per_core_second_min']} to {numbers['per_core_second_max']} in {len(rounds)} rounds; target {TARGET_A_CORE})"
    )
    return numbers


def _parts(
    stand: EventsStand, size: int, bare: Sequence[float], whole: Sequence[float]
) -> dict[str, float]:
    """Each part alone, which finds its code and data in the caches; `rest` is what the whole costs beyond their sum."""
    bodies = [body_of(n.request) for n in stand.corpus.notices[:size]]
    salt = SALT.encode()
    parts = {"http": median(bare)}
    parts |= event_parts.decision_parts(bodies, stand.key.certificate, salt)
    # Events that were published already: the fold knows them, and counts them once.
    parts["publishing"] = event_parts.publish_part(
        stand.servers.kafka.bootstrap_servers,
        Topics(prefix=stand.topic_prefix).delivery_events,
        event_parts.events_of(bodies, salt),
    )
    parts["whole"] = median(whole)
    parts["rest"] = parts["whole"] - sum(v for k, v in parts.items() if k != "whole")
    say("processor time of one notification, in microseconds:")
    for name, cost in parts.items():
        say(f"  {name:<12} {cost:7.1f}  {cost / parts['whole']:6.1%}")
    return {name: round(cost, 1) for name, cost in parts.items()}


# The fold -----------------------------------------------------------------------------------------------------------


def _fold_backlog(stand: EventsStand) -> dict[str, float]:
    """The recipients stage starts and works off what the rounds have left."""
    recipients = stand.stage("recipients")
    before, started = recipients.cpu_s(), time.monotonic()
    stand.wait_folded()
    seconds = time.monotonic() - started
    cpu = recipients.cpu_s() - before
    say(
        f"backlog of {stand.posted} events folded: {stand.posted / seconds:.0f} a second, "
        f"{cpu / stand.posted * 1e6:.0f} us of the recipients process each"
    )
    return {
        "events_per_second": round(stand.posted / seconds),
        "recipients_us": round(cpu / stand.posted * 1e6, 1),
    }


def _delay(stand: EventsStand, rate: int, seconds: float) -> dict[str, Any]:
    """From the moment a notification was due to be posted to its suppression being seen by another connection."""
    count, first = int(rate * seconds), stand.posted
    watch = SuppressionWatch(stand.dsn)
    watch.start()
    loaded = stand.post(count, rate).result()
    stand.wait_folded()
    seen = watch.stop()
    salt = SALT.encode()
    delays = [
        (seen[recipient_key(notice.suppresses, salt)] - started) * 1000
        for notice, started in zip(
            stand.corpus.notices[first : first + count], loaded.started, strict=True
        )
        if notice.suppresses is not None
    ]
    numbers = {
        "per_second": rate,
        "carried_per_second": round(count / loaded.wall_s),
        "suppressions": len(delays),
        "p50_ms": round(_percentile(delays, 50), 1),
        "p99_ms": round(_percentile(delays, 99), 1),
        "max_ms": round(max(delays), 1),
        "answer_p99_ms": round(_percentile(loaded.answers, 99) * 1000, 1),
    }
    say(
        f"at {rate} notifications a second: delay to suppression p50 {numbers['p50_ms']} ms, "
        f"p99 {numbers['p99_ms']} ms, max {numbers['max_ms']} ms ({len(delays)} suppressions; target p99 {TARGET_P99_MS:g} ms "
        f"at {TARGET_A_CORE // 2}); answers p99 {numbers['answer_p99_ms']} ms, {numbers['carried_per_second']} a second carried"
    )
    return numbers


def _percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent do not exceed."""
    return sorted(values)[max(0, ceil(len(values) * percent / 100) - 1)]
