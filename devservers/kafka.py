"""A local Apache Kafka: one node or several, KRaft, loopback only."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from devservers.jars import fetch, kafka_version, locked_jars
from devservers.java import Java, find_java
from devservers.localserver import LocalServer, run_tool
from devservers.places import publish
from devservers.processes import Supervised, spawn
from devservers.settings import Source

LOG_CONFIGURATION = Path(__file__).with_name("log4j2.xml")
CLUSTER_ID = "bWFpbHN0cmVhbXMtZGV2MA"  # 16 bytes in base64, the same for every development cluster
ARCHIVE_CLASSES = Path(__file__).with_name("archive_classes.py")
OUTDATED_SECONDS = 30 * 24 * 3600.0
JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaInstallation:
    """Java, jars and a formatted log directory to start from."""

    java: Java
    jars: tuple[Path, ...]
    version: str
    formatted: Path
    archive: Path  # class data, there from some later start on


def install_kafka(source: Source, cache: Path) -> KafkaInstallation:
    """Find or fetch all that a broker needs; the second time takes a fraction of a second."""
    locked = locked_jars()
    version = kafka_version(locked)
    home = cache / f"kafka-{version}"
    java = find_java(source, cache)
    jars = fetch(locked, home / "jars")

    def build(building: Path, lock: int) -> None:
        building.mkdir()
        write_properties(building, 0, 0, {})
        command = java_command(java, jars, building)
        command += [
            "kafka.tools.StorageTool",
            "format",
            "-t",
            CLUSTER_ID,
            "-c",
            "server.properties",
        ]
        log = building / "tool.log"
        tool = spawn(command, name="Kafka's tool", log_path=log, cwd=building, keep_open=(lock,))
        run_tool(tool, log, "Kafka's directory could not be formatted")
        log.unlink()
        (building / "server.properties").unlink()

    formatted = publish(home / "formatted", build)
    archive = home / f"classes-{fingerprint(java, jars)}.jsa"
    return KafkaInstallation(
        java=java, jars=jars, version=version, formatted=formatted, archive=archive
    )


def fingerprint(java: Java, jars: Sequence[Path]) -> str:
    """What a class-data archive depends on: Java itself, and place, size and time of each jar."""
    parts = [java.program, java.version, *JVM_OPTIONS]
    parts += [f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def java_command(
    java: Java,
    jars: Sequence[Path],
    directory: Path,
    options: Sequence[str] = (),
    jvm: Sequence[str] = JVM_OPTIONS,
) -> list[str]:
    """`java` with the class path; what it drops goes below `directory`, not into /tmp."""
    temporary = directory / "tmp"
    temporary.mkdir(exist_ok=True)
    return [
        java.program,
        *jvm,
        *options,
        f"-Djava.io.tmpdir={temporary}",
        f"-Dlog4j2.configurationFile={LOG_CONFIGURATION.as_uri()}",
        "-cp",
        os.pathsep.join(map(str, jars)),
    ]


def write_properties(
    directory: Path, port: int, controller_port: int, options: Mapping[str, str]
) -> None:
    """Write `server.properties`. Paths in it are relative, so that no character needs care."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": "data",
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.backoff.ms": "500",
        # After kill -9 a restart waits until the old session has run out.
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
        **options,
    }
    lines = (f"{name}={escaped(value)}\n" for name, value in settings.items())
    (directory / "server.properties").write_text("".join(lines), encoding="ascii")


def escaped(value: str) -> str:
    """A value as Java's property files want it."""
    value = value.replace("\\", "\\\\").replace("\n", "\\n")
    units = value.encode("utf-16-be")
    pairs = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node of a cluster of several; controller_ports are those of all nodes, in the order of their numbers from 1."""

    number: int
    controller_ports: Sequence[int]

    def options(self) -> dict[str, str]:
        """Everything is kept by three nodes where there are so many, and written while one of them may be away."""
        nodes = len(self.controller_ports)
        voters = (f"{n}@127.0.0.1:{port}" for n, port in enumerate(self.controller_ports, 1))
        replicas, in_sync = str(min(3, nodes)), str(max(1, min(3, nodes) - 1))
        return {
            "node.id": str(self.number),
            "controller.quorum.voters": ",".join(voters),
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
        }

    def mark(self, data: Path) -> None:
        """Make a copied data directory this node's own."""
        properties = data / "meta.properties"
        own = {"node.id": str(self.number), "directory.id": _new_id()}
        lines = [line.partition("=") for line in properties.read_text().splitlines()]
        text = "".join(f"{name}{sign}{own.get(name, value)}\n" for name, sign, value in lines)
        properties.write_text(text)


def _new_id() -> str:
    """As Kafka writes its ids: 16 bytes in base64 without padding, not beginning with a dash."""
    return "A" + base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")[1:]


def proxied_options(
    port: int, controller_port: int, proxied_port: int, proxy_port: int
) -> dict[str, str]:
    """A second listener: whoever comes to proxied_port is told to come by proxy_port from then on."""
    here = f"PLAINTEXT://127.0.0.1:{port}"
    return {
        "listeners": f"{here},PROXIED://127.0.0.1:{proxied_port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"{here},PROXIED://127.0.0.1:{proxy_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }


@dataclass(slots=True, kw_only=True)
class LocalKafka(LocalServer):
    """A broker of our own. Data survive stop, kill and start; so does the port."""

    stop_signal = signal.SIGTERM
    installation: KafkaInstallation
    controller_port: int
    scratch: Path  # for what is thrown away at the end
    options: Mapping[str, str] = field(default_factory=dict)
    member: Member | None = None  # None: the only node
    proxy_port: int = 0  # of a proxy in front of proxied_port
    proxied_port: int = 0
    archiving: Supervised | None = field(default=None, init=False)

    @property
    def bootstrap_servers(self) -> str:
        """Host and port, as clients want it."""
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start the process; the data directory is made from the formatted one if absent."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if not (self.directory / "data").exists():
            draft = self.directory / "data.draft"
            shutil.rmtree(draft, ignore_errors=True)
            shutil.copytree(self.installation.formatted / "data", draft)
            if self.member is not None:
                self.member.mark(draft)
            draft.rename(self.directory / "data")
        write_properties(self.directory, self.port, self.controller_port, self._all_options())
        archive = self.installation.archive
        options = (
            [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
            if archive.exists()
            else [f"-XX:DumpLoadedClassList={self.scratch / f'classes{self.port}.txt'}"]
        )
        self.process = spawn(
            [*self._java(options), "kafka.Kafka", "server.properties"],
            name=self.name,
            log_path=self.log_path,
            cwd=self.directory,
            stop_signal=signal.SIGKILL if self.disposable else signal.SIGTERM,
            keep_open=self.keep_open,
        )

    def _all_options(self) -> dict[str, str]:
        options = {} if self.member is None else self.member.options()
        if self.proxied_port:
            options |= proxied_options(
                self.port, self.controller_port, self.proxied_port, self.proxy_port
            )
        return options | dict(self.options)

    def start(self) -> None:
        """Start it and wait until it serves clients. Nothing happens if it runs."""
        LocalServer.start(self)
        if self.archiving is None:
            self.archiving = self._archive_classes()

    def close(self) -> None:
        """End it for good."""
        if self.archiving is not None:
            self.archiving.stop(0)
        LocalServer.close(self)

    def _java(self, options: Sequence[str]) -> list[str]:
        return java_command(self.installation.java, self.installation.jars, self.directory, options)

    def _archive_classes(self) -> Supervised | None:
        """Beside the running broker, make the archive for the next start from the classes in use now."""
        archive, draft = self.installation.archive, self.scratch / "classes.jsa"
        if self.member is not None:  # the only node makes it some other time
            return None
        if archive.exists() or Path(f"{archive}.failed").exists():
            return None
        classes = shutil.copyfile(
            self.scratch / f"classes{self.port}.txt", self.scratch / "archive.txt"
        )
        options = [
            "-Xshare:dump",
            f"-XX:SharedClassListFile={classes}",
            f"-XX:SharedArchiveFile={draft}",
        ]
        for outdated in archive.parent.glob("classes-*.jsa"):
            if time.time() - outdated.stat().st_atime > OUTDATED_SECONDS:
                outdated.unlink(missing_ok=True)
        return spawn(
            [
                sys.executable,
                "-I",
                "-S",
                ARCHIVE_CLASSES,
                draft,
                archive,
                "--",
                *self._java(options),
            ],
            name="the class-data archive",
            log_path=self.scratch / "archive.log",
            stop_signal=signal.SIGKILL,
            keep_open=self.keep_open,
        )

    def is_ready(self) -> bool:
        """Whether it answers a request: the port opens a moment before requests are served."""
        return answers_api_versions("127.0.0.1", self.port)

    def ports_in_use(self) -> tuple[int, ...]:
        """Every port that it listens on."""
        return (
            self.port,
            self.controller_port,
            *([self.proxied_port] if self.proxied_port else ()),
        )


def answers_api_versions(host: str, port: int, timeout: float = 1.0) -> bool:
    """Ask a broker for its API versions (request 18, version 0), the least that Kafka answers."""
    request = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(10)
    except OSError:
        return False
    return len(answer) == 10 and struct.unpack(">iih", answer)[1:] == (1, 0)
