"""PostgreSQL and Kafka together: found, started in parallel, ended together."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from devservers.errors import AlreadyRunning, DiskFull, NotStarted, StartFailed
from devservers.external import ExternalKafka, ExternalPostgres
from devservers.kafka import LocalKafka, Member, install_kafka
from devservers.places import (
    cache_directory,
    check_space,
    make_enterable,
    postgres_account,
    runs_directory,
    start_log,
)
from devservers.ports import Ports
from devservers.postgres import LocalPostgres, template_directory
from devservers.postgres_install import find_postgres
from devservers.processes import Account
from devservers.rundirs import RunDirectory, try_lock
from devservers.settings import KAFKA_BOOTSTRAP_SERVERS, POSTGRES_DSN, ServerSettings

PostgresServer = LocalPostgres | ExternalPostgres
KafkaServer = LocalKafka | ExternalKafka


class Servers:
    """The servers of one run. `start` and `stop` block; `stop` may be called at any time, and twice."""

    def __init__(self, settings: ServerSettings, *, keep_open: tuple[int, ...] = ()) -> None:
        self._settings = settings.with_environment()
        self._keep_open = keep_open
        self._run: RunDirectory | None = None
        self._ports: Ports | None = None
        self._data_lock: int | None = None
        self._postgres: PostgresServer | None = None
        self._kafka: KafkaServer | None = None
        self._further_brokers: tuple[LocalKafka, ...] = ()
        self._cancelled = threading.Event()

    @property
    def postgres(self) -> PostgresServer:
        """PostgreSQL; NotStarted if the settings left it out."""
        if self._postgres is None:
            raise NotStarted("PostgreSQL was left out: start the servers with postgres=True.")
        return self._postgres

    @property
    def kafka(self) -> KafkaServer:
        """Kafka, of several brokers the first; NotStarted if the settings left it out."""
        if self._kafka is None:
            raise NotStarted("Kafka was left out: start the servers with kafka=True.")
        return self._kafka

    @property
    def brokers(self) -> tuple[LocalKafka, ...]:
        """The brokers that were started here."""
        return tuple(server for server in self.local if isinstance(server, LocalKafka))

    @property
    def local(self) -> tuple[LocalPostgres | LocalKafka, ...]:
        """Those that were started here."""
        both = (self._postgres, self._kafka, *self._further_brokers)
        return tuple(server for server in both if isinstance(server, LocalPostgres | LocalKafka))

    def environment(self) -> dict[str, str]:
        """The variables that lead every program to these servers."""
        found = {}
        if self._postgres is not None:
            found[POSTGRES_DSN] = self._postgres.dsn
        if self._kafka is not None:
            brokers = (self._kafka, *self._further_brokers)
            found[KAFKA_BOOTSTRAP_SERVERS] = ",".join(b.bootstrap_servers for b in brokers)
        return found

    def start(self) -> None:
        """Start what the settings ask for; if anything fails, nothing is left running."""
        try:
            self._start()
        except OSError as error:
            self.stop()
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(
                    f"The disk is full ({error.filename}): make room, or point XDG_CACHE_HOME elsewhere."
                ) from error
            raise
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End what was started here, and throw its data away unless a data directory was given."""
        for server in reversed(self.local):
            server.close()
        if self._ports is not None:
            self._ports.release()
        if self._data_lock is not None:
            os.close(self._data_lock)
            self._data_lock = None
        if self._run is not None:
            self._run.remove()
            self._run = None

    def _start(self) -> None:
        settings = self._settings
        if settings.postgres and settings.postgres_dsn:
            self._postgres = ExternalPostgres(address=settings.postgres_dsn)
        if settings.kafka and settings.kafka_bootstrap_servers:
            self._kafka = ExternalKafka(bootstrap_servers=settings.kafka_bootstrap_servers)
        steps = [server.start for server in (self._postgres, self._kafka) if server is not None]
        steps += self._local_parts()
        run_in_parallel(steps, self._cancelled)

    def _local_parts(self) -> list[Callable[[], None]]:
        """The starts of the local servers, once there is a place for their data."""
        settings = self._settings
        wants_postgres = settings.postgres and self._postgres is None
        wants_kafka = settings.kafka and self._kafka is None
        if not (wants_postgres or wants_kafka):
            return []
        if settings.kafka_brokers > 1 and (settings.data_directory or settings.kafka_proxy_port):
            raise StartFailed(
                "Several brokers run on throw-away data and without a proxy: leave out data_directory and kafka_proxy_port."
            )
        account = postgres_account() if wants_postgres else None
        cache = cache_directory(settings.cache_directory, account)
        check_space(cache)
        self._run = RunDirectory.create(runs_directory(settings.runs_directory, cache, account))
        self._ports = Ports(cache / "ports")
        scratch = self._run.path
        data = scratch if settings.data_directory is None else self._hold(settings.data_directory)
        parts: list[Callable[[], None]] = []
        if wants_postgres:
            parts.append(lambda: self._start_postgres(cache, data, account))
        if wants_kafka:
            parts.append(lambda: self._start_kafka(cache, data, scratch))
        return parts

    def _hold(self, data: Path) -> Path:
        """Lock a data directory for this run and for each of its processes."""
        lock = try_lock(make_enterable(data.absolute()) / "lock")
        if lock is None:
            raise AlreadyRunning(
                f"Servers run on {data} already: stop them, or choose another directory."
            )
        self._data_lock = lock
        return data.absolute()

    def _start_postgres(self, cache: Path, data: Path, account: Account | None) -> None:
        settings = self._settings
        port = self._claim(settings.postgres_port, "PostgreSQL")
        installation = find_postgres(settings.postgres_source, cache, account)
        self._postgres = LocalPostgres(
            name="PostgreSQL",
            directory=data / "postgres",
            log_path=start_log(data / "postgres.log"),
            port=port,
            disposable=settings.data_directory is None,
            keep_open=self._locks(),
            installation=installation,
            template=template_directory(installation, cache, account),
            account=account,
            cancelled=self._cancelled,
            options=settings.postgres_options,
        )
        self._postgres.start()

    def _start_kafka(self, cache: Path, data: Path, scratch: Path) -> None:
        settings = self._settings
        count = settings.kafka_brokers
        installation = install_kafka(settings.java_source, cache)
        ports = [self._claim(0 if n else settings.kafka_port, "Kafka") for n in range(count)]
        controllers = [self._claim(0, "Kafka") for _ in range(count)]
        proxied = self._claim(0, "Kafka") if settings.kafka_proxy_port else 0
        brokers = [
            LocalKafka(
                name=f"Kafka {n + 1}" if count > 1 else "Kafka",
                directory=data / (f"kafka-{n + 1}" if count > 1 else "kafka"),
                log_path=start_log(data / (f"kafka-{n + 1}.log" if count > 1 else "kafka.log")),
                port=ports[n],
                disposable=settings.data_directory is None,
                keep_open=self._locks(),
                installation=installation,
                controller_port=controllers[n],
                scratch=scratch,
                cancelled=self._cancelled,
                options=settings.kafka_options,
                member=Member(number=n + 1, controller_ports=controllers) if count > 1 else None,
                proxy_port=settings.kafka_proxy_port,
                proxied_port=proxied,
            )
            for n in range(count)
        ]
        self._kafka, self._further_brokers = brokers[0], tuple(brokers[1:])
        run_in_parallel([broker.start for broker in brokers], self._cancelled)

    def _claim(self, port: int, server: str) -> int:
        if self._ports is None:
            raise NotStarted("Ports are handed out while the servers start: call start() first.")
        return self._ports.claim(port, server=server)

    def _locks(self) -> tuple[int, ...]:
        ports = [] if self._ports is None else self._ports.locks
        held = [None if self._run is None else self._run.lock, self._data_lock, *ports]
        return (*(lock for lock in held if lock is not None), *self._keep_open)


def run_in_parallel(steps: Sequence[Callable[[], None]], cancelled: threading.Event) -> None:
    """Each step in a thread; at the first failure `cancelled` is set, all are joined, and it is raised."""
    failures: list[BaseException] = []

    def guarded(step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            failures.append(error)
            cancelled.set()

    threads = [threading.Thread(target=guarded, args=(step,), daemon=True) for step in steps]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        cancelled.set()
        for thread in threads:
            thread.join()
        raise
    if failures:
        raise failures[0]
