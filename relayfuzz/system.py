"""What a round runs on: a fresh database, slot and topics, two relays behind links of their own."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from crash.control import NotWorking, Proxies, Workers
from crash.system import LocalServers
from crash.traps import Trigger
from demo.system import SALT, stage_environment
from devservers.ports import Ports
from relayfuzz.plan import KAFKA_LINK, RELAYS
from streams.adapters.kafka import create_topics
from streams.adapters.migrations import migrate
from streams.adapters.postgres import Database
from streams.domain.topics import Topics

PARTITIONS: Final = 4
_FUZZ: Final = Path(__file__).with_name("fuzz.sql")
# In the environment of a relay: which one it is.
NAME: Final = "FUZZ_RELAY"
_END_S: Final = 30.0
_BEGIN_S: Final = 60.0
_SETTINGS: Final = {
    "MAILSTREAMS_PARTITIONS": str(PARTITIONS),
    "MAILSTREAMS_POSTGRES_TIMEOUT_S": "5",
    "MAILSTREAMS_POSTGRES_POOL_SIZE": "4",
    "MAILSTREAMS_DRAIN_S": "6",
}


class Stand:
    """Servers, links and the process that forks relays: for all rounds of a run."""

    def __init__(self, servers: LocalServers, kafka_port: int, directory: Path) -> None:
        self.servers = servers
        self.directory = directory
        self.workers = Workers(directory)
        self.proxies = Proxies(directory)
        self.ports: dict[str, int] = {}
        self.bootstrap_servers = servers.kafka.bootstrap_servers
        self._kafka_port = kafka_port
        self._claimed = Ports(directory / "ports")

    async def start(self) -> None:
        await asyncio.gather(self.workers.start(), self.proxies.start())
        await self.proxies.link(KAFKA_LINK, self._kafka_port, [self.servers.kafka.proxied_port])
        for relay in RELAYS:
            for link in (f"{relay}-sql", f"{relay}-replication"):
                self.ports[link] = self._claimed.claim(server=link)
                await self.proxies.link(link, self.ports[link], [self.servers.postgres.port])

    async def stop(self) -> None:
        await self.workers.stop()
        await self.proxies.stop()
        self._claimed.release()

    @property
    def proxied_kafka(self) -> str:
        return f"127.0.0.1:{self._kafka_port}"


class System:
    """One round's. mutation: a fault of the product that both relays get."""

    def __init__(self, stand: Stand, *, name: str, mode: str, mutation: str | None) -> None:
        self.stand = stand
        self.name = name
        self.slot = name
        self.topics = Topics(prefix=f"{name}.")
        self.directory = stand.directory / name
        self.triggers: dict[str, Trigger] = {}
        self.started: dict[str, int] = dict.fromkeys(RELAYS, 0)
        self.dsn = ""
        self._mode = mode
        self._mutation = mutation
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    @property
    def pool(self) -> "asyncpg.Pool[asyncpg.Record]":
        if self._pool is None:
            raise NotWorking("the system is not started")
        return self._pool

    async def start(self) -> None:
        """Both relays are started, and one of them has become the one that writes."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.dsn = await asyncio.to_thread(self.stand.servers.postgres.create_database, self.name)
        polling = self._mode == "poll"
        async with Database(self.dsn, pool_size=2, timeout_s=60, name="fuzz") as database:
            slot = None if polling else self.slot
            await migrate(database, salt=SALT.encode(), slot=slot, polling=polling)
        bootstrap_servers = self.stand.bootstrap_servers
        await create_topics(
            bootstrap_servers, self.topics, partitions=PARTITIONS, replication_factor=1
        )
        self._pool = await asyncpg.create_pool(
            self.dsn, min_size=0, max_size=16, command_timeout=30, timeout=10
        )
        await self.pool.execute(_FUZZ.read_text(encoding="utf-8"))
        for relay in RELAYS:
            self.start_relay(relay)
        await self._until_one_writes()

    async def _until_one_writes(self) -> None:
        deadline = time.monotonic() + _BEGIN_S
        while not self._last_open(self.active()):
            if time.monotonic() > deadline:
                words = (self.directory / f"{RELAYS[0]}.log").read_text().splitlines()
                raise NotWorking(f"no relay began to write within {_BEGIN_S:g} s: {words[-1:]}")
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """Ends the relays and drops the database; what they wrote down stays."""
        for relay in RELAYS:
            self.stand.workers.signal(relay, signal.SIGKILL)
        for relay in RELAYS:
            if self.stand.workers.alive(relay):
                await self.stand.workers.ended(relay, _END_S)
        if self._pool is not None:
            self._pool.terminate()
        if self.dsn:
            await asyncio.to_thread(self.stand.servers.postgres.drop_database, self.name)

    def start_relay(self, relay: str) -> None:
        """It must not be running."""
        trap = self.directory / f"{relay}.trap"
        self.triggers[relay] = Trigger(trap, "relay")
        self.started[relay] += 1
        self.stand.workers.run(
            relay,
            ["relay"],
            self._environment(relay),
            self.directory / f"{relay}.log",
            worker="relayfuzz.worker",
            trap=str(trap),
            journal=str(self.journal(relay)),
            mutation=self._mutation,
        )

    def journal(self, relay: str) -> Path:
        return self.directory / f"{relay}.journal"

    def _environment(self, relay: str) -> dict[str, str]:
        ports = self.stand.ports
        return {
            "PATH": os.environ.get("PATH", ""),
            NAME: relay,
            **stage_environment(),
            **_SETTINGS,
            "MAILSTREAMS_RELAY_MODE": self._mode,
            "MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS": self.stand.proxied_kafka,
            "MAILSTREAMS_TOPIC_PREFIX": self.topics.prefix,
            "MAILSTREAMS_RELAY_SLOT": self.slot,
            "MAILSTREAMS_POSTGRES_DSN": at_port(self.dsn, ports[f"{relay}-sql"]),
            "MAILSTREAMS_POSTGRES_REPLICATION_DSN": at_port(
                self.dsn, ports[f"{relay}-replication"]
            ),
        }

    def active(self) -> str:
        """The relay that became the one that writes last, or the first one."""
        opened = {relay: self._last_open(relay) for relay in RELAYS}
        return max(RELAYS, key=lambda relay: opened[relay])

    def _last_open(self, relay: str) -> float:
        lines = read_journal(self.journal(relay))
        return max((float(at) for kind, at, *_ in lines if kind == "open"), default=0.0)


def read_journal(path: Path) -> Sequence[Sequence[str]]:
    """Its whole lines so far, by words."""
    try:
        return [line.split(" ") for line in path.read_text().splitlines()]
    except FileNotFoundError:
        return []


def at_port(dsn: str, port: int) -> str:
    """The same database by another port of this machine."""
    parts = urlsplit(dsn)
    user = f"{parts.username}@" if parts.username else ""
    return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))


@asynccontextmanager
async def running(
    stand: Stand, *, name: str, mode: str, mutation: str | None
) -> AsyncIterator[System]:
    """A system for as long as the block lasts."""
    made = System(stand, name=name, mode=mode, mutation=mutation)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()
