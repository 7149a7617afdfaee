"""What the fold writes into a real PostgreSQL, event by event."""

import asyncio
import itertools
from functools import partial
from typing import Any

import pytest

from streams.adapters.facts_store import FactsStore
from streams.adapters.facts_transaction import FactsTransaction
from streams.adapters.postgres import Database
from streams.domain.delivery_events import DeliveryEvent, EventType
from streams.folding.fold import Folded, fold
from streams.recipients import Recipients
from streams.runtime import metrics
from tests.integration.outbox_rows import (
    START,
    all_facts,
    bounced,
    complained,
    event,
    execute,
    fetch,
    make_row,
)

pytestmark = pytest.mark.servers


async def apply(database: Database, *events: DeliveryEvent) -> Folded:
    return await FactsStore(database).transact(partial(fold, events=events))


async def state_of(database: Database, row: Any) -> Any:
    return await execute(database, "SELECT state FROM email_outbox WHERE id = $1", row.id)


async def suppressions(database: Database) -> list[tuple[str, str, str, str]]:
    rows = await fetch(
        database,
        "SELECT recipient_key, tenant, lane, reason FROM suppression ORDER BY 1, 2, 3, 4",
    )
    return [(r["recipient_key"], r["tenant"], r["lane"], r["reason"]) for r in rows]


async def outcome(database: Database, row: Any) -> dict[str, Any]:
    found = await fetch(database, "SELECT * FROM recipient_outcome WHERE outbox_id = $1", row.id)
    assert len(found) == 1
    return found[0]


async def test_a_hard_bounce_suppresses_for_every_tenant_and_is_announced(
    database: Database,
) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1")
    await apply(database, bounced(row, at_s=5))
    assert await suppressions(database) == [(row.key, "*", "*", "hard-bounce")]
    feed = await fetch(database, "SELECT aggregatetype, aggregateid FROM outbox_feed")
    assert feed == [{"aggregatetype": "suppressions", "aggregateid": row.key}]
    found = await outcome(database, row)
    assert (found["bounce_type"], found["bounce_reason"]) == ("permanent", "mailbox-unknown")


async def test_a_complaint_suppresses_for_its_tenant_alone(database: Database) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1", tenant="shop")
    await apply(database, complained(row))
    assert await suppressions(database) == [(row.key, "shop", "*", "complaint")]


async def test_an_opt_out_beside_a_complaint_keeps_both(database: Database) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1", tenant="shop")
    await apply(database, complained(row))
    await apply(database, event(EventType.UNSUBSCRIBED, row, at_s=60))
    assert await suppressions(database) == [
        (row.key, "shop", "*", "complaint"),
        (row.key, "shop", "bulk", "unsubscribed"),
    ]


async def test_a_late_delivery_does_not_lift_a_complaint(database: Database) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1", tenant="shop")
    await apply(database, complained(row, at_s=7200))
    await apply(database, event(EventType.DELIVERED, row, at_s=2))
    found = await outcome(database, row)
    assert found["complained_at"] is not None
    assert found["delivered_at"] is not None
    assert await suppressions(database) == [(row.key, "shop", "*", "complaint")]


async def test_a_transient_bounce_suppresses_nobody(database: Database) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1")
    await apply(database, bounced(row, label="Transient"))
    assert await suppressions(database) == []
    assert (await outcome(database, row))["bounce_type"] == "transient"


@pytest.mark.parametrize("kind", [k for k in EventType if not k.is_life_cycle])
async def test_an_event_of_the_attempt_settles_an_ambiguous_row(
    database: Database, kind: EventType
) -> None:
    row = await make_row(database, "ambiguous")
    happened = (
        bounced(row, provider_message_id="p-9")
        if kind is EventType.BOUNCED
        else event(kind, row, provider_message_id="p-9")
    )
    await apply(database, happened)
    if kind is EventType.UNSUBSCRIBED:
        assert await state_of(database, row) == "ambiguous"
        return
    assert await state_of(database, row) == "submitted"
    assert await fetch(database, "SELECT * FROM email_unsettled") == []
    attempts = await fetch(database, "SELECT id, outcome, provider_message_id FROM email_attempt")
    assert attempts == [{"id": row.attempt_id, "outcome": "accepted", "provider_message_id": "p-9"}]


async def test_a_row_under_a_call_stays_under_it_though_evidence_is_there(
    database: Database,
) -> None:
    row = await make_row(database, "sending")
    await apply(database, event(EventType.DELIVERED, row))
    assert await state_of(database, row) == "sending"
    assert (await outcome(database, row))["delivered_at"] == START


async def test_the_attempt_tag_alone_finds_a_row_under_a_call(database: Database) -> None:
    row = await make_row(database, "sending")
    await apply(database, event(EventType.DELIVERED, row, outbox_id=None))
    assert (await outcome(database, row))["delivered_at"] == START


async def test_an_event_without_tags_is_known_by_the_provider_message_id(
    database: Database,
) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1")
    await apply(database, bounced(row, tagged=False))
    assert (await outcome(database, row))["bounce_type"] == "permanent"
    attempts = await fetch(database, "SELECT attempt_id FROM email_event")
    assert attempts == [{"attempt_id": row.attempt_id}]


async def test_an_event_without_tags_is_known_by_another_event_of_the_message(
    database: Database,
) -> None:
    row = await make_row(database, "sending")
    await apply(database, event(EventType.ACCEPTED, row, provider_message_id="p-1"))
    await apply(database, bounced(row, tagged=False, provider_message_id="p-1"))
    assert (await outcome(database, row))["bounce_type"] == "permanent"


async def test_a_tag_alone_is_not_believed_about_somebody_else(database: Database) -> None:
    row = await make_row(database, "ambiguous")
    await apply(database, bounced(row, recipient="other@example.net"))
    assert await state_of(database, row) == "ambiguous"
    assert await fetch(database, "SELECT * FROM recipient_outcome") == []
    kept = await fetch(database, "SELECT outbox_id, tenant FROM email_event")
    assert kept == [{"outbox_id": None, "tenant": None}]
    # The fact about the other recipient is a fact all the same.
    assert [s[3] for s in await suppressions(database)] == ["hard-bounce"]


@pytest.mark.parametrize("column", ["cc", "bcc"])
async def test_copied_recipients_belong_to_the_message(database: Database, column: str) -> None:
    copied: dict[str, Any] = {column: ["c@example.com"]}
    row = await make_row(database, "submitted", provider_message_id="p-1", **copied)
    await apply(database, event(EventType.DELIVERED, row, recipient="c@example.com"))
    assert len(await fetch(database, "SELECT * FROM recipient_outcome")) == 1


async def test_an_unmatched_hard_bounce_suppresses_at_once(database: Database) -> None:
    row = await make_row(database, "ambiguous")
    await apply(database, bounced(recipient=row.recipient, provider_message_id="p-x"))
    assert await state_of(database, row) == "ambiguous"
    assert await suppressions(database) == [(row.key, "*", "*", "hard-bounce")]


async def test_an_unmatched_event_is_matched_once_its_attempt_appears(
    database: Database,
) -> None:
    row = await make_row(database, "sending", tenant="shop")
    early = complained(row, tagged=False, provider_message_id="p-1")
    await apply(database, early)
    assert await suppressions(database) == [(row.key, "*", "*", "complaint")]
    await execute(
        database,
        "INSERT INTO email_attempt (id, outbox_id, number, finished, outcome, provider_message_id) VALUES ($1, $2, 1, now(), 'accepted', 'p-1')",
        row.attempt_id,
        row.id,
    )
    stage = matching_stage(database)
    await stage.match_unmatched_events()
    assert (await outcome(database, row))["complained_at"] == early.time
    # What was for all tenants while the tenant was unknown is the tenant's now.
    assert await suppressions(database) == [(row.key, "shop", "*", "complaint")]
    states = await fetch(database, "SELECT tenant, complaint FROM recipient_state ORDER BY tenant")
    assert states == [{"tenant": "*", "complaint": None}, {"tenant": "shop", "complaint": START}]


async def test_an_event_is_matched_soon_behind_thousands_that_are_of_somebody_elses_mail(
    database: Database,
) -> None:
    await execute(
        database,
        "INSERT INTO email_event (event_id, recipient_key, type, at, provider_message_id, payload) SELECT 'other' || n, md5(n::text), 'delivered', now(), 'other' || n, '{}' FROM generate_series(1, 2500) AS n",
    )
    row = await make_row(database, "submitted")
    await apply(database, event(EventType.DELIVERED, row, tagged=False, provider_message_id="p-1"))
    await execute(database, "UPDATE email_attempt SET provider_message_id = 'p-1'")
    await matching_stage(database).match_unmatched_events()
    assert (await outcome(database, row))["delivered_at"] == START


async def test_the_gauge_of_unmatched_events_ends_at_zero(database: Database) -> None:
    row = await make_row(database, "submitted", tenant="shop")
    await apply(database, event(EventType.DELIVERED, row, tagged=False, provider_message_id="p-1"))
    stage = matching_stage(database)
    await stage.count_unmatched_events()
    assert metrics.RECIPIENTS_UNMATCHED_NOW._value.get() == 1
    await execute(database, "UPDATE email_attempt SET provider_message_id = 'p-1'")
    await stage.match_unmatched_events()
    await stage.count_unmatched_events()
    assert metrics.RECIPIENTS_UNMATCHED_NOW._value.get() == 0


async def test_after_three_days_only_the_same_fact_again_finds_its_message(
    database: Database,
) -> None:
    row = await make_row(database, "submitted", tenant="shop")
    early = event(EventType.DELIVERED, row, tagged=False, provider_message_id="p-1")
    await apply(database, early)
    await execute(database, "UPDATE email_event SET received = now() - interval '73 h'")
    await execute(database, "UPDATE email_attempt SET provider_message_id = 'p-1'")
    stage = matching_stage(database)
    await stage.count_unmatched_events()
    assert metrics.RECIPIENTS_UNMATCHED_NOW._value.get() == 0
    await stage.match_unmatched_events()
    assert await fetch(database, "SELECT * FROM recipient_outcome") == []
    await apply(database, early)
    assert (await outcome(database, row))["delivered_at"] == early.time


async def test_another_unattributed_complaint_keeps_the_suppression_for_all(
    database: Database,
) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1", tenant="shop")
    strange = complained(name="strange", recipient=row.recipient, provider_message_id="x", at_s=9)
    ours = complained(row, tagged=False, provider_message_id="p-2")
    await apply(database, ours, strange)
    assert await fetch(database, "SELECT evidence_id FROM suppression") == [
        {"evidence_id": ours.id}
    ]
    await execute(database, "UPDATE email_attempt SET provider_message_id = 'p-2'")
    await matching_stage(database).match_unmatched_events()
    found = await fetch(database, "SELECT tenant, evidence_id FROM suppression ORDER BY tenant")
    assert found == [
        {"tenant": "*", "evidence_id": strange.id},
        {"tenant": "shop", "evidence_id": ours.id},
    ]


def matching_stage(database: Database) -> Recipients:
    """A stage of which only the matching is used."""
    return Recipients(consumer=None, facts=FactsStore(database), unreadable=None)  # type: ignore[arg-type]


async def test_the_tagged_copy_of_a_fact_completes_the_untagged_one(database: Database) -> None:
    row = await make_row(database, "ambiguous")
    tagged = bounced(row, provider_message_id="p-1")
    untagged = bounced(row, tagged=False, provider_message_id="p-1")
    assert tagged.id == untagged.id
    await apply(database, untagged)
    assert await state_of(database, row) == "ambiguous"
    await apply(database, tagged)
    assert await state_of(database, row) == "submitted"
    assert len(await fetch(database, "SELECT * FROM email_event")) == 1


async def test_an_attempt_that_a_failover_forgot_settles_its_row(database: Database) -> None:
    row = await make_row(database, "pending")
    forgotten = event(
        EventType.DELIVERED,
        row,
        attempt_id=await execute(database, "SELECT uuid_v7()"),
        provider_message_id="p-7",
    )
    folded = await apply(database, forgotten)
    assert folded.forgotten == 1
    assert await state_of(database, row) == "submitted"
    attempts = await fetch(
        database, "SELECT id, number, outcome, provider_message_id FROM email_attempt"
    )
    assert attempts == [
        {
            "id": forgotten.attempt_id,
            "number": 0,
            "outcome": "accepted",
            "provider_message_id": "p-7",
        }
    ]


async def test_a_second_accepted_attempt_counts_as_a_duplicate(database: Database) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1")
    other = await execute(database, "SELECT uuid_v7()")
    folded = await apply(
        database, event(EventType.DELIVERED, row, attempt_id=other, provider_message_id="p-2")
    )
    assert folded.settled.duplicates == 1
    assert await fetch(database, "SELECT attempt_id, why FROM email_duplicate") == [
        {"attempt_id": other, "why": "unforeseen"}
    ]


async def test_a_replay_changes_nothing_and_announces_nothing(database: Database) -> None:
    row = await make_row(database, "ambiguous")
    events = story(row)
    for one in events:
        await apply(database, one)
    before = await all_facts(database)
    announced = await execute(database, "SELECT count(*) FROM outbox_feed")
    folded = await apply(database, *events, *events)
    assert folded.kept == []
    assert await all_facts(database) == before
    assert await execute(database, "SELECT count(*) FROM outbox_feed") == announced


def story(row: Any) -> list[DeliveryEvent]:
    provider: dict[str, Any] = {"provider_message_id": "p-1"}
    return [
        event(EventType.ACCEPTED, row, at_s=0, **provider),
        event(EventType.DELAYED, row, at_s=1, **provider),
        bounced(row, label="Transient", name="soft", at_s=2, **provider),
        bounced(row, name="hard", at_s=3, tagged=False, **provider),
        bounced(row, name="hard later", at_s=4, **provider),
        event(EventType.DELIVERED, row, at_s=2, **provider),
        complained(row, name="first", at_s=9, **provider),
        complained(row, name="second", label=None, at_s=10, tagged=False, **provider),
        event(EventType.OPENED, row, name="open 2", at_s=6, **provider),
        event(EventType.OPENED, row, name="open 1", at_s=5, **provider),
        event(EventType.UNSUBSCRIBED, row, at_s=11, **provider),
    ]


async def test_two_folds_of_the_same_recipients_at_once_lose_nothing(database: Database) -> None:
    rows = [
        await make_row(
            database, "submitted", recipient=f"hot{n}@example.com", provider_message_id=f"p-{n}"
        )
        for n in range(4)
    ]
    kinds = (EventType.DELIVERED, EventType.OPENED, EventType.CLICKED, EventType.DELAYED)
    events = (
        [
            event(kind, row, name=f"{kind} {n}", at_s=n)
            for row, kind, n in itertools.product(rows, kinds, range(5))
        ]
        + [complained(row) for row in rows]
        + [bounced(row) for row in rows]
    )
    forwards = [events[n::6] for n in range(6)]
    backwards = [list(reversed(part)) for part in forwards]
    folds = [apply(database, *part) for part in forwards + backwards]
    folded = await asyncio.gather(*folds)
    assert sum(len(f.kept) for f in folded) == len(events)
    outcomes = await fetch(database, "SELECT * FROM recipient_outcome")
    assert len(outcomes) == 4
    assert all(o["delivered_at"] == START and o["clicked_at"] == START for o in outcomes)
    assert len(await suppressions(database)) == 8


async def test_a_deadlock_is_tried_again_and_counted(database: Database) -> None:
    rows = [
        await make_row(database, "submitted", recipient=f"user{n}@example.com") for n in range(2)
    ]
    both_hold_one = asyncio.Barrier(2)
    tries = 0

    async def locks(transaction: FactsTransaction, first: int) -> None:
        nonlocal tries
        tries += 1
        await transaction.lock([("shop", rows[first].key)])
        if tries <= 2:
            await both_hold_one.wait()
        await transaction.lock([("shop", rows[1 - first].key)])

    before = metrics.FOLD_CONFLICTS._value.get()
    for row in rows:
        await FactsStore(database).transact(lambda t, key=row.key: t.lock([("shop", key)]))  # type: ignore[misc]
    await asyncio.gather(
        *(FactsStore(database).transact(partial(locks, first=first)) for first in (0, 1))
    )
    assert tries == 3
    assert metrics.FOLD_CONFLICTS._value.get() == before + 1
