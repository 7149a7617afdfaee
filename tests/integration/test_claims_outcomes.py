"""Outcomes on a real PostgreSQL: each under its token, what moves the row, what is only kept."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Database
from streams.domain.attempts import (
    Outcome,
    OutcomeKind,
    Recorded,
)
from tests.integration.sender_rows import (
    attempt_id,
    claimed,
    due_of,
    feed,
    insert,
    one,
    outcome,
    row_of,
)

pytestmark = pytest.mark.servers


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


async def test_next_attempt_beyond_expiry_is_not_made_and_nobody_is_asked(
    database: Database, store: OutboxStore
) -> None:
    expires = datetime.now(UTC) + timedelta(seconds=30)
    for kind in (OutcomeKind.RETRY, OutcomeKind.THROTTLED, OutcomeKind.ACCOUNT_STOP):
        id_ = await insert(database, expires_at=expires)
        email = await claimed(store, id_)
        await store.record([outcome(email, kind, delay_s=60.0, reason="no route")])
        row = await row_of(database, id_)
        assert (row["state"], row["reason"]) == ("pending", "no route")
        assert await one(database, "SELECT due FROM email_due WHERE id = $1", id_) == {
            "due": expires
        }
    assert await one(database, "SELECT count(*) AS letters FROM dead_letter") == {"letters": 0}


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
