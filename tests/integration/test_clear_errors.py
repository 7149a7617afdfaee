"""What is misconfigured, expired, read-only or full is told with what to change, and costs no message.

One sender lives through all of it, since nothing of it may need a start. Of each fault: while it lasts, no message is lost, failed,
ambiguous or charged; the log and readiness name it and what to do; afterwards everything goes out by itself, once by SES's own
record. Only pauses and retries are hurried: their time passes faster. Kafka that takes no records needs three brokers, and stands in
tests/scenarios/test_cluster.py; every stage with a PostgreSQL that is read-only as a whole in tests/scenarios/test_not_writable.py.
"""

import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Final
from uuid import UUID

import asyncpg
import psycopg
import pytest
import pytest_asyncio
from aiohttp import web

import devservers
from streams.adapters.kafka import create_topics
from streams.domain.delivery_events import EventType
from streams.domain.errors import Unavailable
from streams.domain.topics import Topics
from tests.integration.clear_errors_world import KEY, PATIENCE_S, SHOP, Held, World, living, logged
from tests.integration.outbox_rows import event, make_row
from tests.integration.sender_rig import Answer, refusing, until
from tests.integration.sender_rows import execute, one
from tests.integration.test_recipients_stage import Setup, has_events, many
from tests.integration.test_recipients_stage import running as folding
from tests.integration.test_sender_trouble import write_credentials
from tests.small_disk import fill, make_room, small_disk

pytestmark = [pytest.mark.servers, pytest.mark.asyncio(loop_scope="module")]

NEWS: Final = "news@example.com"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(
    servers: devservers.Servers,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[World]:
    name = f"clear_{os.urandom(4).hex()}"
    kafka, topics = servers.kafka.bootstrap_servers, Topics(prefix=f"{name}.")
    dsn = servers.postgres.create_database(name, template=template_database)
    await create_topics(kafka, topics, partitions=3, replication_factor=-1)
    folder = tmp_path_factory.mktemp("aws")
    async with living(kafka, dsn, topics, folder) as made:
        yield made
    servers.postgres.drop_database(name)


# AWS and SES ----------------------------------------------------------------------------------------------------------

Fault = Callable[[World], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def expired_credentials(world: World) -> AsyncIterator[None]:
    """Until somebody renews the file."""
    world.aws.expired.add(KEY)
    try:
        yield
    finally:
        world.aws.expired.clear()
        world.aws.key = "AKIDRENEWED"
        write_credentials(world.credentials, "AKIDRENEWED")


@asynccontextmanager
async def wrong_region(world: World) -> AsyncIterator[None]:
    """What answers is of another region than we sign for."""
    region, world.aws.region = world.aws.region, "us-east-1"
    try:
        yield
    finally:
        world.aws.region = region


@asynccontextmanager
async def slow_clock(world: World) -> AsyncIterator[None]:
    """Ours is a quarter of an hour behind that of AWS."""
    world.aws.clock_s = 900.0
    try:
        yield
    finally:
        world.aws.clock_s = 0.0


@asynccontextmanager
async def skewed_request(world: World) -> AsyncIterator[None]:
    """The same, in the other words that AWS has for it."""

    async def answer(request: web.Request, number: int) -> web.StreamResponse:
        said = "The difference between the request time and the current time is too large."
        response = await refusing(403, "RequestTimeTooSkewed", said)(request, number)
        response.headers["Date"] = formatdate(0, usegmt=True)
        return response

    world.rig.ses.answer = answer
    yield


@asynccontextmanager
async def unverified_everywhere(world: World) -> AsyncIterator[None]:
    """In this region the identity does not exist, as where the region is the wrong one but answers."""
    world.rig.ses.answer = refusing_sender(world, SHOP)
    yield


def refusing_sender(world: World, sender: str) -> Answer:
    async def answer(request: web.Request, number: int) -> web.StreamResponse:
        if (await request.json())["FromEmailAddress"] == sender:
            said = f"Email address is not verified. The following identities failed the check in region EU-CENTRAL-1: {sender}"
            return await refusing(400, "MessageRejected", said)(request, number)
        return await world.aws.answer(request, number)

    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A fault, the class that the log names, and the words in which readiness says what it is and what to change."""

    fault: Fault
    error_class: str
    words: tuple[str, ...]


STORIES: Final = {
    "expired credentials": Story(
        fault=expired_credentials,
        error_class="credentials-expired",
        words=("credentials have expired", "renew them"),
    ),
    "wrong region": Story(
        fault=wrong_region, error_class="wrong-region", words=("another region", "AWS_REGION")
    ),
    "identity of another region": Story(
        fault=unverified_everywhere,
        error_class="sender-not-verified",
        words=("not verified in this region", "verify it in SES", "EU-CENTRAL-1"),
    ),
    "clock skew": Story(
        fault=slow_clock,
        error_class="clock-skew",
        words=("set the clock of this machine", "s behind"),
    ),
    "skewed request time": Story(
        fault=skewed_request, error_class="clock-skew", words=("set the clock of this machine",)
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_what_aws_refuses_us_for_is_told_and_costs_no_message(
    world: World, story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="streams")
    world.rig.ses.answer = world.aws.answer
    await world.go_out(await world.write())
    async with story.fault(world):
        ids = await world.write()
        await world.tells("ses", *story.words)
        await world.sleep_uncharged(ids)
        record = logged(caplog, "sender.trouble", error_class=story.error_class)
        assert record.levelno == logging.ERROR
        assert record.getMessage() == "SES does not take our messages, they wait"
        assert all(word in record.__dict__["reason"] for word in story.words)
        assert SHOP not in record.__dict__["reason"]
    world.rig.ses.answer = world.aws.answer
    await world.go_out(ids)
    assert logged_over(caplog)


def logged_over(caplog: pytest.LogCaptureFixture) -> bool:
    return any(r.__dict__.get("action") == "sender.trouble_over" for r in caplog.records)


async def test_unverified_sender_stops_alone_is_told_and_costs_no_message(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.rig.ses.answer = refusing_sender(world, NEWS)
    refused = await world.write(NEWS)
    await world.tells("ses", "not verified in this region", "verify it in SES")
    assert NEWS not in world.sender.health.missing()["ses"]
    await world.sleep_uncharged(refused)
    logged(caplog, "sender.trouble", error_class="sender-not-verified", reason="verify it in SES")
    pause = await one(
        world.rig.database, "SELECT scope, value FROM pause WHERE until > clock_timestamp()"
    )
    assert pause == {"scope": "sender", "value": NEWS}
    others = await world.write()

    async def are_out() -> bool:
        return all(row["state"] == "submitted" for row in await world.rows(others))

    await until(are_out, PATIENCE_S)
    assert {row["state"] for row in await world.rows(refused)} == {"pending"}
    world.rig.ses.answer = world.aws.answer
    await world.go_out(refused + others)


# PostgreSQL -----------------------------------------------------------------------------------------------------------


async def refused_outcomes_are_told(
    world: World, caplog: pytest.LogCaptureFixture, *words: str
) -> None:
    """Of calls that were under way: the duty that writes outcomes says why it cannot."""
    await world.tells("outcomes", *words)
    record = logged(caplog, "duty.failed", duty="outcomes", error=words[0])
    assert record.getMessage() == "duty failed and will be tried again"


async def test_read_only_postgresql_is_told_and_costs_no_message(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held(world)
    called = await held.under_way()
    name = world.rig.dsn.rpartition("/")[2].partition("?")[0]
    await execute(
        world.rig.database, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'
    )
    await execute(
        world.rig.database,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mailstreams sender' "
        "AND datname = current_database()",
    )
    try:
        await refuses_changes(world, asyncpg.ReadOnlySQLTransactionError)
        # What is committed all the same waits.
        waiting = await world.write()
        held.let_go()
        await refused_outcomes_are_told(world, caplog, "25006", "default_transaction_read_only off")
        await world.tells("dispatch", "25006", "connect to the primary")
        assert {row["state"] for row in await world.rows(called)} == {"sending"}
        assert [(row["state"], row["attempts"]) for row in await world.rows(waiting)] == [
            ("pending", 0)
        ] * len(waiting)
    finally:
        held.let_go()
        await execute(
            world.rig.database, f'ALTER DATABASE "{name}" RESET default_transaction_read_only'
        )
    await world.go_out(called + waiting)


async def refuses_changes(world: World, error: type[Exception]) -> None:
    """The fault is there: a new session meets it."""
    connection = await asyncpg.connect(world.rig.dsn)
    try:
        with pytest.raises(error):
            await connection.execute("UPDATE pause SET until = until")
    finally:
        await connection.close()


FULL: Final = "(53100): its disk is full; make room for its data and its WAL"


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    with small_disk() as directory:
        yield directory


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cramped(
    servers: devservers.Servers,
    template_database: str,
    disk: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[World]:
    """A world whose database lies on the small disk."""
    name = f"cramped_{os.urandom(4).hex()}"
    kafka, topics = servers.kafka.bootstrap_servers, Topics(prefix=f"{name}.")
    dsn = servers.postgres.create_database(name, template=template_database)
    await create_topics(kafka, topics, partitions=3, replication_factor=-1)
    with psycopg.connect(servers.postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE cramped LOCATION '{disk / 'tablespace'}'".encode())
        try:
            connection.execute(f'ALTER DATABASE "{name}" SET TABLESPACE cramped'.encode())
            async with living(kafka, dsn, topics, tmp_path_factory.mktemp("aws")) as made:
                yield made
        finally:
            servers.postgres.drop_database(name)
            connection.execute("DROP TABLESPACE cramped")


async def test_full_disk_of_postgresql_is_told_and_costs_no_message(
    cramped: World, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held(cramped)
    ids = await held.under_way()
    # More than whose outcomes find room within what the files have already.
    ids += await cramped.rig.fill(500)
    fill(disk)
    try:
        with pytest.raises(Unavailable, match="make room"):
            await use_up(cramped, ids)
        held.let_go()
        # Whichever duty meets it first.
        await until(lambda: FULL in str(cramped.sender.health.missing()), PATIENCE_S)
        logged(caplog, "duty.failed", error=FULL)
        states = Counter(row["state"] for row in await cramped.rows(ids))
        assert states.keys() <= {"pending", "sending", "submitted"}
    finally:
        make_room(disk)
        held.let_go()
    await cramped.go_out(ids)


async def use_up(cramped: World, ids: list[UUID]) -> None:
    """Writes messages until the database refuses them."""
    for _ in range(10_000):
        ids += await cramped.rig.fill(100)


async def test_full_disk_is_told_by_recipients_and_costs_no_event(
    servers: devservers.Servers,
    cramped: World,
    disk: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = cramped.rig.database
    setup = Setup(servers, cramped.rig.topics, cramped.rig.dsn)
    row = await make_row(database, "submitted", provider_message_id="p-1")
    async with folding(setup.stage()) as stage:
        await setup.publish_events([event(EventType.DELIVERED, row)])
        await until(lambda: has_events(database, 1), PATIENCE_S)
        fill(disk)
        try:
            await setup.publish_events(many(row, 3000))
            await until(lambda: FULL in str(stage.health.missing()), PATIENCE_S)
            logged(caplog, "duty.failed", error=FULL)
        finally:
            make_room(disk)
        await until(lambda: has_events(database, 3001), PATIENCE_S)

        async def all_committed() -> bool:
            return await setup.committed() == 3001

        await until(all_committed, PATIENCE_S)
        assert not stage.health.missing()
    await setup.publisher.stop()
