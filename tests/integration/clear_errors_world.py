"""A sender on real servers with AWS before it, and what of it tells that a fault cost no message."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from aiohttp import web

from streams.adapters.postgres import Database
from streams.domain.topics import Topics
from streams.sender import Sender
from tests.integration.sender_rig import Rig, accept, rig_on, running, until
from tests.integration.sender_rows import execute
from tests.integration.test_sender_trouble import Aws, write_credentials

# Of one alone it would not be clear whether the message or the way is wrong: its attempts would count.
MESSAGES: Final = 4
SHOP: Final = "shop@example.com"
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


@asynccontextmanager
async def living(kafka: str, dsn: str, topics: Topics, folder: Path) -> AsyncIterator[World]:
    """The sender runs while the block does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        async with (
            # The test writes on where the database is read-only for others.
            Database(
                dsn,
                pool_size=4,
                timeout_s=20,
                name="test",
                server_settings={"default_transaction_read_only": "off"},
            ) as database,
            rig_on(kafka, dsn, database, topics) as rig,
        ):
            # In a file, so that they can be replaced while the sender runs.
            patch.delenv("AWS_ACCESS_KEY_ID")
            patch.delenv("AWS_SECRET_ACCESS_KEY")
            write_credentials(folder, KEY)
            # A machine that is busy is none of the faults: no call ends by it.
            aws = Aws()
            sender = rig.sender(
                connect_timeout_s=20.0, read_timeout_s=60.0, lease_s=120.0, staleness_s=120.0
            )
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
