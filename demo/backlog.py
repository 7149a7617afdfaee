"""Plain mail, committed at once, and what has become of it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from demo.system import System, get

A_TRANSACTION: Final = 500


def commit(dsn: str, count: int, name: str) -> None:
    """Messages to name-1, name-2 and so on, 500 a transaction."""
    with psycopg.connect(dsn) as connection:
        for first in range(0, count, A_TRANSACTION):
            connection.execute(
                "INSERT INTO email_outbox (recipient, sender, subject, text) "
                "SELECT %s || '-' || n || '@example.com', 'shop@example.com', 'Hello', 'Hi' "
                "FROM generate_series(%s::int, %s::int) AS n",
                (name, first + 1, min(first + A_TRANSACTION, count)),
            )
            connection.commit()


def states(dsn: str) -> Counter[str]:
    """How many messages are in each state."""
    with _asked(dsn, "SELECT state, count(*) FROM email_outbox GROUP BY state") as found:
        return Counter(dict(found.fetchall()))


def value(dsn: str, sql: str) -> int:
    """The one number that a query finds; 0 for no row."""
    with _asked(dsn, sql) as found:
        row = found.fetchone()
    return 0 if row is None else int(row[0])


@contextmanager
def _asked(dsn: str, sql: str) -> "Iterator[psycopg.Cursor[Any]]":
    with psycopg.connect(dsn) as connection:
        yield connection.execute(sql)


def unknown_outcomes(system: System, sender: str) -> int:
    """Calls of this sender whose outcome was unknown: each makes its message ambiguous, until an event settles it."""
    lines = get(system.url(sender, "/metrics"))[1].decode().splitlines()
    start = 'mailstreams_sender_outcomes_total{kind="unknown"}'
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(start))
