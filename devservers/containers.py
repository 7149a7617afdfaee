"""The servers of `docker-compose.yml` through the package testcontainers, on free loopback ports."""

from __future__ import annotations

import importlib
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from devservers.errors import PrerequisiteMissing, StartFailed
from devservers.external import ExternalPostgres
from devservers.kafka import answers_api_versions
from devservers.places import cache_directory
from devservers.ports import Ports
from devservers.servers import Servers
from devservers.settings import KAFKA_BOOTSTRAP_SERVERS, POSTGRES_DSN, SERVERS, ServerSettings

COMPOSE_FILE = Path(__file__).resolve().parent.parent / "docker-compose.yml"
READY_SECONDS = 120.0
POSTGRES_PORT_WORD, KAFKA_PORT_WORD = "${POSTGRES_PORT:-5432}", "${KAFKA_PORT:-9092}"


def services(postgres_port: int, kafka_port: int) -> dict[str, dict[str, Any]]:
    """The compose file's services with these ports."""
    try:
        import yaml
    except ImportError as error:
        raise PrerequisiteMissing(
            "The package pyyaml is missing: install the dependency group dev."
        ) from error
    text = COMPOSE_FILE.read_text(encoding="utf-8")
    text = text.replace(POSTGRES_PORT_WORD, str(postgres_port))
    found: dict[str, dict[str, Any]] = yaml.safe_load(
        text.replace(KAFKA_PORT_WORD, str(kafka_port))
    )["services"]
    return found


@contextmanager
def running_in_containers(settings: ServerSettings | None = None) -> Iterator[Servers]:
    """Like `running`, but what the settings and the environment leave open runs in containers."""
    asked = (settings or ServerSettings()).with_environment()
    with container_addresses(
        postgres=asked.postgres and asked.postgres_dsn is None,
        kafka=asked.kafka and asked.kafka_bootstrap_servers is None,
    ) as addresses:
        servers = Servers(asked.with_environment(addresses))
        servers.start()
        try:
            yield servers
        finally:
            servers.stop()


@contextmanager
def container_addresses(*, postgres: bool, kafka: bool) -> Iterator[Mapping[str, str]]:
    """Containers while the block runs; the variables that lead to them."""
    with ExitStack() as stack:
        ports = Ports(cache_directory(None, None) / "ports")
        stack.callback(ports.release)
        postgres_port, kafka_port = ports.claim(), ports.claim()
        described = services(postgres_port, kafka_port)
        addresses = {}
        if postgres:
            stack.enter_context(_container(described["postgres"]))
            server = ExternalPostgres(address=dsn_of(described["postgres"], postgres_port))
            _wait(lambda: server.alive, "PostgreSQL")
            addresses[POSTGRES_DSN] = server.dsn
        if kafka:
            stack.enter_context(_container(described["kafka"]))
            _wait(lambda: answers_api_versions("127.0.0.1", kafka_port), "Kafka")
            addresses[KAFKA_BOOTSTRAP_SERVERS] = f"127.0.0.1:{kafka_port}"
        yield addresses


def dsn_of(service: Mapping[str, Any], port: int) -> str:
    """The address that the service's own login makes."""
    login = service["environment"]
    user, password = login["POSTGRES_USER"], login["POSTGRES_PASSWORD"]
    return f"postgresql://{user}:{password}@127.0.0.1:{port}/{login['POSTGRES_DB']}"


def _container(service: Mapping[str, Any]) -> Any:
    try:
        refused: type[Exception] = importlib.import_module("docker.errors").DockerException
        from testcontainers.core.container import DockerContainer
    except ImportError as error:
        raise PrerequisiteMissing(
            "The package testcontainers is missing: install the dependency group testcontainers."
        ) from error
    try:
        container = DockerContainer(service["image"])
    except refused as error:
        raise PrerequisiteMissing(
            f"No Docker engine answers: start it, or unset {SERVERS} to use local servers."
        ) from error
    container.env.update(service["environment"])
    if "command" in service:
        container.with_command(shlex.split(service["command"]))
    for mapping in service["ports"]:
        host, outer, inner = mapping.split(":")
        container.ports[f"{inner}/tcp"] = (host, int(outer))
    return container


def _wait(is_ready: Callable[[], bool], name: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not is_ready():
        if time.monotonic() > deadline:
            raise StartFailed(
                f"{name} in its container served nobody after {READY_SECONDS:g} s: see `docker logs`."
            )
        time.sleep(0.2)
