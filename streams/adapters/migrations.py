"""`mailstreams migrate`: the schema, the salt, the feed's partitions, the slot and the topics, each only where missing."""

import hashlib
import logging
from dataclasses import dataclass
from typing import Final

from streams.adapters.feed_index import drop_feed_index, make_feed_index
from streams.adapters.postgres import Connection, Database
from streams.adapters.queries import sql_folder
from streams.domain.addresses import salt_fingerprint, salt_pads
from streams.domain.errors import Misconfigured

log = logging.getLogger(__name__)

# Any fixed number; two migrations of one database must not run at once.
_LOCK: Final = 7_461_213_880_021_571


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """What migrate changed."""

    applied: list[str]
    salt_set: bool
    slot_made: bool
    index_made: bool = False
    index_dropped: bool = False


def migration_names() -> list[str]:
    """The migrations in their order: <number>_<pre or post>_<purpose>."""
    return sorted(path.stem for path in (sql_folder() / "migrations").glob("*.sql"))


async def migrate(
    database: Database, *, salt: bytes, slot: str | None, polling: bool = False
) -> Migrated:
    """Brings the database to today's schema, in one transaction; then makes what the relay needs in its mode: the slot, unless it
    is None, or the index of the feed.

    Safe to run again and beside itself.
    """
    async with database.transaction() as connection:
        await _check_server(connection, polling=polling)
    async with database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        schema = await connection.fetchval("SELECT current_schema()")
        # Functions keep this path (SET search_path FROM CURRENT): pg_temp last, so that nobody's temporary table is called.
        await connection.execute(f'SET LOCAL search_path = "{schema}", pg_temp')
        applied = await _apply(connection)
        salt_set = await _set_salt(connection, salt)
        await connection.execute("SELECT make_feed_partitions(3)")
    if polling:
        made = await make_feed_index(database)
        return Migrated(applied=applied, salt_set=salt_set, slot_made=False, index_made=made)
    dropped = await drop_feed_index(database)
    slot_made = slot is not None and await _make_slot(database, slot)
    return Migrated(applied=applied, salt_set=salt_set, slot_made=slot_made, index_dropped=dropped)


async def _check_server(connection: Connection, *, polling: bool) -> None:
    version = await connection.fetchval("SELECT current_setting('server_version_num')::int")
    if version < 150_000:
        raise Misconfigured(f"PostgreSQL 15 or newer is needed, this server is {version // 10_000}")
    level = await connection.fetchval("SELECT current_setting('wal_level')")
    if level != "logical" and not polling:
        raise Misconfigured(
            f"wal_level is {level} and has to be logical: "
            "ALTER SYSTEM SET wal_level = 'logical', then restart PostgreSQL; where that may not be, set MAILSTREAMS_RELAY_MODE=poll"
        )


async def _apply(connection: Connection) -> list[str]:
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migration "
        "(name text PRIMARY KEY, applied timestamptz NOT NULL DEFAULT clock_timestamp())"
    )
    await connection.execute("ALTER TABLE schema_migration ADD COLUMN IF NOT EXISTS checksum text")
    rows = await connection.fetch("SELECT name, checksum FROM schema_migration")
    done = {row["name"]: row["checksum"] for row in rows}
    unknown = sorted(done.keys() - set(migration_names()))
    if unknown:
        raise Misconfigured(
            f"the database has the migration {unknown[-1]}, which this version does not know: "
            "install the version that made it, or a newer one"
        )
    changed = [name for name in sorted(done) if done[name] != _checksum(_text(name))]
    if changed:
        raise Misconfigured(
            f"the database was made by another text of migration {changed[0]}, which changed before the first release: "
            'make the database anew (that of "make up": make down, then delete the folder .mailstreams)'
        )
    applied = [name for name in migration_names() if name not in done]
    for name in applied:
        text = _text(name)
        await connection.execute(text)
        await connection.execute(
            "INSERT INTO schema_migration (name, checksum) VALUES ($1, $2)", name, _checksum(text)
        )
    return applied


def _text(name: str) -> str:
    return (sql_folder() / "migrations" / f"{name}.sql").read_text(encoding="utf-8")


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def _set_salt(connection: Connection, salt: bytes) -> bool:
    found = await connection.fetchval("SELECT fingerprint FROM recipient_salt")
    if found is None:
        inner, outer = salt_pads(salt)
        await connection.execute(
            "INSERT INTO recipient_salt (inner_pad, outer_pad, fingerprint) VALUES ($1, $2, $3)",
            inner,
            outer,
            salt_fingerprint(salt),
        )
        return True
    _compare(found, salt)
    return False


async def check_salt(database: Database, salt: bytes) -> None:
    """Misconfigured unless the salt of this process is the database's."""
    async with database.transaction() as connection:
        found = await connection.fetchval("SELECT recipient_salt_fingerprint()")
    if found is None:
        raise Misconfigured('the database has no salt yet: run "mailstreams migrate" first')
    _compare(found, salt)


def _compare(fingerprint: str, salt: bytes) -> None:
    if fingerprint != salt_fingerprint(salt):
        raise Misconfigured(
            f"MAILSTREAMS_RECIPIENT_SALT (fingerprint {salt_fingerprint(salt)}) is not the salt of this database "
            f"(fingerprint {fingerprint}): set the one that was used for the first migrate; rotation is not built yet"
        )


async def _make_slot(database: Database, slot: str) -> bool:
    """The slot is made here, so that every row from now on reaches the relay, whenever it starts first."""
    async with database.transaction() as connection:
        if await connection.fetchval(
            "SELECT true FROM pg_replication_slots WHERE slot_name = $1", slot
        ):
            return False
        # A slot that once was and is gone may have lost rows: only the relay, which sends the feed again, may make it anew.
        if await connection.fetchval("SELECT true FROM relay_checkpoint WHERE slot = $1", slot):
            return False
        await connection.execute("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
    return True
