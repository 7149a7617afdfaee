"""Making and dropping databases on a server, local or not."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

DROP_SECONDS = 10.0


class Databases(ABC):
    """Administration over the server's DSN. Blocking; each call opens a connection of its own."""

    __slots__ = ()

    @property
    @abstractmethod
    def dsn(self) -> str:
        """For asyncpg and libpq alike."""

    def dsn_of(self, database: str) -> str:
        """The same server, another database."""
        return urlunsplit(urlsplit(self.dsn)._replace(path="/" + quote(database, safe="")))

    def create_database(self, name: str, template: str | None = None) -> str:
        """Make a database, empty or a copy of `template` (to which nobody may be connected); its DSN."""
        statement = sql.SQL("create database {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" template {}").format(sql.Identifier(template))
        with self._administration() as connection:
            connection.execute(statement)
        return self.dsn_of(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, its replication slots and its connections. Nothing happens if it is absent."""
        statement = sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
        with self._administration() as connection:
            _drop_slots(connection, name)
            connection.execute(statement)

    def _administration(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.dsn_of("postgres"), autocommit=True, connect_timeout=10)


def _drop_slots(connection: psycopg.Connection[tuple[object, ...]], database: str) -> None:
    """A slot in use is let go of by its process first."""
    deadline = time.monotonic() + DROP_SECONDS
    while True:
        connection.execute(
            "select pg_terminate_backend(active_pid) from pg_replication_slots"
            " where database = %s and active_pid is not null",
            [database],
        )
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
            " where database = %s and active_pid is null",
            [database],
        )
        left = connection.execute(
            "select from pg_replication_slots where database = %s", [database]
        )
        if left.rowcount == 0 or time.monotonic() > deadline:
            return
        time.sleep(0.02)
