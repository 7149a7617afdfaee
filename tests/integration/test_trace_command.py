"""`mailstreams trace` by everything that somebody may have of a message, and how it is looked up."""

import json
from typing import Any

import pytest

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.domain.asking import asked
from streams.domain.delivery_events import EventType
from streams.domain.errors import Misconfigured
from tests.integration.outbox_rows import Row, bounced, event, execute, fetch, make_row
from tests.integration.test_outbox_commands import Command
from tests.integration.test_scheduler_plans import plan
from tests.integration.test_unknown_policies import apply

pytestmark = pytest.mark.servers

BY = ("--by", "Ann", "--reason", "the customer asks")


@pytest.fixture
def command(database_dsn: str) -> Command:
    return Command(database_dsn)


async def sent(database: Database, **columns: Any) -> Row:
    return await make_row(database, "submitted", provider_message_id="0102-abc-000000", **columns)


def steps(found: Any) -> list[str]:
    return [line["what"] for line in found["story"]]


# What is looked for


async def test_a_message_is_found_by_whatever_somebody_has_of_it(
    command: Command, database: Database
) -> None:
    row = await sent(database, dedup_key="reset:42", cc=["Cc@example.com"])
    asked_by = {
        str(row.id): "outbox id",
        str(row.attempt_id): "attempt id",
        str(row.attempt_id).upper(): "attempt id",
        "0102-abc-000000": "provider id",
        "<0102-abc-000000@eu-west-1.amazonses.com>": "provider id",
        "reset:42": "dedup key",
        "USER1@example.com": "recipient",
        "Ann <user1@example.com>": "recipient",
        row.key: "recipient",
        "cc@example.com": "copy to",
    }
    for text, is_its in asked_by.items():
        found = command.json("trace", text)
        assert (text, found["is_its"]) == (text, is_its)
        assert found["outbox_id"] == str(row.id)
    sending = await make_row(database, "sending", recipient="two@example.com")
    assert command.json("trace", str(sending.attempt_id))["outbox_id"] == str(sending.id)


async def test_several_messages_are_listed_newest_first_with_an_exit_code_of_their_own(
    command: Command, database: Database
) -> None:
    rows = [await make_row(database, tenant=tenant) for tenant in ("shop", "shop", "bank")]
    found = command.json("trace", "user1@example.com", code=4)
    assert [m["id"] for m in found["messages"]] == [str(row.id) for row in reversed(rows)]
    assert found["more"] is False
    text = command.run("trace", "user1@example.com", "--limit", "2")
    assert text.returncode == 4
    assert [line.split()[0] for line in text.stdout.splitlines()] == [
        "id",
        str(rows[2].id),
        str(rows[1].id),
    ]
    assert (
        text.stderr
        == "mailstreams: several messages are meant, the newest 2 are listed: trace one id\n"
    )
    one = command.json("trace", "user1@example.com", "--tenant", "bank")
    assert one["outbox_id"] == str(rows[2].id)


async def test_a_dedup_key_is_looked_for_in_every_tenant(
    command: Command, database: Database
) -> None:
    for tenant in ("alpha", "beta", "gamma"):
        await make_row(database, tenant=tenant, dedup_key=f"order of {tenant}")
    found = command.json("trace", "order of gamma")
    assert "tenant gamma" in found["story"][0]["detail"]
    assert command.run("trace", "order of gamma", "--tenant", "alpha").returncode == 3


@pytest.mark.parametrize("text", ["0195d2c0-0000-7000-8000-000000000000", "nobody@example.com"])
async def test_what_is_not_known_has_an_exit_code_of_its_own(command: Command, text: str) -> None:
    done = command.run("trace", text)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "mailstreams: there is no message of this id, recipient or dedup key\n"


@pytest.mark.parametrize("text", ["", "  ", "a\x1b[31mb", "x" * 1001])
def test_what_can_be_no_message_is_refused(text: str) -> None:
    nowhere = Command("postgresql://x@127.0.0.1:1/x")
    assert "write an outbox id" in nowhere.refusal("trace", text)


@pytest.mark.parametrize(
    "odd",
    ['"quoted @ local"@example.com', "o'brien@example.com", "a@b@c", "%s@x.y", "x';--@example.com"],
)
async def test_odd_addresses_are_only_not_found(command: Command, odd: str) -> None:
    assert command.run("trace", odd).returncode == 3


def test_an_id_in_hexadecimal_digits_alone_is_a_recipient_key() -> None:
    assert asked("0" * 32).id is None
    assert asked("0" * 32).key == "0" * 32
    with pytest.raises(Misconfigured):
        asked("")


# What is told


async def test_the_story_is_in_order_and_ends_with_what_holds_it_now(
    command: Command, database: Database
) -> None:
    row = await make_row(database, "ambiguous")
    await execute(database, "UPDATE email_outbox SET state = 'pending' WHERE id = $1", row.id)
    await execute(
        database,
        "INSERT INTO email_event (event_id, recipient_key, type, at, outbox_id, payload) VALUES ('e', $1, 'opened', now(), $2, '{}')",
        row.key,
        row.id,
    )
    await execute(
        database,
        "INSERT INTO email_due (id, due, tenant, lane, why) VALUES ($1, now() + interval '1 h', 'shop', 'transactional', 'paused')",
        row.id,
    )
    command.json("pause", "tenant", "shop", "--by", "Ann", "--reason", "a wrong price")
    await execute(
        database,
        "INSERT INTO send_rate (scope, per_second, open_since, probe_at) VALUES ('eu', 1, now(), now())",
    )
    story = command.json("trace", str(row.id))["story"]
    told = [line["what"] for line in story]
    for what in (
        "committed",
        "pointer",
        "to",
        "attempt 1 unknown",
        "outcome unknown",
        "event opened",
        "wakes up",
    ):
        assert what in told, told
    assert told[:2] == ["committed", "pointer"]
    assert told[-2:] == ["held by a pause", "held by the circuit"]
    assert "by Ann" in story[-2]["detail"]
    assert f"key {row.key}" in story[1]["detail"]
    times = [line["at"] for line in story if line["at"]]
    assert times == sorted(times)


async def test_addresses_are_masked_unless_the_look_is_taken_down(
    command: Command, database: Database
) -> None:
    row = await sent(database, dedup_key="for user1@example.com", bcc=["hidden@example.com"])
    done = command.run("trace", str(row.id))
    assert "user1@" not in done.stdout + done.stderr
    assert "hidden@" not in done.stdout + done.stderr
    assert "u***@example.com" in done.stdout
    assert await execute(database, "SELECT count(*) FROM audit_log") == 0
    assert "--by is empty" in command.refusal("trace", str(row.id), "--show-addresses")
    shown = command.run("trace", str(row.id), "--show-addresses", *BY)
    assert "user1@example.com" in shown.stdout
    assert "hidden@example.com" in shown.stdout
    (entry,) = await fetch(
        database, "SELECT by_whom, action, why, recipient_key, detail FROM audit_log"
    )
    assert json.loads(entry.pop("detail")) == {"outbox_id": str(row.id)}
    assert list(entry.values()) == ["Ann", "address.shown", "the customer asks", row.key]


async def test_what_is_known_of_the_recipient_is_part_of_the_story(
    command: Command, database: Database
) -> None:
    row = await sent(database)
    await apply(database, event(EventType.ACCEPTED, row), bounced(row))
    story = command.json("trace", str(row.id))["story"]
    told = {line["what"]: line["detail"] for line in story}
    assert "bounced " in told["facts"]
    assert "(permanent, " in told["facts"]
    assert told["suppression"].startswith("hard-bounce, recipient ")
    assert told["event bounced"].startswith("permanent, ")


async def test_positions_of_a_topic_that_cannot_be_read_are_told_as_that(
    command: Command, database: Database
) -> None:
    row = await make_row(database)
    command.environment["MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS"] = "127.0.0.1:1"
    story = command.json("trace", str(row.id), "--positions")["story"]
    assert story[-1]["what"] == "in the topic"
    assert "cannot be reached" in story[-1]["detail"]


async def test_what_was_done_by_hand_is_part_of_the_story(
    command: Command, database: Database
) -> None:
    row = await make_row(database)
    command.json("cancel", str(row.id), *BY)
    assert "email.cancelled" in steps(command.json("trace", str(row.id)))


# How it is looked up

LARGE = {
    "email_outbox",
    "email_attempt",
    "email_event",
    "recipient_outcome",
    "email_due",
    "audit_log",
}
KEYED = {"Index Cond", "Recheck Cond", "TID Cond"}


@pytest.fixture
async def full(database: Database) -> Database:
    """6,000 messages with an attempt and an event each, of 50 tenants."""
    async with database.transaction() as connection:
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(
            """INSERT INTO email_outbox (tenant, recipient, recipient_key, sender, subject, text, dedup_key)
               SELECT 't' || n % 50, 'user@example.com', md5(n::text), 's@example.com', 'Hello', 'Hi', CASE WHEN n % 2 = 0 THEN 'k' || n END
               FROM generate_series(1, 6000) AS n;
               INSERT INTO email_attempt (id, outbox_id, number, finished, outcome, provider_message_id)
               SELECT uuid_v7(), id, 1, now(), 'accepted', 'm' || id FROM email_outbox;
               INSERT INTO email_event (event_id, recipient_key, type, at, outbox_id, provider_message_id, payload)
               SELECT 'e' || id, recipient_key, 'delivered', now(), id, 'm' || id, '{}' FROM email_outbox;
               INSERT INTO recipient_outcome (outbox_id, recipient_key, delivered_at) SELECT id, recipient_key, now() FROM email_outbox;
               INSERT INTO audit_log (by_whom, action, why, detail) SELECT 'Ann', 'x', 'y', jsonb_build_object('outbox_id', id) FROM email_outbox;
               INSERT INTO email_due (id, due, tenant, lane, why) SELECT id, now(), tenant, lane, 'retry' FROM email_outbox"""
        )
    await execute(database, "ANALYZE")
    return database


async def test_every_large_table_is_read_by_an_index_and_little_of_it(full: Database) -> None:
    for name in ("find_messages", "trace_email"):
        for node in nodes(await plan(full, name)):
            if node.get("Relation Name") in LARGE:
                # The next tenant is the first entry of the index.
                first = node.get("Index Name") == "email_outbox_dedup"
                assert KEYED & node.keys() or first, node
    row = await fetch(
        full,
        "SELECT id, recipient_key AS key, dedup_key AS text FROM email_outbox WHERE dedup_key = 'k3000'",
    )
    asked_ = [
        ("find_messages", (row[0]["id"], row[0]["text"], row[0]["key"], None, 21)),
        ("trace_email", (row[0]["id"], False)),
    ]
    for name, values in asked_:
        # 50 tenants are 150 pages of the dedup index.
        assert await buffers(full, name, values) < 400, name


async def buffers(database: Database, name: str, values: tuple[Any, ...]) -> int:
    """Pages that the statement looked at."""
    async with database.connection() as connection:
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        await connection.fetch(query(name), *values)
        await connection.execute("SELECT 1")
        found = json.loads(
            await connection.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query(name).rstrip().rstrip(';')}",
                *values,
            )
        )
    plan_ = found[0]["Plan"]
    return int(plan_["Shared Hit Blocks"] + plan_["Shared Read Blocks"])


def nodes(tree: Any) -> list[dict[str, Any]]:
    if isinstance(tree, list):
        return [node for each in tree for node in nodes(each)]
    if not isinstance(tree, dict):
        return []
    found = [tree] if "Node Type" in tree else []
    return found + [node for value in tree.values() for node in nodes(value)]
