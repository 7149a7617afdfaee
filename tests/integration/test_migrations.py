"""sql/migrations/ leads to sql/schema.sql; migrate is safe to run again, beside itself, and says what is wrong."""

import asyncio
from typing import Any

import pytest

import devservers
from streams.adapters.migrations import check_salt, migrate
from streams.adapters.postgres import Database
from streams.adapters.queries import sql_folder
from streams.domain.errors import Misconfigured
from tests.conftest import SALT

pytestmark = pytest.mark.servers

CATALOGUE = {
    "columns": "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns WHERE table_schema = 'public'",
    "storage": "SELECT c.relname, c.reloptions::text, a.attname, a.attcompression::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')",
    "constraints": "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "triggers": "SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "functions": "SELECT proname, pg_get_functiondef(oid), proacl::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
    "publications": "SELECT p.pubname, p.puballtables, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot, t.tablename FROM pg_publication p JOIN pg_publication_tables t USING (pubname)",
    "sequences": "SELECT sequencename, data_type::text, increment_by, cache_size FROM pg_sequences WHERE schemaname = 'public'",
}


async def catalogue(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    async with database.connection() as connection:
        return {
            name: sorted(
                (
                    row
                    for row in map(tuple, await connection.fetch(query))
                    if "schema_migration" not in str(row) and "outbox_feed_2" not in str(row)
                ),
                key=str,
            )
            for name, query in CATALOGUE.items()
        }


async def test_the_migrations_lead_to_the_schema(
    database: Database, servers: devservers.Servers
) -> None:
    dsn = servers.postgres.create_database("by_schema")
    try:
        async with Database(dsn, pool_size=2, timeout_s=20, name="test") as by_schema:
            async with by_schema.transaction() as connection:
                await connection.execute("SET LOCAL search_path = public, pg_temp")
                await connection.execute((sql_folder() / "schema.sql").read_text(encoding="utf-8"))
            expected = await catalogue(by_schema)
    finally:
        servers.postgres.drop_database("by_schema")
    found = await catalogue(database)
    assert expected["functions"]
    for part, rows in expected.items():
        assert found[part] == rows, part


async def test_no_index_of_the_outbox_mentions_what_changes(database: Database) -> None:
    async with database.connection() as connection:
        indexes = await connection.fetch(
            "SELECT indexdef FROM pg_indexes WHERE tablename = 'email_outbox'"
        )
    for row in indexes:
        for column in ("state", "attempts", "attempt_id", "reason", "changed"):
            assert column not in row["indexdef"].replace("email_outbox", "")


async def test_migrate_again_changes_nothing(database: Database) -> None:
    again = await migrate(database, salt=SALT, slot=None)
    assert (again.applied, again.salt_set, again.slot_made) == ([], False, False)


async def test_migrations_beside_each_other_do_not_collide(servers: devservers.Servers) -> None:
    dsn = servers.postgres.create_database("migrated_twice")
    try:
        async with Database(dsn, pool_size=6, timeout_s=30, name="test") as database:
            done = await asyncio.gather(
                *(migrate(database, salt=SALT, slot=None) for _ in range(3))
            )
        assert sorted(bool(d.applied) for d in done) == [False, False, True]
    finally:
        servers.postgres.drop_database("migrated_twice")


async def test_another_salt_is_refused(database: Database) -> None:
    with pytest.raises(Misconfigured, match="is not the salt of this database"):
        await migrate(database, salt=b"another salt of 32 characters...", slot=None)
    with pytest.raises(Misconfigured, match="is not the salt of this database"):
        await check_salt(database, b"another salt of 32 characters...")
    await check_salt(database, SALT)


async def test_a_database_of_a_newer_version_is_refused(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("INSERT INTO schema_migration (name) VALUES ('9999_pre_future')")
    with pytest.raises(Misconfigured, match="9999_pre_future"):
        await migrate(database, salt=SALT, slot=None)


@pytest.mark.parametrize("checksum", ["'0'", "NULL"], ids=["another", "from before there were any"])
async def test_a_database_made_by_another_text_of_a_migration_is_refused(
    database: Database, checksum: str
) -> None:
    async with database.connection() as connection:
        await connection.execute(
            f"UPDATE schema_migration SET checksum = {checksum} WHERE name LIKE '0001%'"
        )
    with pytest.raises(Misconfigured, match=r"another text of migration 0001.*make the database"):
        await migrate(database, salt=SALT, slot=None)


async def test_a_database_without_the_schema_says_what_to_run(servers: devservers.Servers) -> None:
    dsn = servers.postgres.create_database("empty_one")
    try:
        async with Database(dsn, pool_size=2, timeout_s=20, name="test") as database:
            with pytest.raises(Misconfigured, match="mailstreams migrate"):
                await check_salt(database, SALT)
    finally:
        servers.postgres.drop_database("empty_one")
