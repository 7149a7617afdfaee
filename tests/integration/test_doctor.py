"""`mailstreams doctor` on real servers: a healthy installation, then one broken thing at a time, each by its id."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

import devservers
from streams.adapters.postgres import Connection
from streams.domain.diagnosis_privileges import STAGES
from streams.domain.heartbeats import heartbeat_keys
from streams.domain.slots import PUBLICATION
from streams.domain.topics import Lane, Topics, unreadable
from tests.command_line import mailstreams
from tests.conftest import PARTITIONS, SALT

pytestmark = pytest.mark.servers

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
NO_TOPICS = "nobody-made-these."
MAKE_PUBLICATION = f"CREATE PUBLICATION {PUBLICATION} FOR TABLE outbox_feed WITH (publish = 'insert', publish_via_partition_root = true)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the doctor said."""

    code: int
    findings: list[dict[str, Any]]
    text: str

    def of(self, level: str) -> set[str]:
        return {finding["id"] for finding in self.findings if finding["level"] == level}

    def found(self, id_: str) -> str:
        [finding] = [finding for finding in self.findings if finding["id"] == id_]
        return str(finding["found"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A migrated database with a slot; nothing runs on it."""

    dsn: str
    bootstrap_servers: str
    slot: str
    prefix: str = NO_TOPICS
    salt: str = SALT.decode()

    async def examined(self, **changes: str) -> Told:
        """The command, with these variables changed."""
        environment = {
            "MAILSTREAMS_POSTGRES_DSN": self.dsn,
            "MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "MAILSTREAMS_TOPIC_PREFIX": self.prefix,
            "MAILSTREAMS_PARTITIONS": str(PARTITIONS),
            "MAILSTREAMS_RECIPIENT_SALT": self.salt,
            "MAILSTREAMS_UNREADABLE_KEY": KEY,
            "MAILSTREAMS_RELAY_SLOT": self.slot,
            "MAILSTREAMS_SNS_TOPICS": "arn:aws:sns:eu-central-1:111122223333:ses-events-example",
        }
        arguments = ("doctor", "--json", "--no-ses")
        done = await asyncio.to_thread(mailstreams, *arguments, environment=environment | changes)
        assert done.stdout, done.stderr
        document = json.loads(done.stdout)
        assert document["exit"] == done.returncode
        return Told(
            code=done.returncode,
            findings=document["findings"],
            text=done.stdout + done.stderr,
        )


@pytest.fixture
async def connection(database_dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(database_dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def installation(
    servers: devservers.Servers,
    database_dsn: str,
    connection: Connection,
) -> AsyncIterator[Installation]:
    slot = database_dsn.rpartition("/")[2]
    await connection.execute("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
    yield Installation(
        dsn=database_dsn, bootstrap_servers=servers.kafka.bootstrap_servers, slot=slot
    )
    await connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1",
        slot,
    )


@pytest.fixture
async def admin(servers: devservers.Servers) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers.kafka.bootstrap_servers)
    await admin.start()
    yield admin
    await admin.close()


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def test_a_healthy_installation_has_warnings_at_most(
    installation: Installation, topics: Topics
) -> None:
    told = await replace(installation, prefix=topics.prefix).examined()
    assert (told.code, told.of("error")) == (0, set())
    # Nothing runs, and the servers of the tests have one broker and no limit of a slot.
    assert told.of("warning") == {
        "slot.holder",
        "slot.retention",
        "relay.checkpoint",
        "scheduler.heartbeat",
        "kafka.copies",
        "heartbeats.age",
    }


async def test_what_is_missing_is_named_and_not_made(
    installation: Installation,
    connection: Connection,
    admin: AIOKafkaAdminClient,
) -> None:
    await connection.execute("SELECT pg_drop_replication_slot($1)", installation.slot)
    await connection.execute(f"DROP PUBLICATION {PUBLICATION}")
    told = await installation.examined()
    assert (told.code, told.of("error")) == (
        1,
        {"slot.exists", "publication.feed", "kafka.topics"},
    )
    assert not [name for name in await admin.list_topics() if name.startswith(NO_TOPICS)]
    assert not await connection.fetch(
        "SELECT FROM pg_replication_slots WHERE slot_name = $1", installation.slot
    )


async def test_a_publication_that_leaves_out_inserts_or_is_younger_than_the_slot_is_told(
    installation: Installation, connection: Connection
) -> None:
    await connection.execute(f"ALTER PUBLICATION {PUBLICATION} SET (publish = 'update')")
    told = await installation.examined()
    assert "publication.feed" in told.of("error")
    await connection.execute(f"DROP PUBLICATION {PUBLICATION}")
    await connection.execute(MAKE_PUBLICATION)
    told = await installation.examined()
    assert "publication.feed" in told.of("ok")
    assert "publication.age" in told.of("warning")


async def test_another_salt_is_told_by_its_fingerprint(installation: Installation) -> None:
    other = "a secret that is another one than the database has"
    told = await replace(installation, salt=other).examined()
    assert told.of("error") == {"postgres.salt", "kafka.topics"}
    assert other not in told.text
    assert SALT.decode() not in told.text


async def test_a_role_is_told_what_it_lacks_until_it_has_what_the_stages_need(
    installation: Installation, connection: Connection
) -> None:
    role = f"stranger_{installation.slot}"
    await connection.execute(f"CREATE ROLE {role} LOGIN")
    try:
        dsn = installation.dsn.replace("mailstreams@", f"{role}@")
        told = await installation.examined(MAILSTREAMS_POSTGRES_DSN=dsn)
        await connection.execute(f"ALTER ROLE {role} REPLICATION")
        await connection.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {role}")
        await connection.execute(f"GRANT USAGE ON SEQUENCE outbox_feed_seq TO {role}")
        for tables in STAGES.values():
            for table, privileges in tables.items():
                granted = privileges.replace(" ", ", ")
                await connection.execute(f"GRANT {granted} ON {table} TO {role}")
        enough = await installation.examined(MAILSTREAMS_POSTGRES_DSN=dsn)
    finally:
        await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert enough.of("error") == {"kafka.topics"}
    assert told.of("error") >= {"replication.role", "replication.reach", "postgres.privileges"}
    assert "postgres.schema" in told.of("warning")
    assert "INSERT on email_attempt" in told.found("postgres.privileges")
    assert "EXECUTE on announce_suppressions(text[])" in told.found("postgres.privileges")


async def test_a_database_that_takes_no_changes_or_was_not_migrated_is_told(
    servers: devservers.Servers,
    installation: Installation,
    connection: Connection,
) -> None:
    name = installation.slot
    await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    told = await installation.examined()
    assert "postgres.writable" in told.of("error")
    assert "postgres.durability" in told.of("warning")
    empty = f"empty_{name}"
    try:
        dsn = servers.postgres.create_database(empty)
        told = await installation.examined(MAILSTREAMS_POSTGRES_DSN=dsn)
    finally:
        servers.postgres.drop_database(empty)
    assert told.of("error") == {
        "postgres.schema",
        "publication.feed",
        "slot.usable",
        "kafka.topics",
    }


async def test_a_relay_that_was_here_and_is_gone_is_an_error(
    installation: Installation, connection: Connection
) -> None:
    await connection.execute(
        "INSERT INTO relay_checkpoint (slot, lsn, system_id, timeline, stored) VALUES ($1, '0/1', '1', 1, now() - interval '1 hour')",
        installation.slot,
    )
    await connection.execute(
        "INSERT INTO scheduler_duty (name, next_at) VALUES ('heartbeat', now() + interval '5 minutes')"
    )
    told = await installation.examined()
    assert told.of("error") == {"relay.checkpoint", "slot.holder", "kafka.topics"}
    assert "min ago" in told.found("relay.checkpoint")
    assert "scheduler.heartbeat" in told.of("ok")


async def test_topics_that_are_not_as_needed_are_named(
    installation: Installation, topics: Topics, admin: AIOKafkaAdminClient
) -> None:
    bulk, events = topics.outbox(Lane.BULK), topics.delivery_events
    gone = unreadable(topics.dead_letters)
    changes = {
        topics.suppressions: {"cleanup.policy": "delete"},
        events: {"cleanup.policy": "delete", "retention.ms": "60000"},
        bulk: {"cleanup.policy": "delete", "max.message.bytes": "1000"},
    }
    await admin.alter_configs(
        [
            ConfigResource(ConfigResourceType.TOPIC, name, configs)
            for name, configs in changes.items()
        ]
    )
    await admin.create_partitions({bulk: NewPartitions(total_count=PARTITIONS + 1)})
    await admin.delete_topics([gone])
    there = replace(installation, prefix=topics.prefix)
    wanted = {"kafka.topics", "kafka.cleanup", "kafka.partitions", "kafka.retention"}
    deadline = time.monotonic() + 60
    while (told := await there.examined()).of("error") != wanted and time.monotonic() < deadline:
        pass  # a broker takes a moment to tell everybody of a change
    assert told.of("error") == wanted
    for id_, name in {
        "kafka.topics": gone,
        "kafka.cleanup": topics.suppressions,
        "kafka.partitions": f"{bulk} has {PARTITIONS + 1}",
        "kafka.retention": events,
        "kafka.message-bytes": bulk,
    }.items():
        assert name in told.found(id_)


async def test_heartbeats_are_fresh_or_too_old_by_their_own_time(
    installation: Installation, topics: Topics
) -> None:
    there = replace(installation, prefix=topics.prefix)
    await beat(there, topics, datetime.now(UTC) - timedelta(hours=2))
    told = await there.examined()
    assert told.of("error") == {"heartbeats.age"}
    assert "2 h old" in told.found("heartbeats.age")
    await beat(there, topics, datetime.now(UTC))
    told = await there.examined(MAILSTREAMS_SENDER_SUPPRESSION_STALENESS_S="600")
    assert "heartbeats.age" in told.of("ok")


async def beat(installation: Installation, topics: Topics, at: datetime) -> None:
    value = json.dumps({"heartbeat": at.isoformat()}).encode()
    async with AIOKafkaProducer(bootstrap_servers=installation.bootstrap_servers) as producer:
        for number, key in enumerate(heartbeat_keys(PARTITIONS)):
            await producer.send_and_wait(
                topics.suppressions, value, key=key.encode(), partition=number
            )


async def test_servers_that_are_away_leave_the_verdict_open(installation: Installation) -> None:
    port = closed_port()
    told = await installation.examined(
        MAILSTREAMS_POSTGRES_DSN=f"postgresql://someone:a-very-secret-word@127.0.0.1:{port}/x",
        MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS=f"127.0.0.1:{port}",
    )
    assert told.code == 2
    assert told.of("error") == {"postgres.reach", "replication.reach", "kafka.reach"}
    assert "a-very-secret-word" not in told.text


async def test_a_url_that_cannot_be_read_is_not_repeated(installation: Installation) -> None:
    told = await installation.examined(
        MAILSTREAMS_POSTGRES_DSN="a-very-secret-word", MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS="x:y:z"
    )
    assert told.code == 1
    assert told.of("error") == {"postgres.reach", "replication.reach", "kafka.reach"}
    assert "a-very-secret-word" not in told.text


async def test_a_pooler_is_recognised_in_both_ways(installation: Installation) -> None:
    async with pooler(installation.dsn, refuse=b"") as dsn:
        told = await installation.examined(MAILSTREAMS_POSTGRES_DSN=dsn)
    assert {"postgres.pooler", "replication.pooler"} <= set(told.of("error"))
    async with pooler(installation.dsn, refuse=b"plan_cache_mode") as dsn:
        told = await installation.examined(MAILSTREAMS_POSTGRES_DSN=dsn)
    assert "plan_cache_mode" in told.found("postgres.pooler")
    assert "postgres.pooler" in told.of("error")


@asynccontextmanager
async def pooler(dsn: str, *, refuse: bytes) -> AsyncIterator[str]:
    """What shows of PgBouncer: it makes process ids up, and refuses settings at the start of a session that it does not know."""
    at = urlsplit(dsn)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            tasks.add(task)
        length = int.from_bytes(await reader.readexactly(4), "big")
        start = await reader.readexactly(length - 4)
        if refuse and refuse in start:
            fields = b"SFATAL\0C08P01\0Munsupported startup parameter: " + refuse + b"\0\0"
            writer.write(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
            writer.close()
            return
        server, to_server = await asyncio.open_connection(at.hostname, at.port)
        to_server.write(length.to_bytes(4, "big") + start)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                kind = b""
                while kind != b"Z":
                    kind = await server.readexactly(1)
                    size = await server.readexactly(4)
                    body = await server.readexactly(int.from_bytes(size, "big") - 4)
                    if kind == b"K":
                        body = (int.from_bytes(body[:4], "big") ^ 1).to_bytes(4, "big") + body[4:]
                    writer.write(kind + size + body)
                await asyncio.gather(copy(reader, to_server), copy(server, writer))
        finally:
            to_server.close()
            writer.close()

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
            target.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"postgresql://{at.username}@127.0.0.1:{port}{at.path}?sslmode=disable"
    finally:
        listening.close()
        await asyncio.gather(*tasks, return_exceptions=True)
