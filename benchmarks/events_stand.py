"""Where the intake is measured: real servers, a signed corpus, the rows that it is about, one events process, one load generator."""

import pickle
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Final, Self

import psycopg

import devservers
from benchmarks import machine
from benchmarks.certificate_server import serving_certificate
from benchmarks.sns_corpus import CERTIFICATE_NAME, TENANT, TOPIC, make_corpus, make_key
from benchmarks.sns_load import Load, post_all
from benchmarks.stage_process import StageProcess, run_migrate, running_stage
from demo.system import stage_environment
from devservers.ports import Ports

CONNECTIONS: Final = 64
DRAIN_S: Final = 240.0


class EventsStand:
    """A context: everything runs inside of it."""

    def __init__(self, notifications: int) -> None:
        self._stack = ExitStack()
        self.posted = 0
        self.key = make_key()
        self.corpus = make_corpus(self.key, notifications, seed=1)

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
        self.directory = Path(enter(tempfile.TemporaryDirectory(prefix="mailstreams-bench-")))
        self._requests = self.directory / "requests.pickle"
        self._requests.write_bytes(pickle.dumps([n.request for n in self.corpus.notices]))
        self.servers = enter(devservers.running())
        name = f"bench_{time.time_ns()}"
        self.dsn = self.servers.postgres.create_database(name)
        self._stack.callback(self.servers.postgres.drop_database, name)
        self.topic_prefix = f"{name}."
        self._ports = Ports(self.directory / "ports")
        self._stack.callback(self._ports.release)
        self._sns_port = self._ports.claim(server="sns")
        pem, folder = self.key.certificate, self.directory / "certificate"
        source = enter(serving_certificate(CERTIFICATE_NAME, pem, folder))
        self._environment = self._settings(source)
        run_migrate(self._environment, self.directory)
        self._insert_mails()
        self._generator = enter(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
        self.events = self.stage("events")

    def _settings(self, certificate_source: str) -> dict[str, str]:
        return {
            **machine.environment(),
            **self.servers.environment(),
            **stage_environment(),
            "MAILSTREAMS_POSTGRES_DSN": self.dsn,
            "MAILSTREAMS_TOPIC_PREFIX": self.topic_prefix,
            "MAILSTREAMS_RELAY_SLOT": self.topic_prefix.rstrip("."),
            "MAILSTREAMS_SNS_TOPICS": TOPIC,
            "MAILSTREAMS_SNS_CERTIFICATE_SOURCE": certificate_source,
            "MAILSTREAMS_EVENTS_PORT": str(self._sns_port),
            "AWS_REGION": "eu-central-1",
        }

    def _insert_mails(self) -> None:
        """The rows and attempts that the notifications are about, as the sender leaves them."""
        mails = self.corpus.mails
        with psycopg.connect(self.dsn) as connection, connection.cursor() as cursor:
            with cursor.copy(
                "COPY email_outbox (id, tenant, recipient, sender, subject, text) FROM STDIN"
            ) as copy:
                for m in mails:
                    copy.write_row(
                        (m.outbox_id, TENANT, m.recipient, "mail@example.com", "Hello", "Hi")
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

    def stage(self, name: str) -> StageProcess:
        """Starts it; it ends with the context."""
        return self._stack.enter_context(
            running_stage(
                name,
                environment=self._environment,
                health_port=self._ports.claim(server=name),
                directory=self.directory,
            )
        )

    def post(self, count: int, per_second: float | None = None) -> "Future[Load]":
        """Posts the next so many notifications to the events stage."""
        first, self.posted = self.posted, self.posted + count
        return self.submit(first, self.posted, self._sns_port, per_second)

    def submit(self, first: int, last: int, port: int, per_second: float | None) -> "Future[Load]":
        """Posts some notifications, wherever."""
        return self._generator.submit(
            _checked_load, self._requests, first, last, port=port, per_second=per_second
        )

    def wait_folded(self) -> None:
        """Until PostgreSQL has the events of all that was posted."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            deadline = time.monotonic() + DRAIN_S
            found = -1
            while found < self.posted:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"{found} of {self.posted} events were folded in {DRAIN_S:g} s"
                    )
                time.sleep(0.1)
                row = connection.execute("SELECT count(*) FROM email_event").fetchone()
                found = -1 if row is None else row[0]


def _checked_load(
    path: Path, first: int, last: int, *, port: int, per_second: float | None
) -> Load:
    load = post_all(path, first, last, port=port, connections=CONNECTIONS, per_second=per_second)
    if load.statuses != {"200": last - first}:
        raise RuntimeError(f"the endpoint answered {load.statuses}")
    return load
