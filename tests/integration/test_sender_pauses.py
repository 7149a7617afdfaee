"""What SES refuses to the account or to one sender: paused with a reason, tried more and more rarely, by one call at a time."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

import devservers
from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Database
from streams.adapters.schedule_store import ScheduleStore
from streams.domain.attempts import Pause, PauseScope
from streams.domain.topics import Topics
from tests.integration.sender_rig import Rig, accept, refusing, rig_on, running, until
from tests.integration.sender_rows import execute, one

pytestmark = pytest.mark.servers

STOP = Pause(scope=PauseScope.ACCOUNT, value="*", reason="the account is paused", seconds=60.0)


@pytest.fixture
async def rig(
    servers: devservers.Servers, database_dsn: str, database: Database, topics: Topics
) -> AsyncIterator[Rig]:
    async with rig_on(servers.kafka.bootstrap_servers, database_dsn, database, topics) as made:
        yield made


async def age(database: Database, seconds: float) -> None:
    """So long passes for every pause."""
    await execute(
        database,
        "UPDATE pause SET since = since - make_interval(secs => $1), until = until - make_interval(secs => $1)",
        seconds,
    )


async def length(database: Database) -> float:
    found = await one(
        database,
        "SELECT extract(epoch FROM until - clock_timestamp())::float8 AS s FROM pause",
    )
    return float(found["s"])


# How long ---------------------------------------------------------------------------------------------------------------


async def test_what_stays_refused_is_tried_more_and_more_rarely(database: Database) -> None:
    store = OutboxStore(database, max_attempts=5)
    lengths = []
    for _ in range(7):
        await store.pause(STOP)
        lengths.append(await length(database))
        await age(database, lengths[-1] + 5)
    wholes = [60.0, 65.0, 135.0, 275.0, 555.0, 600.0, 600.0]
    for found, whole in zip(lengths, wholes, strict=True):
        assert whole - 20 <= found <= whole + 20


async def test_calls_that_were_under_way_make_a_pause_no_longer(database: Database) -> None:
    store = OutboxStore(database, max_attempts=5)
    for _ in range(20):
        await store.pause(STOP)
    assert await length(database) <= 61


async def test_a_stop_long_after_the_last_one_begins_anew(database: Database) -> None:
    store = OutboxStore(database, max_attempts=5)
    await store.pause(STOP)
    await age(database, 125)
    await store.pause(STOP)
    found = await one(
        database, "SELECT since > clock_timestamp() - interval '30 s' AS is_new FROM pause"
    )
    assert found["is_new"]
    assert await length(database) <= 61


async def test_an_account_that_may_send_again_is_tried_at_once(database: Database) -> None:
    """The poll of the account has seen it stop and go on; pauses of persons stay."""
    store, schedule = OutboxStore(database, max_attempts=5), ScheduleStore(database)
    await store.pause(STOP)
    await execute(
        database,
        "INSERT INTO pause (scope, value, reason, who) VALUES ('lane', 'bulk', 'audit', 'ann')",
    )
    assert not await schedule.resume_account("the region", who="account poll")
    assert await one(database, "SELECT FROM pause WHERE who = 'sender'") is not None
    await schedule.pause_account(
        "the region", reason="paused", who="account poll", lasting=timedelta(seconds=120)
    )
    assert await schedule.resume_account("the region", who="account poll")
    assert await one(database, "SELECT who FROM pause") == {"who": "ann"}


# What stops, and who tries ------------------------------------------------------------------------------------------------


def refusing_sender(sender: str, world: dict[str, bool]) -> Any:
    async def answer(request: web.Request, number: int) -> web.StreamResponse:
        body = await request.json()
        if world["refuses"] and body["FromEmailAddress"] == sender:
            text = f"Email address is not verified. The following identities failed the check in region EU-CENTRAL-1: {sender}"
            return await refusing(400, "MessageRejected", text)(request, number)
        return await accept(request, number)

    return answer


async def test_one_sender_that_is_refused_stops_alone_and_goes_on_by_itself(rig: Rig) -> None:
    world = {"refuses": True}
    rig.ses.answer = refusing_sender("news@example.com", world)
    rig.ses.delay_s = 0.2
    await rig.fill(30, sender="news@example.com")
    async with running(rig.sender()):

        async def stopped() -> bool:
            return await one(rig.database, "SELECT FROM pause") is not None

        await until(stopped, 60)
        async with rig.database.connection() as connection:
            await connection.execute(
                "INSERT INTO email_outbox (recipient, sender, subject, text) "
                "SELECT 'other' || n || '@example.com', 'shop@example.com', 'Hello', 'Hi' FROM generate_series(1, 10) AS n"
            )
        await rig.all_in("submitted", 10, 60)
        pause = await one(rig.database, "SELECT scope, value, who, reason FROM pause")
        first = sum(c["FromEmailAddress"] == "news@example.com" for c in rig.ses.calls)
        # It ends while SES still refuses: one call tries at a time, not all thirty.
        rig.ses.under_way.clear()
        rig.ses.most_at_once = 0
        await _end_pause(rig)
        await until(lambda: len(rig.ses.calls) > first + 10, 60)
        await until(lambda: rig.ses.under_way.total() == 0, 60)
        assert rig.ses.most_at_once == 1
        world["refuses"] = False

        async def submitted() -> bool:
            await _end_pause(rig)
            return (await rig.states())["submitted"] == 40

        await until(submitted, 90)
    assert pause["scope"] == "sender"
    assert (pause["value"], pause["who"]) == ("news@example.com", "sender")
    assert "not verified" in pause["reason"]
    charged = await one(rig.database, "SELECT max(attempts) AS most FROM email_outbox")
    assert charged == {"most": 1}
    assert not rig.sent_twice()


async def _end_pause(rig: Rig) -> None:
    """Its time is over, and so is that of the rows that it held."""
    await execute(rig.database, "UPDATE pause SET until = least(until, clock_timestamp())")
    await execute(rig.database, "UPDATE email_due SET due = least(due, clock_timestamp())")


async def test_account_that_is_stopped_is_tried_by_one_call_at_a_time(rig: Rig) -> None:
    world = {"refuses": True}

    async def answer(request: web.Request, number: int) -> web.StreamResponse:
        if world["refuses"]:
            return await refusing(400, "AccountSuspendedException", "Suspended.")(request, number)
        return await accept(request, number)

    rig.ses.answer = answer
    rig.ses.delay_s = 0.2
    await rig.fill(30)
    async with running(rig.sender()):

        async def stopped() -> bool:
            return await one(rig.database, "SELECT FROM pause") is not None

        await until(stopped, 60)
        await until(lambda: rig.ses.under_way.total() == 0, 60)
        first = len(rig.ses.calls)
        rig.ses.most_at_once = 0
        await _end_pause(rig)
        await until(lambda: len(rig.ses.calls) > first, 60)
        await until(lambda: rig.ses.under_way.total() == 0, 60)
        assert rig.ses.most_at_once == 1
        assert (await rig.states())["failed"] == 0
        world["refuses"] = False

        async def submitted() -> bool:
            await _end_pause(rig)
            return (await rig.states())["submitted"] == 30

        await until(submitted, 90)
    assert not rig.sent_twice()
