"""`mailstreams pause` and `resume` as an operator runs them, and what senders make of it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

import devservers
from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Database
from streams.adapters.schedule_store import ScheduleStore
from streams.domain.attempts import Pause, PauseScope, Verdict
from streams.domain.topics import Topics
from tests.integration.outbox_rows import execute, fetch
from tests.integration.sender_rig import Rig, ready, rig_on, running, until
from tests.integration.sender_rows import claim, insert
from tests.integration.test_outbox_commands import Command

pytestmark = pytest.mark.servers

BY = ("--by", "Ann", "--reason", "a wrong price in the text")
REFUSED = Pause(
    scope=PauseScope.SENDER, value="shop@example.com", reason="not verified", seconds=60
)


@pytest.fixture
def command(database_dsn: str) -> Command:
    return Command(database_dsn)


# What is paused


SCOPES = {
    "account": {"own", "other"},
    "lane bulk": {"own"},
    "tenant shop": {"own"},
    "sender News@Example.com": {"own"},
    "sender example.com": {"own", "other"},
    "template sale": {"own"},
    "template shop/sale": {"own"},
    "template other/sale": set(),
}


async def test_what_is_paused_is_not_claimed_and_nothing_else_is(
    command: Command, database: Database, store: OutboxStore
) -> None:
    of_template = {"template": "sale", "subject": None, "text": None}
    for asked, held in SCOPES.items():
        rows = {
            "own": await insert(
                database, tenant="shop", lane="bulk", sender="news@example.com", **of_template
            ),
            "other": await insert(database, tenant="bank", recipient="bob@example.com"),
        }
        assert command.json("pause", *asked.split(), *BY)["paused"]["until"] is None
        verdicts = {answer.id: answer.verdict for answer in await claim(store, *rows.values())}
        paused = {name for name, id_ in rows.items() if verdicts[id_] is Verdict.PAUSED}
        assert (asked, paused) == (asked, held)
        charged = "SELECT sum(attempts) FROM email_outbox WHERE id = ANY ($1)"
        assert await execute(database, charged, list(rows.values())) == 2 - len(held)
        command.json("resume", *asked.split(), *BY)
        again = await claim(store, *rows.values())
        assert Verdict.PAUSED not in [answer.verdict for answer in again]
    audit = await fetch(database, "SELECT by_whom, action, why FROM audit_log ORDER BY id")
    assert [tuple(row.values()) for row in audit] == len(SCOPES) * [
        ("Ann", action, BY[3]) for action in ("mail.paused", "mail.resumed")
    ]


async def test_pauses_are_listed_with_who_why_since_and_until(
    command: Command, database: Database, store: OutboxStore
) -> None:
    assert command.run("pause", "list").stdout == "nothing is paused\n"
    await insert(database, tenant="shop")
    command.json("pause", "tenant", "shop", "--for", "2", *BY)
    [answer] = await claim(store, await insert(database, tenant="shop"))
    assert answer.verdict is Verdict.PAUSED
    await store.pause(REFUSED)
    found = command.json("pause", "list")
    assert found["held"] == 1
    assert [(p["scope"], p["value"], p["who"], p["automatic"]) for p in found["pauses"]] == [
        ("sender", "shop@example.com", "sender", True),
        ("tenant", "shop", "Ann", False),
    ]
    lines = command.run("pause", "list").stdout.splitlines()
    assert lines[0].split() == ["scope", "value", "since", "until", "who", "reason"]
    assert lines[1].startswith("sender  shop@example.com  ")
    assert lines[2].split(maxsplit=5)[4:] == ["Ann", "a wrong price in the text"]
    assert lines[3] == "1 messages were met and wait for the end of a pause"


async def test_what_is_held_has_a_wake_up_and_keeps_that_of_a_retry(
    database: Database, store: OutboxStore
) -> None:
    held, retried, other = [await insert(database, tenant=t) for t in ("shop", "shop", "bank")]
    sending = await insert(database, tenant="shop")
    [answer] = await claim(store, sending)
    assert answer.verdict is Verdict.CLAIMED
    ids = [held, retried, other, sending]
    assert await store.hold_paused(ids) == []
    await execute(
        database,
        "INSERT INTO email_due (id, due, tenant, lane, why) VALUES ($1, now() + interval '1 h', 'shop', 'transactional', 'retry')",
        retried,
    )
    await execute(
        database,
        "INSERT INTO pause (scope, value, reason, who) VALUES ('tenant', 'shop', 'x', 'Ann')",
    )
    assert set(await store.hold_paused(ids)) == {held, retried}
    due = "SELECT id, why, due > now() + interval '50 min' AS late FROM email_due ORDER BY id"
    assert await fetch(database, due) == [
        {"id": held, "why": "paused", "late": False},
        {"id": retried, "why": "retry", "late": True},
    ]


async def test_what_is_held_does_not_go_round_through_the_feed(
    command: Command, database: Database
) -> None:
    schedule = ScheduleStore(database)
    held, _ = [await insert(database, tenant=tenant) for tenant in ("shop", "bank")]
    await insert(database, tenant="shop", expires_at=datetime.now(UTC) - timedelta(hours=1))
    await execute(
        database,
        "INSERT INTO email_due (id, due, tenant, lane, why) SELECT id, now(), tenant, lane, 'busy' FROM email_outbox",
    )
    command.json("pause", "tenant", "shop", "--for", "1", *BY)
    taken = await schedule.take_due(10)
    assert (taken.taken, taken.pointers, taken.expired) == (3, 1, 1)
    waits = "SELECT id, why, due BETWEEN now() + interval '20 s' AND now() + interval '30 s' AS soon FROM email_due"
    assert await fetch(database, waits) == [{"id": held, "why": "paused", "soon": True}]
    assert (await schedule.take_due(10)).taken == 0
    command.json("resume", "tenant", "shop", *BY)
    assert (await schedule.take_due(10)).pointers == 1


# What exists already, and what does not


async def test_a_pause_of_a_person_is_replaced_only_if_told_so(
    command: Command, database: Database
) -> None:
    command.json("pause", "lane", "bulk", *BY)
    again = command.run("pause", "lane", "bulk", "--by", "Bob", "--reason", "more", "--for", "1")
    assert (again.returncode, again.stdout) == (5, "")
    assert "lane bulk is paused already by Ann since" in again.stderr
    assert "--replace" in again.stderr
    assert again.stderr.count("\n") == 1
    command.json(
        "pause", "lane", "bulk", "--by", "Bob", "--reason", "more", "--for", "1", "--replace"
    )
    assert await execute(database, "SELECT who FROM pause") == "Bob"
    detail = await execute(database, "SELECT detail FROM audit_log ORDER BY id DESC LIMIT 1")
    assert json.loads(detail)["before"]["who"] == "Ann"


async def test_a_pause_of_a_stage_is_taken_over_and_ends_no_sooner(
    command: Command, database: Database, store: OutboxStore
) -> None:
    await store.pause(REFUSED)
    until_ = "SELECT extract(epoch FROM until - now())::int FROM pause"
    command.json("pause", "sender", "shop@example.com", "--for", "0.001", *BY)
    assert await execute(database, until_) >= 50
    await store.pause(REFUSED)
    assert await execute(database, "SELECT count(*) FROM pause") == 1


async def test_what_a_stage_paused_is_lifted_only_if_told_so(
    command: Command, database: Database, store: OutboxStore
) -> None:
    stop = Pause(scope=PauseScope.ACCOUNT, value="*", reason="the account is paused", seconds=60)
    await store.pause(stop)
    left = command.run("resume", "account", *BY)
    assert left.returncode == 5
    assert "still paused by sender" in left.stderr
    command.json("pause", "account", *BY)
    done = command.json("resume", "account", *BY)
    assert ([r["who"] for r in done["lifted"]], [r["who"] for r in done["left"]]) == (
        ["Ann"],
        ["sender"],
    )
    done = command.json("resume", "account", "--automatic", *BY)
    assert [r["who"] for r in done["lifted"]] == ["sender"]
    assert await execute(database, "SELECT count(*) FROM pause") == 0


async def test_what_is_not_paused_cannot_be_resumed(command: Command, database: Database) -> None:
    await execute(
        database,
        "INSERT INTO pause (scope, value, reason, who, until) VALUES ('tenant', 'shop', 'over', 'Ann', now() - interval '1 s')",
    )
    done = command.run("resume", "tenant", "shop", *BY)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr == "mailstreams: tenant shop is not paused: nothing to resume\n"
    assert await execute(database, "SELECT count(*) FROM audit_log") == 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["lane", "slow"], "the lanes are transactional, bulk"),
        (["tenant", "a b"], "is no tenant"),
        (["sender", "no address"], "neither an address nor a domain"),
        (["sender", "localhost"], "neither an address nor a domain"),
        (["template", "a/b/c"], "is no template"),
        (["tenant", "shop", "--for", "0"], "give more than 0"),
        (["tenant", "shop", "--for", "nan"], "give more than 0"),
        (["tenant", "shop", "--until", "2020-01-01T00:00Z"], "is not within"),
        (["tenant", "shop", "--for", "1", "--until", "2099-01-01T00:00Z"], "one of the two"),
        (["tenant", "shop", "--by", "sender"], "that is a stage"),
        (["tenant", "shop", "--reason", " "], "--reason is empty"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_what_is_asked_wrongly_is_refused_before_anything_is_opened(
    asked: list[str], told: str
) -> None:
    nowhere = Command("postgresql://x@127.0.0.1:1/x")
    assert told in nowhere.refusal("pause", *asked[:2], *BY, *asked[2:])


# How soon


@pytest.fixture
async def rig(
    servers: devservers.Servers, database_dsn: str, database: Database, topics: Topics
) -> AsyncIterator[Rig]:
    async with rig_on(servers.kafka.bootstrap_servers, database_dsn, database, topics) as made:
        yield made


async def test_a_pause_stops_every_sender_within_a_second_and_charges_nothing(
    command: Command, rig: Rig
) -> None:
    await rig.rate(60)
    async with running(rig.sender(), rig.sender()) as senders:
        await ready(*senders)
        await rig.fill(300, tenant="shop")
        await until(lambda: len(rig.ses.calls) >= 20)
        done = await asyncio.to_thread(command.run, "pause", "tenant", "shop", *BY)
        paused_at = time.monotonic()
        assert done.returncode == 0, done.stderr

        async def all_held() -> bool:
            held = "SELECT (SELECT count(*) FROM email_due WHERE why = 'paused') + (SELECT count(*) FROM email_attempt)"
            return bool(await execute(rig.database, held) == 300)

        await until(all_held)
        called = len(rig.ses.calls)
        assert rig.ses.times[-1] <= paused_at + 1.0
        granted = await rig.permits_granted()
        await rig.fill(50, tenant="shop")

        async def new_ones_held() -> bool:
            held = "SELECT count(*) FROM email_due WHERE why = 'paused'"
            return bool(await execute(rig.database, held) == 350 - called)

        await until(new_ones_held)
        assert await rig.permits_granted() == granted
        assert called < 300
        assert await execute(rig.database, "SELECT sum(attempts) FROM email_outbox") == called
        await rig.rate()
        resumed_at = time.monotonic()
        done = await asyncio.to_thread(command.run, "resume", "tenant", "shop", *BY)
        assert done.returncode == 0, done.stderr
        await rig.all_in("submitted", 350)
    assert rig.ses.times[called] <= resumed_at + 5.0
    assert not rig.sent_twice()
