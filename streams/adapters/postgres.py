"""PostgreSQL through asyncpg: one pool a process, errors in our three kinds.

A pooler in transaction mode may give each transaction another session, so nothing is left in one: each statement is a transaction
that brings its settings along, and no prepared statement has a name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Self

import asyncpg

from streams.adapters.queries import query
from streams.domain.errors import Misconfigured, Unavailable

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    Connection = (
        asyncpg.pool.PoolConnectionProxy[asyncpg.Record] | asyncpg.Connection[asyncpg.Record]
    )
else:
    Connection = asyncpg.Connection

# SQLSTATE classes that say that the server, the connection or a lock is in the way, not the statement.
# 25006: a standby, or a primary that was made read-only.
_PASSING = ("08", "25006", "40", "53", "55", "57", "58")
# What mends it, where waiting alone does not.
_ADVICE = {
    "25006": "it takes no changes; connect to the primary, or turn default_transaction_read_only off",
    "53100": "its disk is full; make room for its data and its WAL",
    "53300": "raise max_connections, or lower MAILSTREAMS_POSTGRES_POOL_SIZE",
}
# A server that ends while an answer is on its way leaves asyncpg in a state that it calls an internal error.
_LOST = (asyncpg.InterfaceError, asyncpg.InternalClientError)
_DENIED = ("28", "3D", "42501")
# A prepared statement that is there already, or not: sessions change behind our back.
_SESSIONS_CHANGE = ("42P05", "26000")
_SET_POOLER = (
    "a pooler such as PgBouncer stands before PostgreSQL: set MAILSTREAMS_POSTGRES_POOLER to its pool_mode, transaction or session, "
    "or name PostgreSQL itself in MAILSTREAMS_POSTGRES_DSN"
)

Pooler = Literal["none", "session", "transaction"]


def translate(error: BaseException) -> BaseException:
    """The same error as Unavailable or Misconfigured where it is one; a bug of ours stays what it is."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state.startswith(_DENIED):
            return Misconfigured(
                f"PostgreSQL refuses us: {error.message}; check MAILSTREAMS_POSTGRES_DSN and the grants"
            )
        if state in _SESSIONS_CHANGE or "unsupported startup parameter" in str(error):
            return Misconfigured(f"{_SET_POOLER} ({error.message})")
        if state in ("42P01", "42703", "42883"):
            return Misconfigured(
                f'{error.message}: run "mailstreams migrate" on this database first'
            )
        if state.startswith(_PASSING):
            advice = f": {_ADVICE[state]}" if state in _ADVICE else ""
            return Unavailable(f"PostgreSQL: {error} ({state}){advice}")
    if isinstance(error, (OSError, TimeoutError, asyncio.TimeoutError)):
        return Unavailable(f"PostgreSQL does not answer: {str(error) or type(error).__name__}")
    # asyncpg reports a connection lost in the middle of a statement as one of these; an argument of the wrong type is one too,
    # and a ValueError besides.
    if isinstance(error, _LOST) and not isinstance(error, ValueError):
        return Unavailable(f"PostgreSQL connection lost: {error}")
    return error


class Database:
    """A pool of connections. Every method raises Unavailable when PostgreSQL is away or slow."""

    def __init__(
        self,
        dsn: str,
        *,
        pool_size: int,
        timeout_s: float,
        name: str,
        server_settings: Mapping[str, str] | None = None,
        pooler: Pooler = "none",
    ) -> None:
        """pooler: the mode of what stands between, which a pooler in transaction mode does not tell."""
        self._dsn = dsn
        self._pooler = pooler
        self._settings = {
            # A claim or an outcome that a standby or a crash forgets would be a silent duplicate.
            "synchronous_commit": "on",
            # Planning one of our statements costs more than running it for a few rows.
            "plan_cache_mode": "force_generic_plan",
            "jit": "off",
            **(server_settings or {}),
        }
        self._pool_size = pool_size
        self._timeout_s = timeout_s
        self._name = name
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        # Two starts at once would make two pools, and a stop beside a start would leave one.
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Connects; safe to call again after stop(), and beside another start() or stop()."""
        async with self._changing:
            if self._pool is None:
                self._pool = await self._connected()

    async def _connected(self) -> asyncpg.Pool[asyncpg.Record]:
        async with _translated():
            return await asyncpg.create_pool(
                self._dsn,
                min_size=1,
                max_size=self._pool_size,
                timeout=self._timeout_s,
                command_timeout=self._timeout_s,
                reset=_leave_as_it_is,
                init=self._begin,
                statement_cache_size=0 if self._pooler == "transaction" else 100,
                server_settings={
                    "application_name": f"mailstreams {self._name}",
                    "timezone": "UTC",
                    # PgBouncer refuses those that it does not know.
                    **(self._settings if self._pooler == "none" else {}),
                },
            )

    async def _begin(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        try:
            await self._begin_session(connection)
        except BaseException:
            # asyncpg would ask the server first, and whoever gives that up too leaves an open connection behind.
            connection.terminate()
            raise

    async def _begin_session(self, connection: Connection) -> None:
        match self._pooler:
            case "none":
                # A pooler makes the process id up that it tells at the start.
                pid = await connection.fetchval("SELECT pg_backend_pid()")
                if pid != connection.get_server_pid():
                    raise Misconfigured(_SET_POOLER)
            case "session":
                await connection.execute(_set(self._settings, "SET"))
            case "transaction":
                pass

    async def stop(self, *, within_s: float | None = None) -> None:
        """Closes every connection, and breaks off what is not closed within so long (the bound of a statement by default)."""
        async with self._changing:
            pool, self._pool = self._pool, None
            if pool is None:
                return
            try:
                await asyncio.wait_for(pool.close(), within_s or self._timeout_s)
            except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                pool.terminate()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One connection for several statements; errors are translated. Behind a pooler in transaction mode each has to be in a
        transaction, as transaction() makes one."""
        if self._pool is None:
            raise Unavailable("PostgreSQL: not connected")
        pool = self._pool
        async with _translated(), pool.acquire(timeout=self._timeout_s) as connection:
            try:
                yield connection
            except asyncpg.ReadOnlySQLTransactionError:
                # The session stays what it is, on a former primary or with a setting of its database: new ones may write.
                await pool.expire_connections()
                raise

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One READ COMMITTED transaction."""
        async with (
            self.connection() as connection,
            connection.transaction(isolation="read_committed"),
        ):
            if self._pooler == "transaction":
                await connection.execute(_set(self._settings, "SET LOCAL"))
            yield connection

    async def rows(self, name: str, *args: Any) -> list[asyncpg.Record]:
        """The rows of sql/queries/<name>.sql, as a prepared statement of its own transaction."""
        async with self._session() as connection:
            return await connection.fetch(query(name), *args)

    async def value(self, name: str, *args: Any, timeout_s: float | None = None) -> Any:
        """The first column of the first row of sql/queries/<name>.sql, or None. timeout_s: instead of the pool's."""
        async with self._session() as connection:
            return await connection.fetchval(query(name), *args, timeout=timeout_s)

    def _session(self) -> AbstractAsyncContextManager[Connection]:
        """For one statement."""
        return self.transaction() if self._pooler == "transaction" else self.connection()


def _set(settings: Mapping[str, str], command: str) -> str:
    return "; ".join(f"{command} {name} = '{value}'" for name, value in settings.items())


async def _leave_as_it_is(_: asyncpg.Connection[asyncpg.Record]) -> None:
    """No statement of ours changes a session, so that a round trip after each to reset it would be for nothing."""


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    try:
        yield
    except (asyncpg.PostgresError, *_LOST, OSError, TimeoutError) as error:
        kind = translate(error)
        if kind is error:
            raise
        raise kind from error
