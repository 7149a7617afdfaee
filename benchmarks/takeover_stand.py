"""Two relays of one slot under a steady load, each with its own way to PostgreSQL, and what each has had acknowledged."""

import asyncio
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit, urlunsplit

import psycopg

import devservers
from benchmarks import machine
from benchmarks.stage_process import StageFailed
from demo.system import SALT, get, stage_environment
from devservers.ports import Ports
from devservers.processes import Supervised, spawn
from devservers.tcp_proxy import TcpProxy
from streams.adapters.kafka import create_topics
from streams.adapters.migrations import migrate
from streams.adapters.postgres import Database
from streams.domain.topics import Topics

RELAYS: Final = ("relay-1", "relay-2")
PARTITIONS: Final = 12
_PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.005
_ROW: Final = (
    "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) "
    "VALUES ('outbox.bulk', md5((%s %% 1000)::text), 'pointer', '{}')"
)
_ACKNOWLEDGED: Final = re.compile(rb"^mailstreams_relay_records_total\{.*\} (\S+)$", re.MULTILINE)


class TakeoverStand:
    """A context: everything runs inside of it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._processes: dict[str, Supervised] = {}
        self.ways: dict[str, TcpProxy] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        enter = self._stack.enter_context
        self._directory = Path(enter(tempfile.TemporaryDirectory(prefix="mailstreams-bench-")))
        self._servers = enter(devservers.running())
        self._name = f"bench_{time.time_ns()}"
        self._dsn = self._servers.postgres.create_database(self._name)
        self._stack.callback(self._servers.postgres.drop_database, self._name)
        ports = Ports(self._directory / "ports")
        self._stack.callback(ports.release)
        asyncio.run(self._prepare())
        self._stack.callback(self._end_all)
        self._ports = {relay: ports.claim(server=relay) for relay in RELAYS}
        for relay in RELAYS:
            upstream = urlsplit(self._dsn).port or 0
            self.ways[relay] = enter(TcpProxy(upstream=upstream))
            self.start(relay)
        self.settled()

    async def _prepare(self) -> None:
        async with Database(self._dsn, pool_size=1, timeout_s=60, name="benchmark") as database:
            await migrate(database, salt=SALT.encode(), slot=self._name)
        await create_topics(
            self._servers.kafka.bootstrap_servers,
            Topics(prefix=f"{self._name}."),
            partitions=PARTITIONS,
            replication_factor=1,
        )

    def start(self, relay: str) -> None:
        """It must not be running."""
        self._processes[relay] = spawn(
            [sys.executable, "-m", "streams", "relay"],
            name=relay,
            log_path=self._directory / f"{relay}.log",
            env={
                **machine.environment(),
                **self._servers.environment(),
                **stage_environment(),
                "MAILSTREAMS_POSTGRES_DSN": self._way(relay),
                "MAILSTREAMS_TOPIC_PREFIX": f"{self._name}.",
                "MAILSTREAMS_RELAY_SLOT": self._name,
                "MAILSTREAMS_HTTP_PORT": str(self._ports[relay]),
            },
        )

    def _way(self, relay: str) -> str:
        parts = urlsplit(self._dsn)
        user = f"{parts.username}@" if parts.username else ""
        place = f"{user}127.0.0.1:{self.ways[relay].port}"
        return urlunsplit(parts._replace(netloc=place))

    def _end_all(self) -> None:
        for process in self._processes.values():
            process.kill()

    def process(self, relay: str) -> Supervised:
        return self._processes[relay]

    def settled(self) -> tuple[str, str]:
        """Waits until one streams and the other stands by; these two."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            ready = [relay for relay in RELAYS if self._answers(relay, "ready")]
            if len(ready) == 1 and all(self._answers(relay, "live") for relay in RELAYS):
                return ready[0], RELAYS[1 - RELAYS.index(ready[0])]
            time.sleep(0.05)
        raise StageFailed(f"no relay streams beside one that stands by after {_PATIENCE_S:g} s")

    def _answers(self, relay: str, what: str) -> bool:
        return get(f"http://127.0.0.1:{self._ports[relay]}/health/{what}")[0] == 200

    def acknowledged(self, relay: str) -> float:
        """Records that Kafka has acknowledged to this process."""
        _, body = get(f"http://127.0.0.1:{self._ports[relay]}/metrics")
        return sum(map(float, _ACKNOWLEDGED.findall(body)))

    def until_acknowledged(self, relay: str, *, more_than: float, within_s: float) -> float:
        """Waits for its next acknowledged record; when that was seen, on the monotonic clock."""
        deadline = time.monotonic() + within_s
        while self.acknowledged(relay) <= more_than:
            if time.monotonic() > deadline:
                raise StageFailed(f"{relay} did not take over within {within_s:g} s")
            time.sleep(_LOOK_S)
        return time.monotonic()

    @contextmanager
    def load(self, per_second: float) -> Iterator[None]:
        """Rows in a steady flow, each a transaction."""
        stopping = threading.Event()

        def work() -> None:
            due, n = time.monotonic(), 0
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                while not stopping.wait(max(due - time.monotonic(), 0.0)):
                    due += 1 / per_second
                    n += 1
                    connection.execute(_ROW, [n])

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
