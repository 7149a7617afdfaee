"""The claim on a real PostgreSQL: a verdict for every id, what it writes and what it leaves behind."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Database
from streams.domain.attempts import (
    OutcomeKind,
    Pause,
    PauseScope,
    Presence,
    Verdict,
)
from tests.integration.claim_races import DEADLINE_S
from tests.integration.sender_rows import (
    LEASE_S,
    attempt_id,
    claim,
    claimed,
    due_of,
    execute,
    feed,
    insert,
    one,
    outcome,
    pointer,
    requests,
    row_of,
    suppress,
)

pytestmark = pytest.mark.servers


async def test_claim_returns_the_content_and_leaves_a_lease(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(
        database,
        html="<p>Hi</p>",
        reply_to="help@example.com",
        headers=json.dumps({"X-Ref": "1"}),
        tags=json.dumps({"ref": "a"}),
        cc=["bob@example.com"],
    )
    [request] = requests([id_])
    [answer] = await store.claim([request], lease_s=LEASE_S)
    assert answer.verdict is Verdict.CLAIMED
    email = answer.email
    assert email is not None
    assert (email.recipient, email.subject, email.text, email.html) == (
        "ann@example.com",
        "Hello",
        "Hi",
        "<p>Hi</p>",
    )
    assert (email.reply_to, email.headers, email.tags) == (
        "help@example.com",
        {"X-Ref": "1"},
        {"ref": "a"},
    )
    assert (email.cc, email.bcc, email.left_out) == (("bob@example.com",), (), ())
    row = await row_of(database, id_)
    assert (row["state"], row["attempt_id"], row["attempts"]) == (
        "sending",
        request.attempt_id,
        1,
    )
    lease = await one(
        database,
        "SELECT attempt_id, extract(epoch FROM expires - started)::float8 AS seconds FROM email_lease WHERE id = $1",
        id_,
    )
    assert lease == {"attempt_id": request.attempt_id, "seconds": LEASE_S}


async def test_every_id_gets_a_verdict_in_the_order_of_the_requests(
    database: Database, store: OutboxStore
) -> None:
    ids = [await insert(database) for _ in range(3)]
    absent = attempt_id()
    await suppress(database, "bounced@example.com")
    suppressed = await insert(database, recipient="bounced@example.com")
    answers = await claim(store, ids[2], absent, suppressed, ids[0])
    assert [(a.id, a.verdict) for a in answers] == [
        (ids[2], Verdict.CLAIMED),
        (absent, Verdict.ABSENT),
        (suppressed, Verdict.SUPPRESSED),
        (ids[0], Verdict.CLAIMED),
    ]


async def test_an_id_asked_for_twice_in_a_batch_is_a_bug(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(database)
    with pytest.raises(ValueError, match="twice"):
        await claim(store, id_, id_)


@pytest.mark.parametrize(
    ("suppression", "row", "verdict"),
    [
        ({}, {}, Verdict.SUPPRESSED),
        ({"tenant": "shop"}, {"tenant": "shop"}, Verdict.SUPPRESSED),
        ({"tenant": "shop"}, {"tenant": "bank"}, Verdict.CLAIMED),
        ({"lane": "bulk"}, {"lane": "bulk"}, Verdict.SUPPRESSED),
        ({"lane": "bulk"}, {}, Verdict.CLAIMED),
        ({"expires": datetime.now(UTC) + timedelta(days=1)}, {}, Verdict.SUPPRESSED),
        ({"expires": datetime.now(UTC) - timedelta(seconds=1)}, {}, Verdict.CLAIMED),
        ({}, {"recipient": " ANN@Example.COM "}, Verdict.SUPPRESSED),
        ({}, {"recipient": "ann+x@example.com"}, Verdict.CLAIMED),
    ],
)
async def test_suppression_counts_for_its_tenant_and_lane_while_it_is_in_force(
    database: Database,
    store: OutboxStore,
    suppression: dict[str, Any],
    row: dict[str, Any],
    verdict: Verdict,
) -> None:
    await suppress(database, "ann@example.com", **suppression)
    id_ = await insert(database, **row)
    [answer] = await claim(store, id_)
    assert answer.verdict is verdict


async def test_suppressed_row_is_written_and_announced_once(
    database: Database, store: OutboxStore
) -> None:
    await suppress(database, "ann@example.com", reason="complaint")
    id_ = await insert(database, dedup_key="order-1")
    await claim(store, id_)
    [again] = await claim(store, id_)
    assert again.verdict is Verdict.SETTLED
    row = await row_of(database, id_)
    assert (row["state"], row["reason"], row["attempts"]) == ("suppressed", "complaint", 0)
    [event] = await feed(database, "delivery-events")
    assert event["aggregateid"] == row["recipient_key"]
    body = json.loads(event["payload"])
    assert body["type"] == "mailstreams.email.suppressed"
    assert body["data"]["reason"] == "complaint"
    assert body["data"]["dedup_key"] == "order-1"
    assert await one(database, "SELECT * FROM email_lease") is None


async def test_expired_row_is_written_and_announced(database: Database, store: OutboxStore) -> None:
    id_ = await insert(database, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    [answer] = await claim(store, id_)
    assert answer.verdict is Verdict.EXPIRED
    assert (await row_of(database, id_))["state"] == "expired"
    [event] = await feed(database, "delivery-events")
    assert json.loads(event["payload"])["type"] == "mailstreams.email.expired"


async def test_row_that_is_not_due_keeps_its_wake_up(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(database, send_after=datetime.now(UTC) + timedelta(minutes=5))
    await execute(database, "DELETE FROM email_due")
    [answer] = await claim(store, id_)
    assert answer.verdict is Verdict.EARLY
    due = await due_of(database, id_)
    assert due["why"] == "early"
    assert due["seconds"] == pytest.approx(300, abs=20)


async def test_retry_is_not_claimed_before_its_time(database: Database, store: OutboxStore) -> None:
    id_ = await insert(database)
    email = await claimed(store, id_)
    await store.record([outcome(email, OutcomeKind.RETRY, delay_s=60.0, reason="no")])
    [answer] = await claim(store, id_)
    assert answer.verdict is Verdict.EARLY
    assert (await due_of(database, id_))["seconds"] == pytest.approx(60, abs=20)


@pytest.mark.parametrize(
    ("scope", "value", "verdict"),
    [
        ("account", "*", Verdict.PAUSED),
        ("tenant", "shop", Verdict.PAUSED),
        ("tenant", "bank", Verdict.CLAIMED),
        ("lane", "transactional", Verdict.PAUSED),
        ("lane", "bulk", Verdict.CLAIMED),
        ("sender", "shop@example.com", Verdict.PAUSED),
        ("sender", "Example.com", Verdict.PAUSED),
        ("sender", "bank@example.com", Verdict.CLAIMED),
        ("sender", "example.org", Verdict.CLAIMED),
    ],
)
async def test_pause_holds_what_it_names(
    database: Database, store: OutboxStore, scope: str, value: str, verdict: Verdict
) -> None:
    await execute(
        database,
        "INSERT INTO pause (scope, value, reason, who) VALUES ($1, $2, 'test', 'test')",
        scope,
        value,
    )
    id_ = await insert(database, tenant="shop")
    [answer] = await claim(store, id_)
    assert answer.verdict is verdict
    if verdict is Verdict.PAUSED:
        due = await due_of(database, id_)
        assert due["why"] == "paused"
        assert due["seconds"] == pytest.approx(30, abs=10)


async def test_pause_that_ends_soon_wakes_the_row_when_it_ends(
    database: Database, store: OutboxStore
) -> None:
    await store.pause(Pause(scope=PauseScope.ACCOUNT, value="*", reason="quota", seconds=5.0))
    id_ = await insert(database)
    await claim(store, id_)
    assert (await due_of(database, id_))["seconds"] == pytest.approx(5, abs=4)


async def test_pause_that_is_over_holds_nothing(database: Database, store: OutboxStore) -> None:
    await execute(
        database,
        "INSERT INTO pause (scope, value, reason, who, until) VALUES ('account', '*', 'test', 'test', now() - interval '1 s')",
    )
    [answer] = await claim(store, await insert(database))
    assert answer.verdict is Verdict.CLAIMED


async def test_pause_of_a_person_is_not_shortened_by_the_sender(
    database: Database, store: OutboxStore
) -> None:
    await execute(
        database,
        "INSERT INTO pause (scope, value, reason, who) VALUES ('account', '*', 'audit', 'ann')",
    )
    await store.pause(Pause(scope=PauseScope.ACCOUNT, value="*", reason="quota", seconds=60.0))
    pause = await one(database, "SELECT reason, who, until FROM pause")
    assert pause == {"reason": "audit", "who": "ann", "until": None}


async def test_row_that_somebody_else_holds_is_busy_and_gets_a_wake_up(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(database)
    async with database.transaction() as holder:
        await holder.execute("SELECT FROM email_outbox WHERE id = $1 FOR UPDATE", id_)
        [answer] = await asyncio.wait_for(claim(store, id_), DEADLINE_S)
    assert answer.verdict is Verdict.BUSY
    due = await due_of(database, id_)
    assert due["why"] == "busy"
    assert due["seconds"] == pytest.approx(1, abs=1)
    [answer] = await claim(store, id_)
    assert answer.verdict is Verdict.CLAIMED
    assert await due_of(database, id_) is None


async def test_row_of_an_open_transaction_is_invisible_and_absent_once_it_rolled_back(
    database: Database, store: OutboxStore
) -> None:
    async with database.connection() as writer:
        transaction = writer.transaction()
        await transaction.start()
        id_ = await insert(writer)
        xid = await writer.fetchval("SELECT pg_current_xact_id()::text::bigint")
        [answer] = await claim(store, id_, xid=xid)
        assert answer.verdict is Verdict.INVISIBLE
        [presence] = await store.read_pending([pointer(id_, xid)])
        assert presence is Presence.INVISIBLE
        await transaction.rollback()
    [answer] = await claim(store, id_, xid=xid)
    assert answer.verdict is Verdict.ABSENT


async def test_settled_row_is_not_claimed_again(database: Database, store: OutboxStore) -> None:
    id_ = await insert(database)
    email = await claimed(store, id_)
    [answer] = await claim(store, id_)
    assert answer.verdict is Verdict.SETTLED
    await store.record([outcome(email, OutcomeKind.ACCEPTED, provider_message_id="m-1")])
    [answer] = await claim(store, id_)
    assert answer.verdict is Verdict.SETTLED


async def test_earlier_wake_up_is_kept(database: Database, store: OutboxStore) -> None:
    await execute(
        database,
        "INSERT INTO pause (scope, value, reason, who) VALUES ('account', '*', 'test', 'test')",
    )
    for seconds, expected in ((5, 5), (500, 30)):
        id_ = await insert(database)
        await execute(
            database,
            "INSERT INTO email_due (id, due, tenant, lane, why) "
            "VALUES ($1, clock_timestamp() + make_interval(secs => $2), 'default', 'transactional', 'paused')",
            id_,
            seconds,
        )
        await claim(store, id_)
        assert (await due_of(database, id_))["seconds"] == pytest.approx(expected, abs=4)


async def test_suppressed_cc_and_bcc_are_left_out_and_named(
    database: Database, store: OutboxStore
) -> None:
    await suppress(database, "bob@example.com")
    await suppress(database, "dan@example.com", tenant="default")
    await suppress(database, "eve@example.com", tenant="bank")
    id_ = await insert(
        database,
        cc=["bob@example.com", "cid@example.com"],
        bcc=["Dan@example.com", "eve@example.com"],
    )
    email = await claimed(store, id_)
    assert (email.cc, email.bcc) == (("cid@example.com",), ("eve@example.com",))
    assert len(email.left_out) == 2
    await store.record([outcome(email, OutcomeKind.ACCEPTED, left_out=email.left_out)])
    attempt = await one(database, "SELECT left_out FROM email_attempt")
    assert attempt["left_out"] == list(email.left_out)
