"""The processes of one scenario: any number of each stage and the simulator, on a database and topics of their own."""

import asyncio
import itertools
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from demo.system import SALT, NotWorking, System, get, provider_environment, stage_environment
from devservers import Servers
from devservers.ports import Ports
from devservers.processes import spawn
from streams.adapters.kafka import create_topics
from streams.adapters.migrations import migrate
from streams.adapters.postgres import Database
from streams.domain.partitioner import partition_of
from streams.domain.topics import Topics

REPOSITORY: Final = Path(__file__).parents[2]
LONG: Final = os.environ.get("SCENARIOS") == "long"
# The stages around the senders, in one process to spare the machine.
AROUND: Final = ("relay", "events", "recipients", "scheduler")
MAX_IN_FLIGHT: Final = 32
SETTLED: Final = "('submitted', 'suppressed', 'failed', 'expired', 'cancelled')"
_SERIES: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_numbers = itertools.count()


class Scene(System):
    """Starts what it is told to, and ends it all with the block. kafka: what the processes are told instead of the servers' own."""

    def __init__(
        self,
        servers: Servers,
        directory: Path,
        *,
        dsn: str,
        topic_prefix: str,
        partitions: int,
        kafka: str | None,
        settings: Mapping[str, str],
        simulator: bool,
    ) -> None:
        super().__init__(
            servers, dsn=dsn, directory=directory, topic_prefix=topic_prefix, settings=settings
        )
        self.topics = Topics(prefix=topic_prefix)
        self.partitions = partitions
        self.kafka = servers.environment()["MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS"]
        self._told_kafka = kafka or self.kafka
        self._claims: Ports | None = None
        self._with_simulator = simulator

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._claims = Ports(self.directory / "ports")
        self._stack.callback(self._claims.release)
        self._ports = {"sns": self._claims.claim(server="sns")}
        slot = self.topic_prefix.rstrip(".").replace("-", "_")
        self._environment = {
            **os.environ,
            **self._servers.environment(),
            **stage_environment(),
            "MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS": self._told_kafka,
            "MAILSTREAMS_POSTGRES_DSN": self.dsn,
            "MAILSTREAMS_TOPIC_PREFIX": self.topic_prefix,
            "MAILSTREAMS_PARTITIONS": str(self.partitions),
            "MAILSTREAMS_RELAY_SLOT": slot,
            "MAILSTREAMS_PROVIDER_LIST": "false",
            "MAILSTREAMS_SENDER_LEASE_S": "15",
            "MAILSTREAMS_SENDER_CONNECT_TIMEOUT_S": "2",
            "MAILSTREAMS_SENDER_READ_TIMEOUT_S": "8",
            "MAILSTREAMS_SENDER_MAX_IN_FLIGHT": str(MAX_IN_FLIGHT),
            **self._given,
        }
        asyncio.run(self._prepare(slot))
        if self._with_simulator:
            self._start_simulator()
        self._environment |= provider_environment(self.simulator_url, self._ports["sns"])

    async def _prepare(self, slot: str) -> None:
        async with Database(self.dsn, pool_size=2, timeout_s=60, name="scenario") as database:
            await migrate(database, salt=SALT.encode(), slot=slot)
        await create_topics(
            self.kafka, self.topics, partitions=self.partitions, replication_factor=-1
        )

    # Processes ------------------------------------------------------------------------------------------------------

    def run(self, name: str, *stages: str, **settings: str) -> None:
        """Starts a process of these stages, by default the one that `name` begins with (sender-2); settings as in the environment."""
        assert self._claims is not None
        if name not in self._ports:
            self._ports[name] = self._claims.claim(server=name)
        stages = stages or (name.partition("-")[0],)
        module = "streams" if len(stages) == 1 else "tests.scenarios.stages"
        environment = self._environment | {"MAILSTREAMS_HTTP_PORT": str(self._ports[name])}
        self._processes[name] = spawn(
            [sys.executable, "-m", module, *stages],
            name=name,
            log_path=self.directory / f"{name}.log",
            env=environment | settings,
            cwd=REPOSITORY,
        )

    def lead_to(self, dsn: str) -> None:
        """By this URL the processes that are started from now on reach the database."""
        self._environment["MAILSTREAMS_POSTGRES_DSN"] = dsn

    def run_around(self) -> None:
        """Every stage but the sender, ready."""
        self.run("around", *AROUND)
        self.wait_ready("around", 120)
        self.wait_for(self._subscribed, "the subscription to be confirmed", timeout_s=60)

    @contextmanager
    def senders(self, *names: str, **settings: str) -> Iterator[None]:
        """These senders run and are ready; what runs of them and of others at the end is killed."""
        try:
            for name in names:
                self.run(name, **settings)
            for name in names:
                self.wait_ready(name, 120)
            yield
        finally:
            for name in self._processes:
                if name.startswith("sender"):
                    self.kill(name)

    def log(self, name: str) -> list[dict[str, Any]]:
        """What it said, line by line."""
        text = (self.directory / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def said(self, name: str, action: str) -> list[dict[str, Any]]:
        return [line for line in self.log(name) if line.get("action") == action]

    def missing(self, name: str) -> dict[str, str]:
        """What keeps it from being ready, by its own words; empty when it is."""
        status, body = get(self.url(name, "/health/ready"))
        return json.loads(body)["missing"] if status else {"process": "nobody answers"}

    def metrics(self, name: str) -> list[tuple[str, dict[str, str], float]]:
        """Its series; none while nobody answers."""
        status, body = get(self.url(name, "/metrics"))
        lines = body.decode().splitlines() if status == 200 else []
        found = [m for line in lines if (m := _SERIES.match(line))]
        return [(m[1], _labels(m[2] or ""), float(m[3])) for m in found]

    def metric(self, name: str, series: str, **labels: str) -> float:
        """The sum of the series with these labels; 0 without any."""
        return sum(
            value
            for found, has, value in self.metrics(name)
            if found == series and labels.items() <= has.items()
        )

    def owned(self, name: str) -> set[int]:
        """Partitions that a sender follows the suppressions of, which are those it owns."""
        return {
            int(labels["partition"])
            for series, labels, _ in self.metrics(name)
            if series == "mailstreams_sender_suppression_offset"
        }

    # Rows -----------------------------------------------------------------------------------------------------------

    def connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        return psycopg.connect(self.dsn, autocommit=True, connect_timeout=10)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.execute(statement, values).fetchall()

    def value(self, statement: str, *values: Any) -> Any:
        return self.rows(statement, *values)[0][0]

    def commit(self, recipients: Iterable[str]) -> list[str]:
        """One transaction with a mail to each; their ids in the same order."""
        wanted = list(recipients)
        found = self.rows(
            "INSERT INTO email_outbox (recipient, sender, subject, text) "
            "SELECT r, 'shop@example.com', 'Hello', 'Hi' FROM unnest(%s::text[]) WITH ORDINALITY AS w (r, n) ORDER BY n "
            "RETURNING id",
            wanted,
        )
        return [str(row[0]) for row in found]

    def states(self, ids: Sequence[str]) -> Counter[str]:
        found = self.rows(
            "SELECT state, count(*) FROM email_outbox WHERE id = ANY (%s::uuid[]) GROUP BY state",
            list(ids),
        )
        return Counter({state: int(count) for state, count in found})

    def wait_submitted(self, ids: Sequence[str], timeout_s: float) -> None:
        """Until all of them are; else fails with the states there are."""
        try:
            self.wait_for(
                lambda: self.states(ids) == {"submitted": len(ids)},
                f"{len(ids)} rows to be submitted",
                timeout_s=timeout_s,
            )
        except NotWorking as error:
            raise NotWorking(f"{error}: they are {self._told_of(ids)}") from None

    def wait_settled_after_kills(self, ids: Sequence[str], timeout_s: float) -> None:
        """Until all are submitted, but those that a killed process had claimed and SES never took: these stay ambiguous."""

        def settled() -> bool:
            found = self.rows(
                "SELECT id::text, state FROM email_outbox WHERE id = ANY (%s::uuid[])", list(ids)
            )
            states = {str(i): str(state) for i, state in found}
            times = self.accepted()
            return all(
                state == ("submitted" if times[i] else "ambiguous") for i, state in states.items()
            )

        try:
            self.wait_for(settled, f"{len(ids)} rows to be settled", timeout_s=timeout_s)
        except NotWorking as error:
            raise NotWorking(f"{error}: they are {self._told_of(ids)}") from None

    def _told_of(self, ids: Sequence[str]) -> str:
        """Their states, and of those that are not submitted what is known."""
        others = self.rows(
            "SELECT o.id::text, o.state, o.reason, o.attempts, a.outcome, a.error_class, a.started, a.finished "
            "FROM email_outbox o LEFT JOIN email_attempt a ON a.outbox_id = o.id "
            "WHERE o.id = ANY (%s::uuid[]) AND o.state <> 'submitted' ORDER BY o.id LIMIT 5",
            list(ids),
        )
        times = self.accepted()
        told = [f"{row}, accepted {times[row[0]]} times" for row in others]
        return f"{dict(self.states(ids))}; {told}"

    def key(self, address: str) -> str:
        return str(self.value("SELECT recipient_key(%s)", address))

    def addresses(self, partition: int, count: int, mark: str = "at") -> list[str]:
        """Addresses whose mail goes by this partition."""
        candidates = [f"{mark}-{n}@example.com" for n in range((count + 5) * self.partitions * 3)]
        keys = self.rows("SELECT recipient_key(a) FROM unnest(%s::text[]) AS a", candidates)
        fitting = [
            address
            for address, (key,) in zip(candidates, keys, strict=True)
            if partition_of(str(key).encode(), self.partitions) == partition
        ]
        assert len(fitting) >= count
        return fitting[:count]

    def accepted(self) -> Counter[str]:
        """How often SES took each outbox row."""
        return Counter(str(call["outbox"]) for call in self.ledger())

    def assert_none_accepted_twice(self) -> None:
        assert {i: n for i, n in self.accepted().items() if n > 1} == {}

    def assert_each_accepted_once(self, ids: Iterable[str]) -> None:
        """These, and of all others none twice."""
        times = self.accepted()
        assert [i for i in ids if times[i] == 0] == [], "lost"
        assert {i: n for i, n in times.items() if n > 1} == {}, "accepted twice"


def _labels(text: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', text))


@contextmanager
def scene_on(
    servers: Servers,
    directory: Path,
    *,
    partitions: int = 3,
    kafka: str | None = None,
    settings: Mapping[str, str] | None = None,
    simulator: bool = True,
    tablespace: str | None = None,
) -> Iterator[Scene]:
    """A scene on a fresh database and fresh topics; settings as in the environment."""
    name = f"scene-{os.getpid()}-{next(_numbers)}"
    dsn = servers.postgres.create_database(name)
    try:
        if tablespace is not None:
            with psycopg.connect(servers.postgres.dsn, autocommit=True) as connection:
                connection.execute(f'ALTER DATABASE "{name}" SET TABLESPACE {tablespace}'.encode())
        with Scene(
            servers,
            directory,
            dsn=dsn,
            topic_prefix=f"{name}.",
            partitions=partitions,
            kafka=kafka,
            settings=settings or {},
            simulator=simulator,
        ) as scene:
            yield scene
    finally:
        servers.postgres.drop_database(name)
