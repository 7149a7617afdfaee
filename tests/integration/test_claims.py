"""Claim and outcome on a real PostgreSQL: every verdict, every race, and what they leave behind."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streams.adapters.outbox_store import PLANNER, OutboxStore
from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.domain.addresses import RecipientKey
from streams.domain.attempts import (
    Outcome,
    OutcomeKind,
    Pause,
    PauseScope,
    Presence,
    Recorded,
    Verdict,
)
from streams.domain.pointers import Pointer
from streams.domain.records import TopicPartition
from streams.domain.topics import Lane
from tests.integration.sender_rows import (
    LEASE_S,
    VISIBLE_XID,
    attempt_id,
    claim,
    claimed,
    due_of,
    execute,
    feed,
    insert,
    one,
    outcome,
    requests,
    row_of,
)

pytestmark = pytest.mark.servers


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    """The pool as a sender has it."""
    opened = Database(database_dsn, pool_size=8, timeout_s=20, name="test", server_settings=PLANNER)
    async with opened:
        yield opened


@pytest.fixture
def store(database: Database) -> OutboxStore:
    return OutboxStore(database, max_attempts=3)


async def suppress(database: Database, address: str, **columns: Any) -> None:
    row = {"tenant": "*", "lane": "*", "reason": "hard-bounce", "expires": None} | columns
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, tenant, lane, reason, expires) VALUES (recipient_key($1), $2, $3, $4, $5)",
        address,
        row["tenant"],
        row["lane"],
        row["reason"],
        row["expires"],
    )


# Verdicts -----------------------------------------------------------------------------------------------------------


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
        [answer] = await asyncio.wait_for(claim(store, id_), 5)
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
        [presence] = await store.read_pending([_pointer(id_, xid)])
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


# Races --------------------------------------------------------------------------------------------------------------


async def test_two_concurrent_claims_never_both_get_a_row(
    database: Database, store: OutboxStore
) -> None:
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO email_outbox (recipient, sender, subject, text) "
            "SELECT 'user' || n || '@example.com', 'shop@example.com', 'Hello', 'Hi' FROM generate_series(1, 300) AS n"
        )
        ids = [row["id"] for row in await connection.fetch("SELECT id FROM email_outbox")]
    winners: dict[Any, int] = dict.fromkeys(ids, 0)
    orders = [ids, ids[::-1], ids[100:] + ids[:100], ids[200:] + ids[:200]]
    answers = await asyncio.gather(
        *(claim(store, *order[i : i + 50]) for order in orders for i in range(0, 300, 50))
    )
    for answer in (a for batch in answers for a in batch):
        winners[answer.id] += answer.verdict is Verdict.CLAIMED
    assert set(winners.values()) == {1}
    held = await one(database, "SELECT count(*) AS leases FROM email_lease")
    assert held == {"leases": 300}


async def test_suppression_committed_before_the_claim_is_honoured_while_the_row_is_locked(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(database)
    async with database.transaction() as holder:
        await holder.execute("UPDATE email_outbox SET changed = changed WHERE id = $1", id_)
        [first] = await asyncio.wait_for(claim(store, id_), 5)
        await suppress(database, "ann@example.com")
    [second] = await claim(store, id_)
    assert (first.verdict, second.verdict) == (Verdict.BUSY, Verdict.SUPPRESSED)


async def test_claim_of_a_row_changed_after_its_snapshot_sees_the_newest_version(
    database: Database, store: OutboxStore
) -> None:
    """Claims and outcomes of one row by many at once: each success has its own attempt number."""
    id_ = await insert(database)

    async def work() -> list[int]:
        won = []
        for _ in range(30):
            [answer] = await claim(store, id_)
            if answer.email is not None:
                won.append(answer.email.attempt_id.int)
                recorded = await store.record([outcome(answer.email, OutcomeKind.RELEASED)])
                assert recorded[answer.email.attempt_id] is Recorded.APPLIED
        return won

    won = [
        attempt for each in await asyncio.gather(*(work() for _ in range(4))) for attempt in each
    ]
    assert won
    row = await row_of(database, id_)
    assert (row["state"], row["attempts"]) == ("pending", 0)
    assert await due_of(database, id_) is not None


async def test_row_that_changed_after_the_snapshot_of_a_claim_is_left_to_the_next_one(
    database: Database, store: OutboxStore
) -> None:
    """What the claim reads beside the row is as old as its snapshot: here the wake-up of a retry, which it cannot see."""
    id_ = await insert(database)
    text = query("claim_emails")
    place = "FROM (SELECT id, token FROM asked ORDER BY id) AS a"
    assert place in text
    slow = text.replace(
        place, "FROM (SELECT id, token FROM asked, (SELECT pg_sleep(1.5)) AS s ORDER BY id) AS a"
    )
    [request] = requests([id_])

    async def claim_slowly() -> str:
        arguments = ([request.id], [request.attempt_id], [str(request.xid)], LEASE_S)
        async with database.connection() as connection:
            rows = await connection.fetch(
                slow.replace("$3::xid8[]", "$3::text[]::xid8[]"), *arguments
            )
        return str(rows[0]["verdict"])

    waiting = asyncio.create_task(claim_slowly())
    for _ in range(200):
        if await one(
            database, "SELECT 1 AS there FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        ):
            break
        await asyncio.sleep(0.02)
    else:
        pytest.fail("the slow claim does not sleep between its snapshot and its locks")
    email = await claimed(store, id_)
    await store.record([outcome(email, OutcomeKind.RETRY, delay_s=600.0)])
    assert await waiting == "busy"
    row = await row_of(database, id_)
    assert (row["state"], row["attempts"]) == ("pending", 1)
    assert await due_of(database, id_) is not None


@pytest.mark.parametrize("proof", ["event", "attempt"])
async def test_row_of_which_ses_took_an_earlier_call_is_not_claimed(
    database: Database, store: OutboxStore, proof: str
) -> None:
    """A failover may forget a claim and its outcome; what the events know is looked at before another call."""
    id_ = await insert(database)
    if proof == "event":
        await execute(
            database,
            "INSERT INTO email_event (event_id, recipient_key, type, at, outbox_id, payload) "
            "SELECT 'e1', recipient_key, 'delivered', now(), id, '{}' FROM email_outbox WHERE id = $1",
            id_,
        )
    else:
        await execute(
            database,
            "INSERT INTO email_attempt (id, outbox_id, number, finished, outcome) VALUES ($1, $2, 0, now(), 'accepted')",
            attempt_id(),
            id_,
        )
    [answer] = await claim(store, id_)
    assert answer.verdict is Verdict.BUSY
    assert (await row_of(database, id_))["state"] == "pending"
    assert await due_of(database, id_) is not None


# Outcomes -----------------------------------------------------------------------------------------------------------


async def test_accepted_row_is_submitted_and_its_lease_is_gone(
    database: Database, store: OutboxStore
) -> None:
    email = await claimed(store, await insert(database))
    recorded = await store.record(
        [outcome(email, OutcomeKind.ACCEPTED, provider_message_id="m-1", http_status=200)]
    )
    assert recorded == {email.attempt_id: Recorded.APPLIED}
    row = await row_of(database, email.id)
    assert (row["state"], row["attempt_id"], row["attempts"], row["reason"]) == (
        "submitted",
        None,
        1,
        None,
    )
    assert await one(database, "SELECT * FROM email_lease") is None
    attempt = await one(
        database, "SELECT id, outbox_id, number, outcome, provider_message_id FROM email_attempt"
    )
    assert attempt == {
        "id": email.attempt_id,
        "outbox_id": email.id,
        "number": 1,
        "outcome": "accepted",
        "provider_message_id": "m-1",
    }


async def test_retry_stays_charged_and_waits(database: Database, store: OutboxStore) -> None:
    email = await claimed(store, await insert(database))
    await store.record(
        [
            outcome(
                email,
                OutcomeKind.RETRY,
                delay_s=2.0,
                reason="unreachable",
                error_class="unreachable",
            )
        ]
    )
    row = await row_of(database, email.id)
    assert (row["state"], row["attempts"], row["reason"]) == ("pending", 1, "unreachable")
    due = await due_of(database, email.id)
    assert due["why"] == "retry"
    assert due["seconds"] == pytest.approx(2, abs=2)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (OutcomeKind.THROTTLED, "retry"),
        (OutcomeKind.ACCOUNT_STOP, "paused"),
        (OutcomeKind.MISCONFIGURED, "paused"),
    ],
)
async def test_refusal_that_is_not_the_message_s_fault_is_not_charged(
    database: Database, store: OutboxStore, kind: OutcomeKind, why: str
) -> None:
    email = await claimed(store, await insert(database))
    await store.record([outcome(email, kind, delay_s=3.0, reason="not now")])
    row = await row_of(database, email.id)
    assert (row["state"], row["attempts"]) == ("pending", 0)
    assert (await due_of(database, email.id))["why"] == why
    assert (await one(database, "SELECT outcome FROM email_attempt"))["outcome"] == kind


async def test_attempts_used_up_end_in_a_dead_letter(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(database, dedup_key="order-1", traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
    for _ in range(3):
        email = await claimed(store, id_)
        await store.record(
            [outcome(email, OutcomeKind.RETRY, reason="no route", error_class="unreachable")]
        )
    row = await row_of(database, id_)
    assert (row["state"], row["attempts"]) == ("failed", 3)
    assert row["reason"] == "all 3 attempts are used up, the last one: no route"
    letter = await one(database, "SELECT outbox_id, class, reason, attempt_id FROM dead_letter")
    assert letter == {
        "outbox_id": id_,
        "class": "unreachable",
        "reason": row["reason"],
        "attempt_id": email.attempt_id,
    }
    [record] = await feed(database, "dead-letters")
    body = json.loads(record["payload"])
    assert record["aggregateid"] == row["recipient_key"]
    assert (body["id"], body["class"], body["reason"]) == (str(id_), "unreachable", row["reason"])
    assert "ann@example.com" not in record["payload"]
    assert record["tracingspancontext"].startswith("traceparent=00-aaaa")
    [event] = await feed(database, "delivery-events")
    assert json.loads(event["payload"])["type"] == "mailstreams.email.failed"
    assert await due_of(database, id_) is None


async def test_next_attempt_beyond_expiry_fails_now(database: Database, store: OutboxStore) -> None:
    id_ = await insert(database, expires_at=datetime.now(UTC) + timedelta(seconds=30))
    email = await claimed(store, id_)
    await store.record([outcome(email, OutcomeKind.RETRY, delay_s=60.0, reason="no route")])
    row = await row_of(database, id_)
    assert row["state"] == "failed"
    assert row["reason"].startswith("the next attempt would come after expires_at")


async def test_permanent_refusal_fails_and_is_charged(
    database: Database, store: OutboxStore
) -> None:
    email = await claimed(store, await insert(database))
    await store.record(
        [outcome(email, OutcomeKind.PERMANENT, reason="a virus", code="MessageRejected")]
    )
    row = await row_of(database, email.id)
    assert (row["state"], row["attempts"], row["reason"]) == ("failed", 1, "a virus")


async def test_unsendable_fails_without_an_attempt(database: Database, store: OutboxStore) -> None:
    email = await claimed(store, await insert(database))
    await store.record(
        [outcome(email, OutcomeKind.UNSENDABLE, reason="no template", error_class="template")]
    )
    row = await row_of(database, email.id)
    assert (row["state"], row["attempts"]) == ("failed", 0)
    assert await one(database, "SELECT * FROM email_attempt") is None
    assert (await one(database, "SELECT class FROM dead_letter"))["class"] == "template"


async def test_unknown_turns_ambiguous_and_is_kept_unsettled(
    database: Database, store: OutboxStore
) -> None:
    email = await claimed(store, await insert(database))
    await store.record([outcome(email, OutcomeKind.UNKNOWN, reason="no answer")])
    row = await row_of(database, email.id)
    assert (row["state"], row["attempts"]) == ("ambiguous", 1)
    unsettled = await one(database, "SELECT attempt_id, outbox_id FROM email_unsettled")
    assert unsettled == {"attempt_id": email.attempt_id, "outbox_id": email.id}
    assert await due_of(database, email.id) is None


async def test_released_claim_can_be_claimed_at_once_and_costs_nothing(
    database: Database, store: OutboxStore
) -> None:
    email = await claimed(store, await insert(database))
    await store.record([outcome(email, OutcomeKind.RELEASED)])
    row = await row_of(database, email.id)
    assert (row["state"], row["attempts"]) == ("pending", 0)
    assert (await due_of(database, email.id))["why"] == "released"
    assert await one(database, "SELECT * FROM email_attempt") is None
    assert (await claimed(store, email.id)).attempt == 1


async def test_release_of_a_claim_that_never_happened_changes_nothing(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(database)
    before = await row_of(database, id_)
    token = attempt_id()
    release = Outcome(
        id=id_, attempt_id=token, number=0, kind=OutcomeKind.RELEASED, finished=datetime.now(UTC)
    )
    assert await store.record([release]) == {token: Recorded.STALE}
    assert await row_of(database, id_) == before


async def test_stale_outcome_changes_nothing_but_is_kept_as_evidence(
    database: Database, store: OutboxStore
) -> None:
    id_ = await insert(database)
    late = await claimed(store, id_)
    await store.record([outcome(late, OutcomeKind.RELEASED)])
    current = await claimed(store, id_)
    before = await row_of(database, id_)
    recorded = await store.record(
        [outcome(late, OutcomeKind.ACCEPTED, provider_message_id="m-late")]
    )
    assert recorded == {late.attempt_id: Recorded.STALE}
    assert await row_of(database, id_) == before
    lease = await one(database, "SELECT attempt_id FROM email_lease")
    assert lease == {"attempt_id": current.attempt_id}
    evidence = await one(database, "SELECT id, outcome, provider_message_id FROM email_attempt")
    assert evidence == {
        "id": late.attempt_id,
        "outcome": "accepted",
        "provider_message_id": "m-late",
    }


async def test_late_knowledge_replaces_an_unknown_attempt_and_never_the_other_way(
    database: Database, store: OutboxStore
) -> None:
    email = await claimed(store, await insert(database))
    await store.record([outcome(email, OutcomeKind.UNKNOWN, reason="lease ran out")])
    await store.record([outcome(email, OutcomeKind.ACCEPTED, provider_message_id="m-1")])
    await store.record([outcome(email, OutcomeKind.UNKNOWN)])
    attempt = await one(database, "SELECT outcome, provider_message_id FROM email_attempt")
    assert attempt == {"outcome": "accepted", "provider_message_id": "m-1"}
    assert (await row_of(database, email.id))["state"] == "ambiguous"


@pytest.mark.parametrize("kind", [OutcomeKind.RELEASED, OutcomeKind.UNSENDABLE])
async def test_proof_that_ses_was_not_called_counts_after_the_lease_too(
    database: Database, store: OutboxStore, kind: OutcomeKind
) -> None:
    email = await claimed(store, await insert(database))
    await store.record([outcome(email, OutcomeKind.UNKNOWN, reason="lease ran out")])
    assert await store.record([outcome(email, kind)]) == {email.attempt_id: Recorded.STALE}
    attempt = await one(database, "SELECT outcome, error_class FROM email_attempt")
    assert attempt == {"outcome": "retry", "error_class": "not-called"}


async def test_outcome_written_twice_is_repeated_not_stale(
    database: Database, store: OutboxStore
) -> None:
    email = await claimed(store, await insert(database))
    told = [outcome(email, OutcomeKind.ACCEPTED, provider_message_id="m-1")]
    assert await store.record(told) == {email.attempt_id: Recorded.APPLIED}
    assert await store.record(told) == {email.attempt_id: Recorded.REPEATED}


# Before the claim -----------------------------------------------------------------------------------------------------


def _pointer(id_: Any, xid: int = VISIBLE_XID) -> Pointer:
    return Pointer(
        id=id_,
        tenant="default",
        lane=Lane.TRANSACTIONAL,
        recipient_key=RecipientKey("0" * 32),
        due=datetime.now(UTC),
        expires=None,
        recipients=1,
        sender_domain="example.com",
        template=None,
        xid=xid,
        traceparent=None,
        topic_partition=TopicPartition("t", 0),
        offset=0,
    )


async def test_reading_tells_what_still_waits(database: Database, store: OutboxStore) -> None:
    waiting, settled = await insert(database), await insert(database)
    await claimed(store, settled)
    found = await store.read_pending([_pointer(i) for i in (settled, attempt_id(), waiting)])
    assert found == [Presence.SETTLED, Presence.ABSENT, Presence.PENDING]


async def test_unsendable_rows_are_closed_only_where_the_database_confirms_it(
    database: Database, store: OutboxStore
) -> None:
    await suppress(database, "bounced@example.com")
    suppressed = await insert(database, recipient="bounced@example.com")
    expired = await insert(database, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    fine = await insert(database)
    closed = await store.close_unsendable([fine, suppressed, expired])
    assert closed == {suppressed: Verdict.SUPPRESSED, expired: Verdict.EXPIRED}
    assert (await row_of(database, fine))["state"] == "pending"
    assert (await row_of(database, suppressed))["reason"] == "hard-bounce"
    events = [json.loads(e["payload"])["type"] for e in await feed(database, "delivery-events")]
    assert sorted(events) == ["mailstreams.email.expired", "mailstreams.email.suppressed"]


async def test_statements_read_by_key_however_small_the_tables_were_when_they_were_planned(
    database: Database,
) -> None:
    from streams.adapters.queries import query

    wide = {"pause"}
    for name in ("claim_emails", "record_outcomes", "read_pending", "close_unsendable"):
        async with database.connection() as connection:
            await connection.execute("SET plan_cache_mode = force_generic_plan")
            statement = await connection.prepare(query(name))
            count = len(statement.get_parameters())
            await connection.execute(f"PREPARE planned AS {query(name)}")
            plan = await connection.fetchval(
                f"EXPLAIN (FORMAT JSON) EXECUTE planned ({', '.join(['NULL'] * count)})"
            )
            await connection.execute("DEALLOCATE planned")
        for node in _nodes(json.loads(plan)):
            assert node["Node Type"] != "Seq Scan" or node["Relation Name"] in wide, (name, node)
            if node.get("Relation Name") in ("email_outbox", "suppression", "email_due"):
                assert "Index Cond" in node or node["Node Type"] == "ModifyTable", (name, node)


def _nodes(tree: Any) -> list[dict[str, Any]]:
    if isinstance(tree, list):
        return [node for each in tree for node in _nodes(each)]
    if not isinstance(tree, dict):
        return []
    found = [tree] if "Node Type" in tree else []
    return found + [node for value in tree.values() for node in _nodes(value)]


async def test_20000_copied_rows_are_claimed_and_recorded_in_place(
    database: Database, store: OutboxStore
) -> None:
    total, batch, body = 20_000, 200, "Lorem ipsum dolor sit amet, 0123456789. " * 100
    async with database.connection() as connection:
        # A vacuum that is under way for long, as on a busy machine, keeps dead versions from being pruned.
        await connection.execute("ALTER TABLE email_outbox SET (autovacuum_enabled = false)")
        await connection.copy_records_to_table(
            "email_outbox",
            columns=["recipient", "sender", "subject", "text"],
            records=[
                (f"user{n}@example.com", "shop@example.com", "Hello", f"{n} {body}")
                for n in range(total)
            ],
        )
        ids = [r["id"] for r in await connection.fetch("SELECT id FROM email_outbox ORDER BY id")]
    for start in range(0, total, batch):
        answers = await claim(store, *ids[start : start + batch])
        emails = [a.email for a in answers if a.email is not None]
        assert len(emails) == batch
        recorded = await store.record(
            [outcome(e, OutcomeKind.ACCEPTED, provider_message_id=str(e.id)) for e in emails]
        )
        assert set(recorded.values()) == {Recorded.APPLIED}
    updates = await _updates(database, 2 * total)
    assert updates["hot"] / updates["all"] >= 0.99


async def _updates(database: Database, expected: int) -> dict[str, int]:
    """The counters of email_outbox once every connection has reported."""
    deadline = asyncio.get_running_loop().time() + 30
    while True:
        async with database.connection() as connection:
            await connection.execute("SELECT pg_stat_force_next_flush()")
            row = await connection.fetchrow(
                "SELECT n_tup_upd AS \"all\", n_tup_hot_upd AS hot FROM pg_stat_user_tables WHERE relname = 'email_outbox'"
            )
        assert row is not None
        if row["all"] >= expected or asyncio.get_running_loop().time() > deadline:
            return dict(row)
        await asyncio.sleep(0.2)
