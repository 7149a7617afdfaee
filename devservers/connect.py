"""A local Kafka Connect worker with Debezium's PostgreSQL connector: the oracle of the relay, for development only.

with running_connect(servers.kafka.bootstrap_servers) as worker:
    worker.configure("feed", {"connector.class": ...})
    worker.wait_until_running("feed")
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devservers.errors import PrerequisiteMissing, StartFailed
from devservers.jars import fetch, locked_jars
from devservers.java import Java, find_java
from devservers.kafka import JVM_OPTIONS, escaped, java_command
from devservers.localserver import LocalServer, last_words
from devservers.places import (
    cache_directory,
    check_space,
    postgres_account,
    runs_directory,
    start_log,
)
from devservers.ports import Ports
from devservers.processes import spawn
from devservers.rundirs import RunDirectory
from devservers.settings import DEV_MAVEN, ServerSettings

LOCK_FILE = Path(__file__).with_name("connect.lock")
ANSWER_SECONDS = 60.0
RUNNING_SECONDS = 120.0
NO_MAVEN = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectInstallation:
    """Java, and the jars of the worker and of the connector."""

    java: Java
    jars: tuple[Path, ...]
    version: str  # of Debezium


def install_connect(settings: ServerSettings, cache: Path) -> ConnectInstallation:
    """Find or fetch all that a worker needs; PrerequisiteMissing where the environment says that there is no Maven."""
    locked = locked_jars(LOCK_FILE)
    if os.environ.get(DEV_MAVEN) == NO_MAVEN:
        raise PrerequisiteMissing(
            f"Kafka Connect is not there without Maven Central: unset {DEV_MAVEN} to fetch it."
        )
    worker, debezium = (
        next(jar.version for jar in locked if jar.artifact == artifact)
        for artifact in ("connect-runtime", "debezium-connector-postgres")
    )
    return ConnectInstallation(
        java=find_java(settings.java_source, cache),
        jars=fetch(locked, cache / f"connect-{worker}" / "jars"),
        version=debezium,
    )


@dataclass(slots=True, kw_only=True)
class LocalConnect(LocalServer):
    """A standalone worker of our own. Its offsets survive stop, kill and start; connectors do not."""

    stop_signal = signal.SIGTERM
    installation: ConnectInstallation
    bootstrap_servers: str
    options: Mapping[str, str]
    jvm: Sequence[str]

    @property
    def url(self) -> str:
        """Where its REST interface is."""
        return f"http://127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start the process."""
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "bootstrap.servers": self.bootstrap_servers,
            "listeners": self.url,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": "offsets",
            "offset.flush.interval.ms": "1000",
            "plugin.discovery": "service_load",
            "connector.client.config.override.policy": "All",
            **self.options,
        }
        lines = (f"{name}={escaped(value)}\n" for name, value in settings.items())
        (self.directory / "worker.properties").write_text("".join(lines), encoding="ascii")
        found = self.installation
        command = java_command(found.java, found.jars, self.directory, jvm=self.jvm)
        self.process = spawn(
            [*command, "org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties"],
            name=self.name,
            log_path=self.log_path,
            cwd=self.directory,
            stop_signal=signal.SIGKILL if self.disposable else signal.SIGTERM,
            keep_open=self.keep_open,
        )

    def is_ready(self) -> bool:
        """Whether it takes connectors."""
        with suppress(OSError, StartFailed):
            return bool(self.ask("GET", "/health")["status"] == "healthy")
        return False

    def ports_in_use(self) -> tuple[int, ...]:
        """The REST interface's."""
        return (self.port,)

    def configure(self, connector: str, config: Mapping[str, str]) -> None:
        """Make a connector, or give it another configuration; it then starts."""
        self.ask("PUT", f"/connectors/{connector}/config", dict(config))

    def pause_connector(self, connector: str) -> None:
        """End its tasks in good order and wait until they have ended; offsets are kept."""
        self.ask("PUT", f"/connectors/{connector}/stop")
        self._wait(connector, "has not stopped", lambda s: _states(s) == ["STOPPED"])

    def resume_connector(self, connector: str) -> None:
        """Start the tasks of a stopped connector, from its offsets if there are any."""
        self.ask("PUT", f"/connectors/{connector}/resume")

    def forget_offsets(self, connector: str) -> None:
        """Delete the offsets of a stopped connector."""
        self.ask("DELETE", f"/connectors/{connector}/offsets")

    def remove(self, connector: str) -> None:
        """End a connector and take it away. Its offsets are kept."""
        self.ask("DELETE", f"/connectors/{connector}")

    def status(self, connector: str) -> Any:
        """What the worker says of a connector and its tasks."""
        return self.ask("GET", f"/connectors/{connector}/status")

    def wait_until_running(self, connector: str) -> None:
        """Return when the connector and its tasks run; StartFailed if one fails."""
        self._wait(
            connector,
            "does not run",
            lambda s: len(_states(s)) > 1 and set(_states(s)) == {"RUNNING"},
        )

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the REST interface; StartFailed with the worker's words if it is refused."""
        request = urllib.request.Request(  # noqa: S310 our own loopback address
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                words = error.read().decode(errors="replace")
            raise StartFailed(f"{self.name} refuses {method} {path}: {words}") from error
        return json.loads(text) if text else None

    def _wait(self, connector: str, trouble: str, condition: Any) -> None:
        deadline = time.monotonic() + RUNNING_SECONDS
        status: Any = None
        while True:
            with suppress(StartFailed):  # not known yet, a moment after it was made
                status = self.status(connector)
                if condition(status):
                    return
            failed = status is not None and "FAILED" in _states(status)
            if failed or not self.alive or time.monotonic() > deadline:
                raise StartFailed(
                    f"Connector {connector} {trouble}: {_trace(status) or last_words(self.log_path)}"
                )
            time.sleep(0.05)


def _states(status: Any) -> list[str]:
    """The state of the connector, then of each task."""
    return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]


def _trace(status: Any) -> str:
    """Why the first failed part of it failed."""
    parts = [] if status is None else [status["connector"], *status["tasks"]]
    return next((part["trace"] for part in parts if "trace" in part), "")


@contextmanager
def running_connect(
    bootstrap_servers: str,
    settings: ServerSettings | None = None,
    *,
    options: Mapping[str, str] | None = None,
    jvm: Sequence[str] = JVM_OPTIONS,
) -> Iterator[LocalConnect]:
    """A worker while the block runs; its data are thrown away. `options` are the worker's, `jvm` replaces Java's."""
    found = (settings or ServerSettings()).with_environment()
    account = postgres_account()  # so that cache and claimed ports are those of the other servers
    cache = cache_directory(found.cache_directory, account)
    installation = install_connect(found, cache)
    check_space(cache)
    run = RunDirectory.create(runs_directory(found.runs_directory, cache, account))
    ports = Ports(cache / "ports")
    try:
        port = ports.claim(server="Kafka Connect")
        worker = LocalConnect(
            name="Kafka Connect",
            directory=run.path / "connect",
            log_path=start_log(run.path / "connect.log"),
            port=port,
            disposable=True,
            cancelled=threading.Event(),
            keep_open=(run.lock, *ports.locks),
            installation=installation,
            bootstrap_servers=bootstrap_servers,
            options=options or {},
            jvm=jvm,
        )
        try:
            worker.start()
            yield worker
        finally:
            worker.close()
    finally:
        ports.release()
        run.remove()
