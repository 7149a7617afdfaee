"""Every stage through PgBouncer in transaction mode, the relay by polling: the whole way of a mail and of what became of it."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import devservers
from streams.adapters.feed_index import make_feed_index
from streams.adapters.postgres import Database
from tests.pgbouncer import pgbouncer
from tests.scenarios.scene import Scene, scene_on

pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]

MAILS = 60


async def prepare_polling(scene: Scene) -> None:
    async with Database(scene.dsn, pool_size=2, timeout_s=30, name="test") as database:
        await make_feed_index(database)


def test_all_stages_work_behind_a_pooler_in_transaction_mode(
    servers: devservers.Servers, tmp_path: Path
) -> None:
    with pgbouncer(servers.postgres.dsn, tmp_path / "pooler") as url:
        at = urlsplit(url)
        settings = {"MAILSTREAMS_POSTGRES_POOLER": "transaction", "MAILSTREAMS_RELAY_MODE": "poll"}
        with scene_on(servers, tmp_path / "scene", settings=settings) as scene:
            asyncio.run(prepare_polling(scene))
            pooled = at._replace(path=urlsplit(scene.dsn).path).geturl()
            scene.lead_to(pooled)
            scene.run_around()
            with scene.senders("sender"):
                ids = scene.commit(f"pooled-{n}@example.com" for n in range(MAILS))
                scene.wait_submitted(ids, 90)
                scene.wait_for(
                    lambda: delivered(scene) == MAILS, "the deliveries to be told", timeout_s=60
                )
                scene.wait_for(
                    lambda: scene.value("SELECT count(*) FROM outbox_feed") < 20,
                    "the feed to be empty but for heartbeats",
                    timeout_s=30,
                )
            scene.assert_each_accepted_once(ids)


def delivered(scene: Scene) -> int:
    return int(scene.value("SELECT count(delivered_at) FROM recipient_outcome"))
