"""PostgreSQL's streaming replication protocol through psycopg: one connection, never through a pooler.

psycopg has no replication support of its own (its issue 71), but its libpq layer passes the copy messages on.
"""

import asyncio
import logging
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import pq, sql

from streams.domain.acknowledgement import NOWHERE, Lsn, lsn_text, parse_lsn
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.pgoutput import status_update
from streams.domain.slots import Cluster, NewSlot

log = logging.getLogger(__name__)

# The server ends a silent client after this time, which also bounds how long a dead relay holds the slot.
SERVER_TIMEOUT_S: Final = 10
_OPTIONS: Final[dict[str, Any]] = {
    "replication": "database",
    "options": f"-c wal_sender_timeout={SERVER_TIMEOUT_S}s -c statement_timeout=0",
    "connect_timeout": 10,
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
# Linux tells of an end behind unread bytes; hang-ups and errors are told everywhere.
_ENDED: Final = getattr(select, "POLLRDHUP", 0)
# Messages at a time, roughly.
_CHUNK: Final = 1500
# Any fixed number; with the slot's name it makes the lock that keeps two relays from recovering one slot at once.
_LOCK: Final = 1_951_627_417
_DENIED: Final = (
    "authentication failed",
    "no pg_hba.conf entry",
    "permission denied",
    "replication role",
    "REPLICATION attribute",
)


class ReplicationConnection:
    """The relay's connection to its slot. Methods raise Unavailable when the server is away, and then want close()."""

    def __init__(self, dsn: str, *, slot: str, publication: str) -> None:
        self._dsn = dsn
        self._slot = slot
        self._publication = publication
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._libpq: Any = None
        self._readable: asyncio.Future[None] | None = None
        self._watched: int | None = None
        self._over: Exception | None = None

    async def connect(self) -> None:
        """Connects without blocking the loop; nothing happens if it is connected."""
        if self._connection is not None:
            return
        options = dict(_OPTIONS)
        given = psycopg.conninfo.conninfo_to_dict(self._dsn).get("options")
        if given:
            options["options"] = f"{given} {options['options']}"
        try:
            self._connection = await psycopg.AsyncConnection.connect(
                self._dsn,
                autocommit=True,
                application_name="mailstreams relay",
                # psycopg prepares what is executed again and again, which a replication connection refuses.
                prepare_threshold=None,
                **options,
            )
        except psycopg.Error as error:
            text = str(error).strip()
            if any(words in text for words in _DENIED):
                raise Misconfigured(
                    f"PostgreSQL refuses the replication connection: {text}; the relay's role needs the attribute "
                    "REPLICATION (ALTER ROLE ... REPLICATION) and a line in pg_hba.conf; where that may not be, set MAILSTREAMS_RELAY_MODE=poll"
                ) from error
            raise Unavailable(f"PostgreSQL (replication): {text}") from error
        self._libpq = self._connection.pgconn
        self._over = None

    @property
    def backend_pid(self) -> int:
        """The server process of this connection."""
        return int(self._libpq.backend_pid)

    @property
    def lost(self) -> bool:
        """Whether the connection is gone, and with it the lock: another relay may write by now."""
        libpq = self._libpq
        if libpq is None or self._over is not None or libpq.status != pq.ConnStatus.OK:
            return True
        # The server's end is seen although messages before it are unread.
        poll = select.poll()
        poll.register(libpq.socket, _ENDED)
        return bool(poll.poll(0))

    async def try_lock(self) -> bool:
        """Becomes the one relay of this slot while the connection lives; False if another one is."""
        row = await self._row("SELECT pg_try_advisory_lock({}, hashtext({}))", _LOCK, self._slot)
        return bool(row[0])

    async def identify(self) -> Cluster:
        """Which cluster and timeline this is."""
        row = await self._row("IDENTIFY_SYSTEM")
        return Cluster(system_id=str(row[0]), timeline=int(row[1]))

    async def create_slot(self) -> NewSlot:
        """Makes the slot and exports the snapshot of its start, which lasts until the next call. Waits for the
        transactions that write at the moment."""
        row = await self._row(
            "CREATE_REPLICATION_SLOT {} LOGICAL pgoutput (SNAPSHOT 'export')", name=self._slot
        )
        return NewSlot(start=parse_lsn(str(row[1])), snapshot=str(row[2]))

    async def drop_slot(self) -> None:
        """Drops the slot; Unavailable if somebody reads it."""
        with _errors():
            await self._live().execute(
                sql.SQL("DROP_REPLICATION_SLOT {}").format(sql.Identifier(self._slot))
            )

    async def start(self, position: Lsn = NOWHERE) -> bool:
        """Starts the stream where the slot stands, or at the position if that is further on; False if somebody else reads the
        slot."""
        command = sql.SQL(
            "START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names {})"
        ).format(
            sql.Identifier(self._slot),
            sql.SQL(lsn_text(position)),
            sql.Literal(f'"{self._publication}"'),
        )
        try:
            await self._live().execute(command)
        except psycopg.errors.ObjectInUse:
            return False
        except psycopg.Error as error:
            raise Unavailable(f"PostgreSQL does not start the stream: {error}") from error
        return True

    async def receive(self) -> list[bytes]:
        """The messages that are there, else waits for some; an empty list after wake()."""
        messages = self._buffered()
        if messages:
            await asyncio.sleep(0)  # or a stream that never runs dry would starve the loop
            return messages
        loop = asyncio.get_running_loop()
        self._readable = loop.create_future()
        self._watch(loop)
        try:
            await self._readable
        finally:
            self._readable = None
        return self._buffered()

    def wake(self) -> None:
        """Makes receive() return."""
        if self._readable is not None and not self._readable.done():
            self._readable.set_result(None)

    def send_status(self, *, written: Lsn, flushed: Lsn) -> None:
        """Tells the server that we live, what was received and what it may forget. Never blocks."""
        if self._libpq is None:
            return
        with _errors():
            self._libpq.put_copy_data(
                status_update(written=written, flushed=flushed, now=time.time())
            )
            # What the socket does not take now goes with the next status.
            self._libpq.flush()

    async def close(self) -> None:
        """Disconnects, which frees slot and lock. Idempotent."""
        self._unwatch()
        connection, self._connection, self._libpq = self._connection, None, None
        if connection is not None:
            await connection.close()

    def _buffered(self) -> list[bytes]:
        libpq = self._libpq
        if libpq is None:
            raise Unavailable("PostgreSQL (replication): not connected")
        if self._over is not None:
            raise self._over
        messages: list[bytes] = []
        get_copy_data, append = libpq.get_copy_data, messages.append
        before = -1
        with _errors():
            # libpq reads some 16 KiB at a time; larger chunks make everything behind this cheaper.
            while before < len(messages) < _CHUNK:
                before = len(messages)
                libpq.consume_input()
                length, data = get_copy_data(1)
                while length > 0:
                    append(bytes(data))
                    length, data = get_copy_data(1)
                if length < 0:
                    break
        if length < 0:
            self._over = self._ended()
            if not messages:
                raise self._over
        return messages

    def _ended(self) -> Exception:
        """Why the server ended the stream."""
        result = None if self._libpq.is_busy() else self._libpq.get_result()
        text, state = "the server ended it", ""
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            text = result.error_message.decode(errors="replace").strip()
            state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        if state == "42704":
            return Misconfigured(
                f"the stream ended: {text}; the publication {self._publication} was dropped: rows inserted while it is "
                'missing cannot be streamed; make it again ("mailstreams migrate" on a new database shows how) and drop '
                "the replication slot, so that the relay sends the whole feed again"
            )
        return Unavailable(f"the replication stream ended: {text}")

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        # The socket stays watched between two calls of receive(): two system calls less a message at a low rate.
        if self._watched is None:
            self._watched = int(self._libpq.socket)
            loop.add_reader(self._watched, self._on_readable)

    def _on_readable(self) -> None:
        if self._readable is None:
            self._unwatch()
        else:
            self.wake()

    def _unwatch(self) -> None:
        watched, self._watched = self._watched, None
        if watched is not None:
            asyncio.get_running_loop().remove_reader(watched)

    def _live(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None:
            raise Unavailable("PostgreSQL (replication): not connected")
        return self._connection

    async def _row(self, command: str, *values: object, name: str | None = None) -> tuple[Any, ...]:
        places = [sql.Literal(v) for v in values] if name is None else [sql.Identifier(name)]
        with _errors():
            cursor = await self._live().execute(sql.SQL(command).format(*places))
            row = await cursor.fetchone()
        if row is None:
            raise Unavailable(f"PostgreSQL answers nothing to {command.split(maxsplit=1)[0]}")
        return tuple(row)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise Unavailable(f"PostgreSQL (replication): {str(error).strip()}") from error
