"""Polling where wal mode cannot be: wal_level = replica, a role without REPLICATION, PgBouncer in transaction mode before it all."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import devservers
from devservers import ServerSettings
from streams.domain.topics import Topics
from tests.command_line import as_process
from tests.conftest import SALT
from tests.integration.relay_setup import Reader, Setup, eventually
from tests.pgbouncer import pgbouncer

pytestmark = pytest.mark.servers

ROLE = "plain"


@pytest.fixture(scope="module")
def plain_servers() -> Iterator[devservers.Servers]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("POSTGRES_DSN", "KAFKA_BOOTSTRAP_SERVERS", "SERVERS"):
            patch.delenv(f"MAILSTREAMS_{name}", raising=False)
        options = {"wal_level": "replica", "max_replication_slots": "0"}
        with devservers.running(ServerSettings(postgres_options=options)) as running:
            yield running


@pytest.fixture
async def setup(plain_servers: devservers.Servers) -> AsyncIterator[Setup]:
    """A database of a role that may nothing but what its owner may."""
    dsn = plain_servers.postgres.create_database("plain")
    made = Setup(
        dsn=dsn,
        bootstrap_servers=plain_servers.kafka.bootstrap_servers,
        topics=Topics(prefix="plain."),
    )
    await made.execute(f"CREATE ROLE {ROLE} LOGIN")
    await made.execute(f"ALTER DATABASE plain OWNER TO {ROLE}")
    yield made
    plain_servers.postgres.drop_database("plain")


def environment(setup: Setup, dsn: str) -> dict[str, str]:
    return {
        "MAILSTREAMS_POSTGRES_DSN": dsn,
        "MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS": setup.bootstrap_servers,
        "MAILSTREAMS_TOPIC_PREFIX": setup.topics.prefix,
        "MAILSTREAMS_RECIPIENT_SALT": SALT.decode(),
    }


async def test_the_commands_go_through_a_pooler_with_a_plain_role(
    setup: Setup, tmp_path: Path
) -> None:
    with pgbouncer(setup.dsn, tmp_path, user=ROLE, servers=4) as dsn:
        settings = environment(setup, dsn)
        told = await asyncio.to_thread(as_process, "migrate", environment=settings)
        assert (told.returncode, "MAILSTREAMS_POSTGRES_POOLER" in told.stderr) == (2, True)
        settings["MAILSTREAMS_POSTGRES_POOLER"] = "transaction"
        told = await asyncio.to_thread(as_process, "migrate", environment=settings)
        assert (told.returncode, "MAILSTREAMS_RELAY_MODE=poll" in told.stderr) == (2, True)
        settings["MAILSTREAMS_RELAY_MODE"] = "poll"
        told = await asyncio.to_thread(as_process, "migrate", environment=settings)
        assert (told.returncode, told.stderr, "index: made" in told.stdout) == (0, "", True)
        relay = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "streams", "relay"),
            env=os.environ | settings,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
                await setup.insert(0, 3_000)
                records = await reader.read(lambda found: len(found) >= 3_000)
                assert {json.loads(r.value)["n"] for r in records} == set(range(3_000))

                async def is_empty() -> bool:
                    return bool(await setup.value("SELECT count(*) FROM outbox_feed") == 0)

                await eventually(is_empty)
            told = await asyncio.to_thread(
                as_process, "doctor", "--no-ses", "--json", environment=settings
            )
            findings = {f["id"]: f["level"] for f in json.loads(told.stdout)["findings"]}
            assert findings["relay.polling"] == findings["postgres.pooler"] == "ok"
            # Of what polling does not need nothing is asked, and no other stage runs here.
            assert {i for i, level in findings.items() if level == "error"} <= {
                "settings.unreadable-key",
                "heartbeats.age",
            }, told.stdout
            assert not {"postgres.wal-level", "replication.reach", "slot.exists"} & set(findings)
            relay.send_signal(signal.SIGTERM)
            _, said = await asyncio.wait_for(relay.communicate(), 20)
        finally:
            if relay.returncode is None:
                relay.kill()
        assert (relay.returncode, b"error" in said.lower()) == (0, False), said.decode()
        assert await setup.value("SELECT count(*) FROM relay_poller") == 0
