"""The pools of the stages behind a real PgBouncer, told of in MAILSTREAMS_POSTGRES_POOLER or not. Transaction mode: case E07."""

from pathlib import Path

import pytest

from streams.adapters.postgres import Database, Pooler
from streams.domain.errors import Misconfigured
from tests.integration.pooled_statements import expected, many
from tests.pgbouncer import pgbouncer

pytestmark = pytest.mark.servers


@pytest.mark.parametrize("mode", ["transaction", "session"])
async def test_a_pooler_that_is_not_told_of_is_named_with_its_setting(
    database_dsn: str, tmp_path: Path, mode: str
) -> None:
    with (
        pgbouncer(database_dsn, tmp_path, mode=mode) as dsn,
        pytest.raises(Misconfigured, match="MAILSTREAMS_POSTGRES_POOLER"),
    ):
        await Database(dsn, pool_size=2, timeout_s=10, name="test").start()


async def test_settings_are_kept_behind_a_pooler_in_session_mode(
    database_dsn: str, tmp_path: Path
) -> None:
    with pgbouncer(database_dsn, tmp_path, mode="session") as dsn:
        async with Database(
            dsn, pool_size=4, timeout_s=10, name="test", pooler="session"
        ) as database:
            assert await many(database, tasks=4, each=5) == expected(tasks=4, each=5)


async def test_without_a_pooler_a_setting_for_one_does_no_harm(database_dsn: str) -> None:
    modes: list[Pooler] = ["session", "transaction"]
    for pooler in modes:
        async with Database(
            database_dsn, pool_size=4, timeout_s=10, name="test", pooler=pooler
        ) as database:
            assert await many(database, tasks=4, each=5) == expected(tasks=4, each=5)
