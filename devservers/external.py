"""Servers that somebody else runs: used as they are, never stopped."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import NoReturn

import psycopg

from devservers.databases import Databases
from devservers.errors import ExternalServer, StartFailed
from devservers.settings import KAFKA_BOOTSTRAP_SERVERS, POSTGRES_DSN


class NotOurs:
    """Refuses whatever would touch the process of a server that is not ours."""

    __slots__ = ()
    variable = ""

    def stop(self) -> NoReturn:
        """Refused."""
        raise self._refusal("stopped")

    def kill(self) -> NoReturn:
        """Refused."""
        raise self._refusal("killed")

    def pause(self) -> NoReturn:
        """Refused."""
        raise self._refusal("frozen")

    def cont(self) -> NoReturn:
        """Refused."""
        raise self._refusal("continued")

    @property
    def pid(self) -> NoReturn:
        """Refused."""
        raise self._refusal("addressed by process id")

    def _refusal(self, done: str) -> ExternalServer:
        return ExternalServer(
            f"The server named by {self.variable} is not ours and cannot be {done}: unset {self.variable} to use a local one."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalPostgres(NotOurs, Databases):
    """The PostgreSQL that the environment names."""

    variable = POSTGRES_DSN
    address: str

    @property
    def dsn(self) -> str:
        """As given."""
        return self.address

    @property
    def alive(self) -> bool:
        """Whether it lets us in."""
        try:
            psycopg.connect(self.address, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def start(self) -> None:
        """Check that it can be reached."""
        if not self.alive:
            raise StartFailed(
                f"PostgreSQL at {self.variable} cannot be reached: start it, correct the variable, or unset it."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalKafka(NotOurs):
    """The Kafka that the environment names."""

    variable = KAFKA_BOOTSTRAP_SERVERS
    bootstrap_servers: str

    @property
    def alive(self) -> bool:
        """Whether one of its addresses takes connections."""
        return any(map(_takes_connections, self.bootstrap_servers.split(",")))

    def start(self) -> None:
        """Check that it can be reached."""
        if not self.alive:
            raise StartFailed(
                f"Kafka at {self.variable} cannot be reached: start it, correct the variable, or unset it."
            )


def _takes_connections(address: str) -> bool:
    host, _, port = address.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), 5).close()
    except (OSError, ValueError):
        return False
    return True
