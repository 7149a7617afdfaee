"""What is misconfigured, expired, read-only or full is told with what to change, and costs no message.

One sender lives through all of it, since nothing of it may need a start. Of each fault: while it lasts, no message is lost, failed,
ambiguous or charged; the log and readiness name it and what to do; afterwards everything goes out by itself, once by SES's own
record. Only pauses and retries are hurried: their time passes faster.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
import psycopg
import pytest
import pytest_asyncio
from aiohttp import web

import devservers
from streams.adapters.kafka import create_topics
from streams.adapters.postgres import Database
from streams.domain.errors import Unavailable
from streams.domain.topics import Topics
from streams.sender import Sender
from tests.integration.sender_rig import Answer, Rig, accept, refusing, rig_on, running, until
from tests.integration.sender_rows import execute, one
from tests.integration.test_sender_trouble import Aws, write_credentials
from tests.small_disk import fill, make_room, small_disk

pytestmark = [pytest.mark.servers, pytest.mark.asyncio(loop_scope="module")]

# Of one alone it would not be clear whether the message or the way is wrong: its attempts would count.
MESSAGES: Final = 4
SHOP: Final = "shop@example.com"
NEWS: Final = "news@example.com"
PATIENCE_S: Final = 90.0
KEY: Final = "AKIDEXAMPLE"


@dataclass
class World:
    """A sender on real servers, AWS before it, and the credentials file that it reads."""

    rig: Rig
    sender: Sender
    aws: Aws
    credentials: Path

    async def write(self, sender: str = SHOP) -> list[UUID]:
        return await self.rig.fill(MESSAGES, sender=sender)

    async def rows(self, ids: list[UUID]) -> list[dict[str, Any]]:
        """Their states and attempts, and whether something wakes them up."""
        async with self.rig.database.connection() as connection:
            found = await connection.fetch(
                "SELECT o.state, o.attempts, d.id IS NOT NULL AS is_woken FROM email_outbox o LEFT JOIN email_due d USING (id) "
                "WHERE o.id = ANY ($1::uuid[])",
                ids,
            )
        return [dict(row) for row in found]

    async def tells(self, what: str, *words: str) -> None:
        """Readiness says these words of it."""

        def is_told() -> bool:
            why = self.sender.health.missing().get(what, "")
            return all(word in why for word in words)

        try:
            await until(is_told, PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"{words} is not in {self.sender.health.missing()}") from None

    async def sleep_uncharged(self, ids: list[UUID]) -> None:
        """They wait, with a wake-up, and no attempt of theirs counts."""

        async def do() -> bool:
            rows = await self.rows(ids)
            return rows == [{"state": "pending", "attempts": 0, "is_woken": True}] * len(ids)

        try:
            await until(do, PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"{await self.rows(ids)}") from None

    async def hurry(self) -> None:
        """The time of pauses and retries is over."""
        await execute(self.rig.database, "UPDATE pause SET until = least(until, clock_timestamp())")
        await execute(self.rig.database, "UPDATE email_due SET due = least(due, clock_timestamp())")

    async def go_out(self, ids: list[UUID]) -> None:
        """By themselves, each once by SES's record and with the one attempt that it took; then the sender is ready."""

        async def are_out() -> bool:
            await self.hurry()
            return all(row["state"] == "submitted" for row in await self.rows(ids))

        try:
            await until(are_out, PATIENCE_S)
        except AssertionError:
            raise AssertionError(
                f"{await self.rows(ids)}, {self.sender.health.missing()}"
            ) from None
        assert [row["attempts"] for row in await self.rows(ids)] == [1] * len(ids)
        accepted = Counter(self.rig.ses.accepted)
        assert {str(id_): accepted[str(id_)] for id_ in ids} == dict.fromkeys(map(str, ids), 1)
        await until(lambda: not self.sender.health.missing(), PATIENCE_S)
        await self.rig.all_committed(PATIENCE_S)


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


@asynccontextmanager
async def living(kafka: str, dsn: str, topics: Topics, folder: Path) -> AsyncIterator[World]:
    """The sender runs while the block does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        async with (
            Database(dsn, pool_size=4, timeout_s=20, name="test") as database,
            rig_on(kafka, dsn, database, topics) as rig,
        ):
            # In a file, so that they can be replaced while the sender runs.
            patch.delenv("AWS_ACCESS_KEY_ID")
            patch.delenv("AWS_SECRET_ACCESS_KEY")
            write_credentials(folder, KEY)
            sender, aws = rig.sender(), Aws()
            async with running(sender):
                yield World(rig, sender, aws, folder)


def logged(caplog: pytest.LogCaptureFixture, action: str, **fields: str) -> logging.LogRecord:
    """A record of at least a warning with this action, whose fields contain these words and whose sentence is constant."""
    found = [r for r in caplog.records if r.__dict__.get("action") == action]
    for record in found:
        told = {name: str(record.__dict__.get(name)) for name in fields}
        if record.levelno >= logging.WARNING and all(
            words in told[name] for name, words in fields.items()
        ):
            assert not record.args
            return record
    raise AssertionError(f"no {action} with {fields} in {[r.__dict__ for r in found]}")


# AWS and SES ----------------------------------------------------------------------------------------------------------

Fault = Callable[[World], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def expired_credentials(world: World) -> AsyncIterator[None]:
    """Until somebody renews the file."""
    world.aws.expired.add(KEY)
    yield
    world.aws.expired.clear()
    world.aws.key = "AKIDRENEWED"
    write_credentials(world.credentials, "AKIDRENEWED")


@asynccontextmanager
async def wrong_region(world: World) -> AsyncIterator[None]:
    """What answers is of another region than we sign for."""
    region, world.aws.region = world.aws.region, "us-east-1"
    yield
    world.aws.region = region


@asynccontextmanager
async def slow_clock(world: World) -> AsyncIterator[None]:
    """Ours is a quarter of an hour behind that of AWS."""
    world.aws.clock_s = 900.0
    yield
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


class Held:
    """SES takes calls and answers none of them until it is let go."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._go_on = asyncio.Event()

    async def answer(self, request: web.Request, number: int) -> web.StreamResponse:
        if self._go_on.is_set():
            return await self._world.aws.answer(request, number)
        await self._go_on.wait()
        return await accept(request, number)

    async def under_way(self) -> list[UUID]:
        """Messages whose calls are."""
        self._world.rig.ses.answer = self.answer
        ids = await self._world.write()
        under_way = self._world.rig.ses.under_way
        await until(lambda: under_way.total() == len(ids), PATIENCE_S)
        return ids

    def let_go(self) -> None:
        self._go_on.set()


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
        # A session that is older than the fault commits on; what it commits waits.
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


@pytest.fixture
def disk() -> Iterator[Path]:
    with small_disk() as directory:
        yield directory


@pytest_asyncio.fixture(loop_scope="module")
async def cramped(
    servers: devservers.Servers, template_database: str, disk: Path, tmp_path: Path
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
            async with living(kafka, dsn, topics, tmp_path) as made:
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
        await refused_outcomes_are_told(cramped, caplog, "53100", "its disk is full; make room")
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
