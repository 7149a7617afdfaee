"""`mailstreams doctor` on real servers: a healthy installation, then one broken thing at a time, each by its id."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

import devservers
from streams.domain.topics import Topics
from tests.command_line import mailstreams
from tests.conftest import PARTITIONS, SALT

pytestmark = pytest.mark.servers

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


@dataclass(slots=True, kw_only=True)
class Installation:
    """Migrated database with a slot, topics; nothing runs on it."""

    dsn: str
    topics: Topics
    bootstrap_servers: str
    slot: str
    changed: dict[str, str] = field(default_factory=dict)

    def examined(self, *arguments: str, **changes: str) -> "Told":
        """The command, with these variables changed."""
        environment = {
            "MAILSTREAMS_POSTGRES_DSN": self.dsn,
            "MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "MAILSTREAMS_TOPIC_PREFIX": self.topics.prefix,
            "MAILSTREAMS_PARTITIONS": str(PARTITIONS),
            "MAILSTREAMS_RECIPIENT_SALT": SALT.decode(),
            "MAILSTREAMS_UNREADABLE_KEY": KEY,
            "MAILSTREAMS_RELAY_SLOT": self.slot,
            "MAILSTREAMS_SNS_TOPICS": "arn:aws:sns:eu-central-1:111122223333:ses-events-example",
        }
        done = mailstreams(
            "doctor", "--json", *(arguments or ("--no-ses",)), environment=environment | changes
        )
        assert done.stdout, done.stderr
        document = json.loads(done.stdout)
        assert document["exit"] == done.returncode
        return Told(code=done.returncode, findings=document["findings"], text=done.stdout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    code: int
    findings: list[dict[str, Any]]
    text: str

    def of(self, level: str) -> set[str]:
        return {finding["id"] for finding in self.findings if finding["level"] == level}

    def found(self, id_: str) -> str:
        [finding] = [finding for finding in self.findings if finding["id"] == id_]
        return str(finding["found"])


@pytest.fixture
async def installation(
    servers: devservers.Servers, database_dsn: str, topics: Topics
) -> AsyncIterator[Installation]:
    slot = database_dsn.rpartition("/")[2]
    connection = await asyncpg.connect(database_dsn)
    await connection.execute("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
    yield Installation(
        dsn=database_dsn,
        topics=topics,
        bootstrap_servers=servers.kafka.bootstrap_servers,
        slot=slot,
    )
    await connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1",
        slot,
    )
    await connection.close()


async def test_a_healthy_installation_has_warnings_at_most(installation: Installation) -> None:
    told = installation.examined()
    assert (told.code, told.of("error")) == (0, set())
