"""The SNS intake under load, and the delay from a notification to the suppression that it causes.

One `mailstreams events` process and one `mailstreams recipients` process on real Kafka and PostgreSQL.
"""

import functools
import json
import pickle
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Final

import psycopg

import devservers
from benchmarks import event_parts, machine
from benchmarks.sns_corpus import TOPIC, Corpus, SigningKey, body_of, make_corpus, make_key
from benchmarks.sns_load import Load, post_all
from benchmarks.stage_process import StageProcess, run_migrate, running_stage
from demo.system import SALT, stage_environment
from devservers.ports import Ports
from streams.domain.addresses import recipient_key
from streams.domain.topics import Topics

NAME: Final = "events"
TARGET_A_CORE: Final = 4000
TARGET_P99_MS: Final = 500.0
CONNECTIONS: Final = 64
POLL_S: Final = 0.005
DRAIN_S: Final = 180.0
PREFIX: Final = "bench."


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
        """Notifications that the corpus needs: one more round to warm up, and a second of each rate."""
        delays = sum(int(rate * (self.delay_s + 1)) for rate in self.rates)
        return (self.rounds + 1) * self.round_size + delays


FULL: Final = Sizes(
    rounds=5, round_size=4000, rates=(500, 1000, 2000), delay_s=8.0, parts_size=2000
)
QUICK: Final = Sizes(rounds=1, round_size=300, rates=(150,), delay_s=2.0, parts_size=100)


def run(*, quick: bool) -> dict[str, Any]:
    """The numbers; what is measured is told on the way."""
    sizes = QUICK if quick else FULL
    with ExitStack() as stack:
        bench = _Bench(sizes=sizes, stack=stack)
        bench.prepare()
        numbers = bench.measure()
    return {"benchmark": NAME, "quick": quick, **numbers, **machine.description()}


def say(line: str) -> None:
    print(line, flush=True)


@dataclass(slots=True, kw_only=True)
class _Bench:
    """One run."""

    sizes: Sizes
    stack: ExitStack
    corpus: Corpus = field(init=False)
    key: SigningKey = field(init=False)
    directory: Path = field(init=False)
    environment: dict[str, str] = field(init=False)
    servers: devservers.Servers = field(init=False)
    dsn: str = field(init=False)
    ports: dict[str, int] = field(init=False)
    generator: ProcessPoolExecutor = field(init=False)
    events: StageProcess = field(init=False)
    posted: int = 0

    def prepare(self) -> None:
        """Servers, corpus, outbox rows, the events stage."""
        say(f"signing {self.sizes.total} notifications (not timed)")
        self.key = make_key()
        self.corpus = make_corpus(self.key, self.sizes.total, seed=1)
        self.directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        requests = self.directory / "requests.pickle"
        requests.write_bytes(pickle.dumps([n.request for n in self.corpus.notices]))
        say("starting PostgreSQL, Kafka and the stages")
        self.servers = self.stack.enter_context(devservers.running())
        self._set_up()
        self._insert_mails()
        self.generator = self.stack.enter_context(
            ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        )
        self.events = self._stage("events")

    def _set_up(self) -> None:
        name = f"bench_{time.time_ns()}"
        self.dsn = self.servers.postgres.create_database(name)
        self.stack.callback(self.servers.postgres.drop_database, name)
        ports = Ports(self.directory / "ports")
        self.stack.callback(ports.release)
        self.ports = {n: ports.claim(server=n) for n in ("sns", "events", "recipients")}
        source = self.stack.enter_context(_served(self.directory, self.key, self.corpus))
        self.environment = {
            **machine.environment(),
            **self.servers.environment(),
            **stage_environment(),
            "MAILSTREAMS_POSTGRES_DSN": self.dsn,
            "MAILSTREAMS_TOPIC_PREFIX": f"{PREFIX}{name}.",
            "MAILSTREAMS_SNS_TOPICS": TOPIC,
            "MAILSTREAMS_SNS_CERTIFICATE_SOURCE": source,
            "MAILSTREAMS_EVENTS_PORT": str(self.ports["sns"]),
            "AWS_REGION": "eu-central-1",
        }
        run_migrate(self.environment, self.directory)

    def _insert_mails(self) -> None:
        """The rows and attempts that the notifications are about, as the sender leaves them."""
        mails = self.corpus.mails
        with psycopg.connect(self.dsn) as connection, connection.cursor() as cursor:
            with cursor.copy(
                "COPY email_outbox (id, tenant, recipient, sender, subject, text) FROM STDIN"
            ) as copy:
                for m in mails:
                    copy.write_row(
                        (m.outbox_id, "shop", m.recipient, "mail@example.com", "Hello", "Hi")
                    )
            cursor.execute("UPDATE email_outbox SET state = 'submitted', attempts = 1")
            cursor.execute("DELETE FROM outbox_feed")
            with cursor.copy(
                "COPY email_attempt (id, outbox_id, number, finished, outcome, provider_message_id) FROM STDIN"
            ) as copy:
                for m in mails:
                    copy.write_row((m.attempt_id, m.outbox_id, 1, "now", "accepted", m.message_id))
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")

    def _stage(self, name: str) -> StageProcess:
        return self.stack.enter_context(
            running_stage(
                name,
                environment=self.environment,
                health_port=self.ports[name],
                directory=self.directory,
            )
        )

    # Measuring ----------------------------------------------------------------------------------------------------

    def measure(self) -> dict[str, Any]:
        self._round()  # warms up: the certificate is fetched, connections and code are warm
        rounds, bare = [], []
        with event_parts.bare_http() as (port, cpu_s):
            for number in range(self.sizes.rounds):
                rounds.append(self._round())
                bare.append(self._bare_round(port, cpu_s))
                say(
                    f"round {number + 1}: {rounds[-1]['per_second']:.0f} notifications a second of wall time, "
                    f"{rounds[-1]['us']:.0f} us of the events process each; bare HTTP {bare[-1]:.0f} us"
                )
        parts = self._parts(bare, [r["us"] for r in rounds])
        backlog = self._fold_backlog()
        delays = [self._delay(rate) for rate in self.sizes.rates]
        return {
            "target_per_core_second": TARGET_A_CORE,
            "target_p99_ms": TARGET_P99_MS,
            **_intake_numbers(rounds),
            "parts_us": parts,
            "signature_share": round(parts["signature"] / parts["whole"], 3),
            "fold": backlog,
            "delay": delays,
            "body_bytes": self.corpus.size,
            "notifications": len(self.corpus.notices),
            "connections": CONNECTIONS,
        }

    def _round(self) -> dict[str, float]:
        before = self.events.cpu_s()
        load = self._post(self.sizes.round_size).result()
        cpu = self.events.cpu_s() - before
        count = self.sizes.round_size
        return {
            "per_second": count / load.wall_s,
            "us": cpu / count * 1e6,
            "generator_us": load.cpu_s / count * 1e6,
            "answer_p99_ms": _percentile(load.answers, 99) * 1000,
        }

    def _bare_round(self, port: int, cpu_s: Callable[[], float]) -> float:
        before = cpu_s()
        count = self.sizes.round_size
        self._submit(0, count, port, None).result()
        return (cpu_s() - before) / count * 1e6

    def _post(self, count: int, per_second: float | None = None) -> Future[Load]:
        first, self.posted = self.posted, self.posted + count
        return self._submit(first, self.posted, self.ports["sns"], per_second)

    def _submit(self, first: int, last: int, port: int, per_second: float | None) -> "Future[Load]":
        return self.generator.submit(
            _checked_load,
            self.directory / "requests.pickle",
            first,
            last,
            port=port,
            per_second=per_second,
        )

    def _parts(self, bare: Sequence[float], whole: Sequence[float]) -> dict[str, float]:
        bodies = [body_of(n.request) for n in self.corpus.notices[: self.sizes.parts_size]]
        salt = SALT.encode()
        parts = {"http": median(bare)}
        parts |= event_parts.decision_parts(bodies, self.key.certificate, salt)
        topic = Topics(prefix=self.environment["MAILSTREAMS_TOPIC_PREFIX"]).delivery_events
        # Events that were published already: the fold knows them, and counts them once.
        parts["publishing"] = event_parts.publish_part(
            self.servers.kafka.bootstrap_servers, topic, event_parts.events_of(bodies, salt)
        )
        parts["whole"] = median(whole)
        parts["rest"] = parts["whole"] - sum(v for k, v in parts.items() if k != "whole")
        say("processor time of one notification, in microseconds:")
        for name, cost in parts.items():
            say(f"  {name:<12} {cost:7.1f}  {cost / parts['whole']:6.1%}")
        return {name: round(cost, 1) for name, cost in parts.items()}

    def _fold_backlog(self) -> dict[str, float]:
        """The recipients stage starts and works off what the rounds have left."""
        recipients = self._stage("recipients")
        before, started = recipients.cpu_s(), time.monotonic()
        self._wait_folded(self.posted)
        seconds = time.monotonic() - started
        cpu = recipients.cpu_s() - before
        say(
            f"backlog of {self.posted} events folded: {self.posted / seconds:.0f} a second, "
            f"{cpu / self.posted * 1e6:.0f} us of the recipients process each"
        )
        return {
            "events_per_second": round(self.posted / seconds),
            "recipients_us": round(cpu / self.posted * 1e6, 1),
        }

    def _wait_folded(self, events: int) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            deadline = time.monotonic() + DRAIN_S
            found = -1
            while found < events:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{found} of {events} events were folded in {DRAIN_S:g} s")
                time.sleep(0.1)
                row = connection.execute("SELECT count(*) FROM email_event").fetchone()
                found = -1 if row is None else row[0]

    def _delay(self, rate: int) -> dict[str, Any]:
        """From the moment a notification was due to be posted to its suppression being seen by another connection."""
        count = int(rate * self.sizes.delay_s)
        first = self.posted
        watch = _Watch(self.dsn)
        load = self._post(count, rate)
        watch.start()
        loaded = load.result()
        self._wait_folded(self.posted)
        seen = watch.stop()
        salt = SALT.encode()
        delays = []
        for number in range(count):
            address = self.corpus.notices[first + number].suppresses
            if address is not None:
                delays.append((seen[recipient_key(address, salt)] - loaded.started[number]) * 1000)
        numbers = {
            "per_second": rate,
            "suppressions": len(delays),
            "p50_ms": round(_percentile(delays, 50), 1),
            "p99_ms": round(_percentile(delays, 99), 1),
            "max_ms": round(max(delays), 1),
            "answer_p99_ms": round(_percentile(loaded.answers, 99) * 1000, 1),
        }
        say(
            f"at {rate} notifications a second: delay to suppression p50 {numbers['p50_ms']} ms, "
            f"p99 {numbers['p99_ms']} ms, max {numbers['max_ms']} ms ({len(delays)} suppressions); "
            f"answers p99 {numbers['answer_p99_ms']} ms"
        )
        return numbers


def _percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent do not exceed."""
    return sorted(values)[max(0, ceil(len(values) * percent / 100) - 1)]


def _checked_load(
    path: Path, first: int, last: int, *, port: int, per_second: float | None
) -> Load:
    load = post_all(path, first, last, port=port, connections=CONNECTIONS, per_second=per_second)
    if load.statuses != {"200": last - first}:
        raise RuntimeError(f"the endpoint answered {load.statuses}")
    return load


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


class _Watch:
    """Sees suppressions come into force, polling from a connection of its own: a delay counts up to 5 ms too much."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._stopping = threading.Event()
        self._seen: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="watch")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """When each recipient's suppression was first seen."""
        self._stopping.set()
        self._thread.join()
        return self._seen

    def _run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            last = False
            while not last:
                last = self._stopping.wait(POLL_S)
                rows = connection.execute(
                    "SELECT recipient_key FROM suppression WHERE NOT recipient_key = ANY (%s)",
                    (list(self._seen),),
                ).fetchall()
                now = time.time()
                for (key,) in rows:
                    self._seen.setdefault(str(key), now)


@contextmanager
def _served(directory: Path, key: SigningKey, corpus: Corpus) -> Iterator[str]:
    """A base URL that serves the certificate."""
    from benchmarks.sns_corpus import CERTIFICATE_NAME

    del corpus
    folder = directory / "certificate"
    folder.mkdir()
    (folder / CERTIFICATE_NAME).write_bytes(key.certificate)
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


if __name__ == "__main__":
    print(json.dumps(run(quick=True)))
