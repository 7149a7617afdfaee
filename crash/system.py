"""The system under test: servers, simulator, links and replicas, started and ended together."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import asyncpg

from crash.control import NotWorking, Proxies, Workers
from crash.scenario import REPLICAS, stage_of
from crash.traps import Trigger
from demo.system import provider_environment, sns_endpoint, stage_environment
from devservers.kafka import LocalKafka
from devservers.ports import Ports
from devservers.postgres import LocalPostgres
from devservers.processes import Supervised, spawn

PARTITIONS: Final = 6
# A request is too old after so long: what was not accepted by then never will be.
SIGNATURE_S: Final = 10.0
LEASE_S: Final = 7.5
# The others keep an attempt journal, which proves after a kill what was never called.
WITHOUT_JOURNAL: Final = ("sender-3",)
# The others are members of their group that survive restarts.
WITHOUT_NAME: Final = ("sender-2",)
# For a machine that is busy with other things.
_PATIENCE_S: Final = 240.0
_AUDIT: Final = Path(__file__).with_name("audit.sql")
_SETTINGS: Final = {
    "MAILSTREAMS_PARTITIONS": str(PARTITIONS),
    "MAILSTREAMS_SENDER_LEASE_S": str(LEASE_S),
    "MAILSTREAMS_SENDER_CONNECT_TIMEOUT_S": "0.5",
    "MAILSTREAMS_SENDER_READ_TIMEOUT_S": "1.5",
    "MAILSTREAMS_SENDER_MAX_IN_FLIGHT": "32",
    "MAILSTREAMS_SENDER_SUPPRESSION_STALENESS_S": "10",
    "MAILSTREAMS_SENDER_PROBE_FIRST_S": "0.5",
    "MAILSTREAMS_SENDER_PROBE_LONGEST_S": "4",
    "MAILSTREAMS_POSTGRES_TIMEOUT_S": "4",
    "MAILSTREAMS_POSTGRES_POOL_SIZE": "4",
    "MAILSTREAMS_SCHEDULER_INTERVAL_S": "0.2",
    # Nothing that sleeps may be woken by it: then it would not be seen.
    "MAILSTREAMS_SCHEDULER_SWEEP_AGE_S": "1000000",
    "MAILSTREAMS_DRAIN_S": "6",
    "MAILSTREAMS_KAFKA_SESSION_TIMEOUT_S": "5",
    "MAILSTREAMS_PROVIDER_LIST": "false",
}
_EVENTS: Final = {"duplicate_share": 0.05, "reorder_share": 0.1, "late_share": 0.03, "late_ms": [500, 4000], "late_age_s": 600.0, "early_share": 0.03}  # fmt: skip
# SNS does not give up before everything is judged.
_RETRIES: Final = {
    "minDelayTarget": 1,
    "maxDelayTarget": 8,
    "numRetries": 100,
    "backoffFunction": "linear",
}
_RULES: Final = [
    {"match": "*@example.com", "share": 0.02, "outcome": "bounce", "bounce_type": "Permanent", "bounce_subtype": "NoEmail"},
    {"match": "*@example.com", "share": 0.02, "outcome": "bounce", "bounce_type": "Transient", "bounce_subtype": "MailboxFull"},
    {"match": "*@example.com", "share": 0.01, "outcome": "complaint", "feedback_type": "abuse"},
]  # fmt: skip


class LocalServers(NamedTuple):
    """Servers that may be killed."""

    postgres: LocalPostgres
    kafka: LocalKafka


class System:
    """Everything of one run. mutation: a fault of the product that every worker of its stage gets."""

    def __init__(
        self,
        servers: LocalServers,
        *,
        directory: Path,
        name: str,
        kafka_port: int,
        mutation: str | None = None,
        replicas: Mapping[str, int] = REPLICAS,
    ) -> None:
        self.servers = servers
        self.directory = directory
        self.name = name
        self.mutation = mutation
        self.replicas = [f"{s}-{n + 1}" for s, count in replicas.items() for n in range(count)]
        self.workers = Workers(directory)
        self.proxies = Proxies(directory)
        self.triggers: dict[str, Trigger] = {}
        self.dsn = ""
        self.pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._kafka_port = kafka_port
        self._ports = Ports(directory / "ports")
        self._environments: dict[str, dict[str, str]] = {}
        self._simulator: Supervised | None = None
        self._url = ""
        self._http: aiohttp.ClientSession | None = None

    @property
    def database(self) -> "asyncpg.Pool[asyncpg.Record]":
        if self.pool is None:
            raise NotWorking("the system is not started")
        return self.pool

    # Life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when every replica is started and SNS has its subscriber."""
        (self.directory / "workers").mkdir(parents=True, exist_ok=True)
        self.dsn = await asyncio.to_thread(self.servers.postgres.create_database, self.name)
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20))
        await asyncio.gather(self.workers.start(), self.proxies.start())
        await self.proxies.link("kafka", self._kafka_port, [self.servers.kafka.proxied_port])
        sns = self._ports.claim(server="the subscriber of SNS")
        await self._start_simulator()
        endpoints = await self._make_environments(sns)
        await self._migrate()
        self.pool = await asyncpg.create_pool(self.dsn, min_size=0, max_size=10, command_timeout=20)
        await self.database.execute(_AUDIT.read_text(encoding="utf-8"))
        for replica in self.replicas:
            self.start_replica(replica)
        await self.control("rules", rules=_RULES, seed=self.name)
        await self.control("events", **_EVENTS)
        await self._subscribe(sns, endpoints)

    async def stop(self) -> None:
        """Ends everything at once."""
        await self.workers.stop()
        await self.proxies.stop()
        if self._simulator is not None:
            await asyncio.to_thread(self._simulator.stop, 2.0)
        if self._http is not None:
            await self._http.close()
        if self.pool is not None:
            self.pool.terminate()
        if self.dsn:
            await asyncio.to_thread(self.servers.postgres.drop_database, self.name)
        self._ports.release()

    async def _start_simulator(self) -> None:
        ready = self.directory / "simulator.json"
        ready.unlink(missing_ok=True)
        options = ["--port", "0", "--ready-file", str(ready), "--rate", "2000"]
        options += ["--key-bits", "1024", "--retry-time-scale", "0.25"]
        options += ["--signing-processes", "0", "--delivery-timeout-s", "5"]
        self._simulator = spawn(
            [sys.executable, "-m", "crash.judge", str(SIGNATURE_S), *options],
            name="simulator",
            log_path=self.directory / "simulator.log",
        )
        while not ready.exists():
            if not self._simulator.alive:
                raise NotWorking(f"the simulator ended: see {self.directory / 'simulator.log'}")
            await asyncio.sleep(0.05)
        self._url = json.loads(ready.read_text(encoding="utf-8"))["url"]

    async def _make_environments(self, sns: int) -> list[int]:
        """Makes the links too; the ports where events listens."""
        postgres = self.servers.postgres.dsn
        common = {
            "PATH": os.environ.get("PATH", ""),
            **stage_environment(),
            **_SETTINGS,
            "MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{self._kafka_port}",
            "MAILSTREAMS_TOPIC_PREFIX": f"{self.name}.",
            "MAILSTREAMS_RELAY_SLOT": self.name,
            "MAILSTREAMS_POSTGRES_DSN": self.dsn,
            **provider_environment(self._url, sns),
        }
        self._environments["migrate"] = common
        endpoints = []
        for replica in self.replicas:
            stage = stage_of(replica)
            link = await self._link(f"{replica}-postgres", _port(postgres))
            own = {"MAILSTREAMS_POSTGRES_DSN": _at_port(self.dsn, link)}
            if stage == "sender":
                ses = await self._link(f"{replica}-ses", _port(self._url))
                own["AWS_ENDPOINT_URL_SESV2"] = _at_port(self._url, ses)
                own["MAILSTREAMS_SENDER_INSTANCE_ID"] = (
                    "none" if replica in WITHOUT_NAME else replica
                )
                if replica not in WITHOUT_JOURNAL:
                    own["MAILSTREAMS_SENDER_JOURNAL"] = str(self.directory / f"{replica}.attempts")
            if stage == "events":
                endpoints.append(self._ports.claim(server=replica))
                own["MAILSTREAMS_EVENTS_PORT"] = str(endpoints[-1])
            self._environments[replica] = common | own
        await self.proxies.link("sns", sns, endpoints)
        return endpoints

    async def _link(self, name: str, target: int) -> int:
        port = self._ports.claim(server=name)
        await self.proxies.link(name, port, [target])
        return port

    async def _migrate(self) -> None:
        log = self.directory / "migrate.log"
        self.workers.run("migrate", ["migrate"], self._environments["migrate"], log)
        if (
            not await self.workers.ended("migrate", _PATIENCE_S)
            or self.workers.codes["migrate"] != 0
        ):
            raise NotWorking(f"mailstreams migrate failed: see {log}")

    async def _subscribe(self, sns: int, endpoints: Sequence[int]) -> None:
        """Once somebody listens: each question that is not answered is asked again, and answering costs a client of AWS."""
        await self._until(lambda: asyncio.to_thread(_all_listen, endpoints), "events to listen")
        await self.control("subscriptions", endpoint=sns_endpoint(sns))
        await self._until(self._subscribed, "SNS's subscription to be confirmed")
        await asyncio.to_thread(_set_delivery_policy, self._url)

    async def _subscribed(self) -> bool:
        state = await self.simulator_state()
        return any(s["state"] == "confirmed" for s in state["subscriptions"])

    @staticmethod
    async def _until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        while not await condition():
            if asyncio.get_running_loop().time() > deadline:
                raise NotWorking(f"waited {_PATIENCE_S:g} s for {what}")
            await asyncio.sleep(0.1)

    # Replicas -----------------------------------------------------------------------------------------------------

    def start_replica(self, replica: str) -> None:
        """It must not be running."""
        stage = stage_of(replica)
        trap = self.directory / "workers" / f"{replica}.trap"
        self.triggers[replica] = Trigger(trap, stage)
        self.workers.run(
            replica,
            [stage],
            self._environments[replica],
            self.directory / "workers" / f"{replica}.log",
            trap=str(trap),
            journal=str(self.journal(replica)),
            mutation=self.mutation,
        )

    def journal(self, replica: str) -> Path:
        return self.directory / "workers" / f"{replica}.journal"

    # The simulator ------------------------------------------------------------------------------------------------

    async def control(self, what: str, **fields: Any) -> None:
        async with self._client.post(f"{self._url}/control/{what}", json=fields) as answer:
            if answer.status != 200:
                raise NotWorking(f"the simulator refuses {what}: {await answer.text()}")

    async def simulator_state(self) -> dict[str, Any]:
        async with self._client.get(f"{self._url}/control/state") as answer:
            found: dict[str, Any] = await answer.json()
        return found

    async def ledger(self, after: int = 0) -> list[dict[str, Any]]:
        """What the simulator accepted since that sequence."""
        url = f"{self._url}/control/ledger?after={after}"
        async with self._client.get(url) as answer:
            return [json.loads(line) for line in (await answer.text()).splitlines()]

    @property
    def _client(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise NotWorking("the system is not started")
        return self._http


def _all_listen(ports: Sequence[int]) -> bool:
    for port in ports:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            return False
    return True


def _set_delivery_policy(simulator_url: str) -> None:
    import boto3

    client = boto3.client(
        "sns",
        endpoint_url=simulator_url,
        region_name="eu-central-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    for subscription in client.list_subscriptions()["Subscriptions"]:
        client.set_subscription_attributes(
            SubscriptionArn=subscription["SubscriptionArn"],
            AttributeName="DeliveryPolicy",
            AttributeValue=json.dumps({"healthyRetryPolicy": _RETRIES}),
        )


def _port(url: str) -> int:
    port = urlsplit(url).port
    if port is None:
        raise NotWorking("an address without a port")
    return port


def _at_port(url: str, port: int) -> str:
    """The same URL by another port of this machine."""
    parts = urlsplit(url)
    user = f"{parts.username}@" if parts.username else ""
    return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))
