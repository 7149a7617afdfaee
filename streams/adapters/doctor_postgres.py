"""What the doctor reads of PostgreSQL by SQL: one connection, read-only transactions, nothing that a pooler could not carry."""

import hashlib
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import asyncpg
import orjson

from streams.adapters.migrations import migration_names
from streams.adapters.postgres import translate
from streams.adapters.queries import query, sql_folder
from streams.domain.diagnosis_polling import Polling
from streams.domain.diagnosis_postgres import Database, Server, Session
from streams.domain.diagnosis_privileges import STAGES
from streams.domain.diagnosis_replication import Place
from streams.domain.diagnosis_slot import Publication, Slot, Surroundings, Working
from streams.domain.errors import Misconfigured
from streams.domain.slots import PUBLICATION

# One connection, one statement.
ANSWER_S: Final = 5.0
NAME: Final = "mailstreams doctor"
# What each stage asks for at the start of a session, as far as it shows whether a pooler keeps it.
_ASKED: Final = {"synchronous_commit": "on", "plan_cache_mode": "force_generic_plan", "jit": "off"}
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_FAILURES: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)


class DoctorPostgres:
    """Methods raise Unavailable or Misconfigured, each for its own part."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", dsn: str) -> None:
        self._connection = connection
        self._dsn = dsn

    @classmethod
    @asynccontextmanager
    async def connected(cls, dsn: str) -> AsyncIterator[Self]:
        """Without the settings of the stages, so that what the server gives to everybody shows."""
        connection = await _connect(dsn, {})
        try:
            yield cls(connection, dsn)
        finally:
            await _close(connection)

    async def session(self) -> Session:
        """A second connection, made as the stages make theirs."""
        try:
            connection = await _connect(self._dsn, _ASKED)
        except Misconfigured as refusal:
            return Session(pooled=False, refused=str(refusal), kept=False)
        try:
            # In one transaction, so that a pooler keeps one server for it.
            async with _errors(), connection.transaction(readonly=True):
                pid = await connection.fetchval("SELECT pg_backend_pid()")
                kept = [
                    await connection.fetchval("SELECT current_setting($1)", name) == value
                    for name, value in _ASKED.items()
                ]
            return Session(pooled=pid != connection.get_server_pid(), refused=None, kept=all(kept))
        finally:
            await _close(connection)

    async def server(self, slot: str) -> tuple[Server, Surroundings, Place]:
        asked = time.time()
        [row] = await self._rows("diagnose_server", slot)
        # The answer may have waited, on either way.
        ahead_s = row["clock"].timestamp() - (asked + time.time()) / 2
        names = Server.__dataclass_fields__.keys() - {"ahead_s"}
        around = Surroundings(
            version=row["version"],
            keep_bytes=row["keep_bytes"],
            standbys=row["standbys"],
            synchronized_standby_slots=row["synchronized_standby_slots"],
            disk_free=self._disk_free(row["data_directory"]),
            idle_timeout=row["idle_timeout"],
        )
        place = Place(database=row["database"], started=row["started"])
        server = Server(ahead_s=ahead_s, **{name: row[name] for name in names})
        return server, around, place

    async def database(self) -> Database:
        [row] = await self._rows("diagnose_schema")
        texts = _checksums()
        if not row["there"]:
            return _empty(texts)
        applied: dict[str, str] | None = None
        if row["migrations_readable"]:
            applied = {r["name"]: r["checksum"] for r in await self._rows("diagnose_migrations")}
        fingerprint = None
        if row["fingerprint_there"]:
            fingerprint = (await self._rows("diagnose_salt"))[0][0]
        in_default = False
        if row["default_readable"]:
            in_default = (await self._rows("diagnose_default_partition"))[0][0]
        return Database(
            there=True,
            applied=None if applied is None else list(applied),
            expected=list(texts),
            changed=[
                n for n, checksum in (applied or {}).items() if texts.get(n, checksum) != checksum
            ],
            fingerprint=fingerprint,
            missing=await self._missing(),
            partitions_ahead=row["partitions_ahead"],
            rows_in_default=in_default,
        )

    async def publication(self, slot: str) -> Publication:
        for row in await self._rows("diagnose_publication", PUBLICATION, slot):
            return Publication(
                exists=True, publishes_feed=row["publishes_feed"], younger=row["younger"]
            )
        return Publication(exists=False, publishes_feed=False, younger=None)

    async def slot(self, name: str) -> Slot | None:
        for row in await self._rows("diagnose_slot", name):
            told = orjson.loads(row["slot"])
            return Slot(
                name=name,
                plugin=told["plugin"],
                here=bool(row["here"]),
                wal_status=told["wal_status"],
                invalidation_reason=told.get("invalidation_reason"),
                active_pid=told["active_pid"],
                holder=row["holder"],
                inactive_s=row["inactive_s"],
                retained_bytes=row["retained_bytes"],
                failover=told.get("failover"),
            )
        return None

    async def polling(self, slot: str) -> Polling:
        [row] = await self._rows("diagnose_polling", slot)
        return Polling(**dict(row))

    async def working(self, slot: str) -> Working:
        [row] = await self._rows("diagnose_working", slot)
        return Working(
            checkpoint_age_s=row["checkpoint_age_s"], heartbeat_age_s=row["heartbeat_age_s"]
        )

    async def _missing(self) -> Mapping[str, Sequence[str]]:
        wanted = {
            (table, privilege)
            for tables in STAGES.values()
            for table, privileges in tables.items()
            for privilege in privileges.split()
        }
        pairs = sorted(wanted)
        rows = await self._rows(
            "diagnose_privileges", [table for table, _ in pairs], [right for _, right in pairs]
        )
        lacking = [(row["object"], row["privilege"]) for row in rows]
        found = {
            stage: [
                f"{privilege} on {table}"
                for table, privilege in lacking
                if privilege in tables.get(table, "").split()
            ]
            for stage, tables in STAGES.items()
        }
        rest = [
            f"{privilege} on {name}"
            for name, privilege in lacking
            if (name, privilege) not in wanted
        ]
        return found | {"all": rest}

    def _disk_free(self, directory: str | None) -> int | None:
        """Of the server's disk, if the server is this machine and its directory can be looked at."""
        here = any(f"@{host}" in self._dsn for host in _LOOPBACK) or "host=/" in self._dsn
        if directory is None or not here:
            return None
        try:
            return shutil.disk_usage(directory).free
        except OSError:
            return None

    async def _rows(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        async with _errors(), self._connection.transaction(readonly=True):
            return await self._connection.fetch(query(name), *arguments)


def _empty(texts: Mapping[str, str]) -> Database:
    return Database(
        there=False,
        applied=None,
        expected=list(texts),
        changed=(),
        fingerprint=None,
        missing={},
        partitions_ahead=0,
        rows_in_default=False,
    )


def _checksums() -> dict[str, str]:
    folder = sql_folder() / "migrations"
    return {
        name: hashlib.sha256((folder / f"{name}.sql").read_bytes()).hexdigest()
        for name in migration_names()
    }


async def _connect(
    dsn: str, server_settings: Mapping[str, str]
) -> "asyncpg.Connection[asyncpg.Record]":
    """Misconfigured too for settings that are refused at the start of a session, which PgBouncer does."""
    try:
        async with _errors():
            return await asyncpg.connect(
                dsn,
                timeout=ANSWER_S,
                command_timeout=ANSWER_S,
                statement_cache_size=0,
                server_settings={"application_name": NAME, **server_settings},
            )
    except ValueError:
        # asyncpg quotes the URL, which may have a password.
        raise Misconfigured(
            "MAILSTREAMS_POSTGRES_DSN is no URL of a PostgreSQL, or names a file that cannot be read"
        ) from None


async def _close(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    try:
        await connection.close(timeout=ANSWER_S)
    except _FAILURES:
        connection.terminate()


@asynccontextmanager
async def _errors() -> AsyncIterator[None]:
    try:
        yield
    except _FAILURES as error:
        if isinstance(error, asyncpg.ProtocolViolationError):
            raise Misconfigured(error.message or "protocol violation") from error
        kind: Any = translate(error)
        if kind is error:
            raise
        raise kind from error
