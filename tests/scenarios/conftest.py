"""Servers of the scenarios' own, with a proxy before Kafka that a scenario may send its processes by."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import devservers
from devservers import Servers, ServerSettings
from devservers.kafka import LocalKafka
from devservers.settings import KAFKA_BOOTSTRAP_SERVERS, POSTGRES_DSN, SERVERS
from devservers.tcp_proxy import TcpProxy


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """PostgreSQL, one broker, and the proxy before it, which lets everything pass at first."""

    servers: Servers
    broker: LocalKafka
    proxy: TcpProxy

    @property
    def by_proxy(self) -> str:
        return f"127.0.0.1:{self.proxy.port}"


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with (
        pytest.MonkeyPatch.context() as patch,
        TcpProxy(kafka=True) as proxy,
    ):
        for name in (POSTGRES_DSN, KAFKA_BOOTSTRAP_SERVERS, SERVERS):
            patch.delenv(name, raising=False)
        settings = ServerSettings(kafka_proxy_port=proxy.port)
        with devservers.running(settings) as servers:
            [broker] = servers.brokers
            proxy.upstream = broker.proxied_port
            yield Place(servers=servers, broker=broker, proxy=proxy)


@pytest.fixture
def healed(place: Place) -> Iterator[Place]:
    """The place, whose proxy lets everything pass again afterwards."""
    yield place
    place.proxy.answer_delay_s = 0.0
    place.proxy.dropped_answers = frozenset()
