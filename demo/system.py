"""Every stage and the simulator as processes of their own, on given servers."""

import base64
import hashlib
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.error import HTTPError, URLError

from devservers import Servers
from devservers.ports import Ports
from devservers.processes import Supervised, spawn

STAGES: Final = ("relay", "sender", "events", "recipients", "scheduler")
TOPIC_ARN: Final = "arn:aws:sns:eu-central-1:111122223333:ses-events-example"
SALT: Final = "a salt for demonstrations and tests only"
UNREADABLE_KEY: Final = base64.urlsafe_b64encode(hashlib.sha256(SALT.encode()).digest()).decode()
MAX_IN_FLIGHT: Final = 32


class NotWorking(Exception):
    """The system does not do what was waited for; the text says what."""


def stage_environment() -> dict[str, str]:
    """What every process is told, whatever its servers."""
    return {
        "MAILSTREAMS_RECIPIENT_SALT": SALT,
        "MAILSTREAMS_UNREADABLE_KEY": UNREADABLE_KEY,
    }


def provider_environment(simulator_url: str, sns_port: int) -> dict[str, str]:
    """The simulator in the place of SES, SNS and SQS."""
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL_SESV2": simulator_url,
        "AWS_ENDPOINT_URL_SNS": simulator_url,
        "AWS_ENDPOINT_URL_SQS": simulator_url,
        "MAILSTREAMS_SNS_TOPICS": TOPIC_ARN,
        "MAILSTREAMS_SNS_CERTIFICATE_SOURCE": simulator_url,
        "MAILSTREAMS_EVENTS_PORT": str(sns_port),
    }


def sns_endpoint(port: int) -> str:
    """Where SNS posts to."""
    return f"http://127.0.0.1:{port}/sns"


class System:
    """Starts, kills and starts again. directory gets one log a process. stages may be ("all",).

    way_to_ses: what SES's address is for the stages, given the simulator's.
    """

    def __init__(
        self,
        servers: Servers,
        *,
        dsn: str,
        directory: Path,
        topic_prefix: str = "mail.",
        settings: Mapping[str, str] | None = None,
        stages: Sequence[str] = STAGES,
        way_to_ses: Callable[[str], str] = str,
    ) -> None:
        self.dsn = dsn
        self.directory = directory
        self.stages = stages
        self._servers = servers
        self._stack = ExitStack()
        self._processes: dict[str, Supervised] = {}
        self.topic_prefix = topic_prefix
        self._given = dict(settings or {})
        self._way_to_ses = way_to_ses
        self._ports: dict[str, int] = {}
        self._environment: dict[str, str] = {}
        self.simulator_url = ""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.stop(15.0)
        self._stack.close()

    @property
    def environment(self) -> Mapping[str, str]:
        """What every stage is started with; a command on this system wants the same."""
        return self._environment

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        ports = Ports(self.directory / "ports")
        self._stack.callback(ports.release)
        self._ports = {stage: ports.claim(server=stage) for stage in (*self.stages, "sns")}
        self._environment = {
            **os.environ,
            **self._servers.environment(),
            **stage_environment(),
            "MAILSTREAMS_POSTGRES_DSN": self.dsn,
            "MAILSTREAMS_TOPIC_PREFIX": self.topic_prefix,
            # Short, so that what a kill leaves behind is settled soon.
            "MAILSTREAMS_SENDER_LEASE_S": "10",
            "MAILSTREAMS_SENDER_CONNECT_TIMEOUT_S": "1",
            "MAILSTREAMS_SENDER_READ_TIMEOUT_S": "4",
            "MAILSTREAMS_SENDER_MAX_IN_FLIGHT": str(MAX_IN_FLIGHT),
            **self._given,
        }
        self.migrate()
        self._start_simulator()
        self._environment |= provider_environment(self.simulator_url, self._ports["sns"])
        self._environment["AWS_ENDPOINT_URL_SESV2"] = self._way_to_ses(self.simulator_url)
        for stage in self.stages:
            self.start(stage)
        for stage in self.stages:
            self.wait_ready(stage)
        self.wait_for(self._subscribed, "the subscription to be confirmed", alive="simulator")

    def _subscribed(self) -> bool:
        return any(s["state"] == "confirmed" for s in self.simulator_state()["subscriptions"])

    def migrate(self) -> None:
        """Runs `mailstreams migrate`; NotWorking with its last words if it fails."""
        process = self._spawn("migrate", ["migrate"])
        if process.wait(60) != 0:
            raise NotWorking(f"mailstreams migrate failed: {self.last_words('migrate')}")
        del self._processes["migrate"]

    def _start_simulator(self) -> None:
        ready = self.directory / "simulator.json"
        ready.unlink(missing_ok=True)
        options = ["--port", "0", "--ready-file", str(ready), "--subscribe", self.sns_endpoint]
        # A shorter key than Amazon's, so that signing does not take the processor from what is shown.
        options += [
            "--signature-version",
            "mixed",
            "--key-bits",
            "1024",
            "--retry-time-scale",
            "0.25",
        ]
        self._spawn("simulator", ["simulator", *options])
        self.wait_for(ready.exists, "the simulator to listen", alive="simulator")
        self.simulator_url = json.loads(ready.read_text(encoding="utf-8"))["url"]

    def _spawn(self, name: str, arguments: list[str]) -> Supervised:
        environment = {
            "MAILSTREAMS_SENDER_JOURNAL": str(self.directory / f"{name}.journal"),
            **self._environment,
            "MAILSTREAMS_HTTP_PORT": str(self._ports.get(name, 0)),
        }
        process = spawn(
            [sys.executable, "-m", "streams", *arguments],
            name=name,
            log_path=self.directory / f"{name}.log",
            env=environment,
        )
        self._processes[name] = process
        return process

    def start(self, stage: str) -> None:
        """Starts a stage that does not run; what follows a hyphen tells replicas apart."""
        self._spawn(stage, [stage.partition("-")[0]])

    def kill(self, stage: str) -> None:
        """SIGKILL, and waits until it is gone."""
        process = self._processes[stage]
        process.kill()
        process.wait(10)

    def stop(self, stage: str) -> int:
        """SIGTERM, and waits for the drain; the exit code."""
        return self._processes[stage].stop(40.0)

    def alive(self, name: str) -> bool:
        return self._processes[name].alive

    def last_words(self, name: str) -> str:
        """The last line of its log."""
        log = self.directory / f"{name}.log"
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def wait_ready(self, stage: str, timeout_s: float = 45.0) -> None:
        """Until /health/ready says so."""
        self.wait_for(
            lambda: self.ready(stage), f"{stage} to be ready", alive=stage, timeout_s=timeout_s
        )

    def ready(self, stage: str) -> bool:
        return get(self.url(stage, "/health/ready"))[0] == 200

    def url(self, stage: str, path: str) -> str:
        """Of a stage's health and metrics."""
        return f"http://127.0.0.1:{self._ports[stage]}{path}"

    def wait_for(
        self,
        condition: Callable[[], bool],
        what: str,
        *,
        alive: str | None = None,
        timeout_s: float = 45.0,
    ) -> None:
        """Polls the condition; NotWorking after the time, or when the process has ended."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if alive is not None and not self.alive(alive):
                raise NotWorking(f"{alive} has ended: {self.last_words(alive)}")
            if time.monotonic() > deadline:
                detail = f"; its log ends: {self.last_words(alive)}" if alive else ""
                raise NotWorking(f"waited {timeout_s:g} s for {what}{detail}")
            time.sleep(0.05)

    @property
    def sns_endpoint(self) -> str:
        """Where SNS posts to."""
        return sns_endpoint(self._ports["sns"])

    @property
    def sender_group(self) -> str:
        """The consumer group of the senders."""
        return f"{self.topic_prefix}sender"

    def control(self, name: str, **fields: Any) -> Any:
        """One call of the simulator's control API."""
        return post(f"{self.simulator_url}/control/{name}", fields)

    def simulator_state(self) -> Any:
        return json.loads(get(f"{self.simulator_url}/control/state")[1])

    def ledger(self) -> list[dict[str, Any]]:
        """What the simulator accepted, call by call."""
        body = get(f"{self.simulator_url}/control/ledger")[1]
        return [json.loads(line) for line in body.splitlines()]


def get(url: str) -> tuple[int, bytes]:
    """Status and body; status 0 where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 our own loopback address
            return answer.status, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()
    except (URLError, OSError):
        return 0, b""


def post(url: str, body: Mapping[str, Any]) -> Any:
    """The JSON answer; raises HTTPError for a refusal."""
    request = urllib.request.Request(  # noqa: S310 our own loopback address
        url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        return json.loads(answer.read())
