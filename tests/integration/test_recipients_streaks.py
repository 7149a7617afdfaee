"""Streaks of soft bounces and lifts, as the fold keeps them in a real PostgreSQL."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from streams.adapters.facts_store import PLANNER, FactsStore
from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.domain.delivery_events import DeliveryEvent, EventType
from streams.folding.fold import Folded, fold
from streams.recipients import Recipients
from tests.integration.outbox_rows import (
    START,
    Row,
    bounced,
    complained,
    event,
    execute,
    fetch,
    make_row,
)

pytestmark = pytest.mark.servers

NOW = datetime.now(UTC)


def ago(hours: float) -> float:
    """As seconds after START."""
    return (NOW - timedelta(hours=hours) - START).total_seconds()


def soft(row: Row | None, hours_ago: float, **fields: Any) -> DeliveryEvent:
    """A soft bounce of a message of its own to the row's recipient."""
    names = {"name": f"soft {hours_ago}", "provider_message_id": f"soft {hours_ago}"}
    return bounced(row, label="Transient", at_s=ago(hours_ago), **(names | fields))


def delivered(row: Row, hours_ago: float) -> DeliveryEvent:
    return event(EventType.DELIVERED, row, name=f"delivered {hours_ago}", at_s=ago(hours_ago))


FIVE = (97, 73, 49, 25, 1)


async def apply(database: Database, *events: DeliveryEvent) -> Folded:
    return await FactsStore(database).transact(partial(fold, events=events))


async def match(database: Database) -> None:
    stage = Recipients(consumer=None, facts=FactsStore(database), unreadable=None)  # type: ignore[arg-type]
    await stage.match_unmatched_events()


async def suppressions(database: Database) -> list[tuple[str, str, str]]:
    rows = await fetch(database, "SELECT tenant, lane, reason FROM suppression ORDER BY 1, 2, 3")
    return [(r["tenant"], r["lane"], r["reason"]) for r in rows]


async def streaks(database: Database) -> dict[str, int]:
    rows = await fetch(
        database,
        "SELECT tenant, soft_bounce_streak FROM recipient_state WHERE soft_bounce_streak > 0",
    )
    return {r["tenant"]: r["soft_bounce_streak"] for r in rows}


async def told(database: Database) -> int:
    return int(
        await execute(
            database, "SELECT count(*) FROM outbox_feed WHERE aggregatetype = 'suppressions'"
        )
    )


@pytest.fixture
async def row(database: Database) -> Row:
    return await make_row(database, "submitted", provider_message_id="p-1", tenant="shop")


async def test_five_soft_bounces_suppress_for_14_days_after_the_last(
    database: Database, row: Row
) -> None:
    for hours in FIVE:
        await apply(database, soft(row, hours))
    assert await suppressions(database) == [("shop", "*", "soft-bounces")]
    [found] = await fetch(database, "SELECT evidence_id, expires FROM suppression")
    assert found["evidence_id"] == soft(row, 1).id
    assert abs(found["expires"] - (NOW + timedelta(days=14, hours=-1))) < timedelta(seconds=1)
    assert await streaks(database) == {"shop": 5}
    assert await told(database) == 1


async def test_up_to_then_nothing_about_suppressions_is_written(
    database: Database, row: Row
) -> None:
    for hours in FIVE[:4]:
        await apply(database, soft(row, hours))
    await apply(database, delivered(row, 30))
    for table in ("suppression", "suppressed_recipient", "outbox_feed"):
        assert await execute(database, f"SELECT count(*) FROM {table}") == 0
    assert await streaks(database) == {"shop": 1}


@pytest.mark.parametrize("hours_ago", [96, 40, 1, 0.5])
async def test_a_delivery_that_arrives_late_withdraws_what_is_supported_no_more(
    database: Database, row: Row, hours_ago: float
) -> None:
    await apply(database, *(soft(row, hours) for hours in FIVE))
    folded = await apply(database, delivered(row, hours_ago))
    assert folded.withdrawn == 1
    assert await suppressions(database) == []
    left = {hours for hours in FIVE if hours < hours_ago}
    assert await streaks(database) == ({"shop": len(left)} if left else {})
    assert await told(database) == 2


async def test_a_delivery_before_the_streak_changes_nothing(database: Database, row: Row) -> None:
    await apply(database, *(soft(row, hours) for hours in FIVE))
    folded = await apply(database, delivered(row, 98))
    assert folded.withdrawn == 0
    assert await suppressions(database) == [("shop", "*", "soft-bounces")]


async def test_repeated_events_tell_nothing_again(database: Database, row: Row) -> None:
    events = [soft(row, hours) for hours in FIVE]
    await apply(database, *events)
    for one in [*events, *events]:
        await apply(database, one)
    assert await told(database) == 1


async def test_one_more_bounce_prolongs_the_suppression(database: Database, row: Row) -> None:
    await apply(database, *(soft(row, hours) for hours in (120, *FIVE[:-1])))
    before = await execute(database, "SELECT expires FROM suppression")
    await apply(database, soft(row, 1))
    assert await execute(database, "SELECT expires FROM suppression") - before == timedelta(
        hours=24
    )


async def test_a_streak_of_long_ago_suppresses_nobody_now(database: Database, row: Row) -> None:
    await apply(database, *(soft(row, hours + 24 * 20) for hours in FIVE))
    assert await suppressions(database) == []
    assert await streaks(database) == {"shop": 5}
    await apply(database, soft(row, 2))
    assert await suppressions(database) == [("shop", "*", "soft-bounces")]


@pytest.mark.parametrize("reason", ["manual", "complaint", "hard-bounce", "soft-bounces"])
async def test_a_row_put_in_by_hand_is_never_touched(
    database: Database, row: Row, reason: str
) -> None:
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, tenant, reason) VALUES ($1, 'shop', $2)",
        row.key,
        reason,
    )
    before = await fetch(database, "SELECT * FROM suppression")
    await apply(database, *(soft(row, hours) for hours in FIVE))
    await apply(database, delivered(row, 0.5))
    assert await fetch(database, "SELECT * FROM suppression") == before


async def test_a_complaint_outlives_opt_out_and_streak(database: Database, row: Row) -> None:
    """Each reason is a row of its own: what one of them loses, the others keep."""
    complaint = (row.key, "shop", "*", "complaint")
    await apply(database, complained(row, at_s=ago(200)))
    await apply(database, event(EventType.UNSUBSCRIBED, row, at_s=ago(150)))
    await apply(database, *(soft(row, hours) for hours in FIVE))
    assert len(await suppressions(database)) == 3
    await apply(database, delivered(row, 0.5))
    assert await suppressions(database) == [
        ("shop", "*", "complaint"),
        ("shop", "bulk", "unsubscribed"),
    ]
    await apply(database, *(soft(row, hours) for hours in (0.4, 0.3, 0.2, 0.1)))
    await execute(
        database,
        "SELECT lift_suppressions(ARRAY[$1], ARRAY['*'], ARRAY['*'], ARRAY['unsubscribed'], 'ann', 'she asked')",
        row.key,
    )
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, tenant, reason, evidence_id, expires) VALUES ($1, 'shop', 'soft-bounces', 'x', now() - interval '1 h')",
        row.key,
    )
    await execute(database, query("expire_suppressions"), 10)
    [left] = await fetch(database, "SELECT recipient_key, tenant, lane, reason FROM suppression")
    assert tuple(left.values()) == complaint
    last = await execute(
        database, "SELECT payload #> '{suppressions}' FROM outbox_feed ORDER BY seq DESC LIMIT 1"
    )
    assert [s["reason"] for s in json.loads(last)] == ["complaint"]


async def test_a_streak_of_unknown_messages_is_for_all_and_moves_once_they_are_known(
    database: Database,
) -> None:
    rows = [await make_row(database, "submitted", tenant="shop") for _ in FIVE]
    for mine, hours in zip(rows, FIVE, strict=True):
        await apply(database, soft(mine, hours, tagged=False))
    assert await suppressions(database) == [("*", "*", "soft-bounces")]
    for mine, hours in zip(rows[:2], FIVE[:2], strict=True):
        await known_as(database, mine, f"soft {hours}")
    await match(database)
    assert await suppressions(database) == []
    assert await streaks(database) == {"*": 3, "shop": 2}
    for mine, hours in zip(rows[2:], FIVE[2:], strict=True):
        await known_as(database, mine, f"soft {hours}")
    await match(database)
    assert await suppressions(database) == [("shop", "*", "soft-bounces")]
    assert await streaks(database) == {"shop": 5}


async def known_as(database: Database, row: Row, provider_message_id: str) -> None:
    await execute(
        database,
        "UPDATE email_attempt SET provider_message_id = $2 WHERE id = $1",
        row.attempt_id,
        provider_message_id,
    )


async def lift(database: Database, row: Row, reason: str = "*") -> None:
    await execute(
        database,
        "SELECT lift_suppressions(ARRAY[$1], ARRAY['*'], ARRAY['*'], ARRAY[$2], 'ann', 'she asked')",
        row.key,
        reason,
    )


def hard(row: Row | None, hours_ago: float, **fields: Any) -> DeliveryEvent:
    return bounced(row, name=f"hard {hours_ago}", at_s=ago(hours_ago), **fields)


async def test_evidence_of_before_a_lift_suppresses_no_more_however_late_it_comes(
    database: Database, row: Row
) -> None:
    known = [hard(row, 5), complained(row, at_s=ago(6)), *(soft(row, hours) for hours in FIVE)]
    await apply(database, *known)
    await lift(database, row)
    assert await suppressions(database) == []
    announced = await told(database)
    late = [hard(row, 50), complained(row, name="late", at_s=ago(7)), soft(row, 0.5)]
    await apply(database, *known, *late)
    assert await suppressions(database) == []
    assert await told(database) == announced
    facts = await fetch(database, "SELECT hard_bounce, complaint FROM recipient_state")
    assert facts == [{"hard_bounce": hard(row, 50).time, "complaint": late[1].time}]


async def test_evidence_of_after_a_lift_suppresses(database: Database, row: Row) -> None:
    await apply(database, hard(row, 5))
    await lift(database, row)
    await apply(database, hard(row, 50), hard(row, -1))
    [found] = await fetch(database, "SELECT evidence_id FROM suppression")
    assert found["evidence_id"] == hard(row, -1).id


async def test_a_lift_of_one_reason_leaves_the_others_to_suppress(
    database: Database, row: Row
) -> None:
    await lift(database, row, "hard-bounce")
    await apply(database, hard(row, 5), complained(row, at_s=ago(6)))
    assert await suppressions(database) == [("shop", "*", "complaint")]


async def test_an_event_that_is_matched_after_a_lift_suppresses_nobody(database: Database) -> None:
    row = await make_row(database, "submitted", tenant="shop")
    early = complained(row, tagged=False, provider_message_id="p-1", at_s=ago(5))
    other = hard(row, 4, tagged=False, provider_message_id="strange")
    await apply(database, early, other)
    await lift(database, row)
    await known_as(database, row, "p-1")
    await match(database)
    assert (
        await execute(database, "SELECT tenant FROM email_event ORDER BY tenant LIMIT 1") == "shop"
    )
    assert await suppressions(database) == []


async def test_matching_one_recipient_does_not_undo_the_lift_of_another(
    database: Database,
) -> None:
    lifted = await make_row(database, "submitted", recipient="lifted@example.com", tenant="shop")
    mine = await make_row(database, "submitted", recipient="mine@example.com", tenant="shop")
    await apply(
        database,
        hard(lifted, 9, tagged=False, provider_message_id="strange"),
        event(EventType.DELIVERED, lifted, tagged=False, provider_message_id="p-1"),
        complained(mine, tagged=False, provider_message_id="p-2"),
    )
    await lift(database, lifted)
    await known_as(database, lifted, "p-1")
    await known_as(database, mine, "p-2")
    await match(database)
    assert await fetch(database, "SELECT recipient_key, tenant FROM suppression") == [
        {"recipient_key": mine.key, "tenant": "shop"}
    ]


async def test_a_complaint_that_names_several_people_is_marked(
    database: Database, row: Row
) -> None:
    named: dict[str, Any] = {"complaint": {"complainedRecipients": [{}, {}]}}
    await apply(database, complained(row, name="one of two", raw=named, at_s=1))
    assert await execute(database, "SELECT unattributed FROM suppression") is True
    sure = complained(row, name="sure", at_s=9)
    await apply(database, sure)
    announced = await told(database)
    await apply(database, complained(row, name="another of two", raw=named, at_s=0))
    assert await told(database) == announced == 2
    assert await fetch(database, "SELECT unattributed, evidence_id FROM suppression") == [
        {"unattributed": False, "evidence_id": sure.id}
    ]


async def test_folds_lifts_and_expiry_at_once_end_as_one_after_the_other(
    database: Database,
) -> None:
    """Locks in one order: nobody waits in a circle for long, and what counts is the latest of each."""
    rows = [
        await make_row(
            database, "submitted", recipient=f"u{n}@example.com", provider_message_id=f"p-{n}"
        )
        for n in range(6)
    ]
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, tenant, reason, evidence_id, evidence_at, expires) SELECT k, 'shop', 'soft-bounces', 'old', now(), now() - interval '1 s' FROM unnest($1::text[]) AS k",
        [row.key for row in rows],
    )

    async def folding(part: Sequence[Row]) -> None:
        for hours in FIVE:
            await apply(database, *(soft(row, hours) for row in part))
        await apply(database, *(hard(row, 3) for row in part))

    async def expiring() -> None:
        for _ in range(10):
            await execute(database, query("expire_suppressions"), 10)

    async def lifting() -> None:
        for row in reversed(rows):
            await lift(database, row, "hard-bounce")

    await asyncio.gather(folding(rows), folding(rows[::-1]), expiring(), lifting())
    found = await fetch(
        database,
        "SELECT recipient_key FROM suppression WHERE reason = 'soft-bounces' AND evidence_id <> 'old' AND expires > now()",
    )
    assert sorted(f["recipient_key"] for f in found) == sorted(row.key for row in rows)
    # The bounces are of before the lifts, whichever came first.
    hard_bounces = "SELECT count(*) FROM suppression WHERE reason = 'hard-bounce'"
    assert await execute(database, hard_bounces) == 0


async def test_what_a_delivery_ended_is_not_read_again(database: Database, row: Row) -> None:
    """A mailbox that has bounced 20,000 times costs no more than any other once something was delivered."""
    await apply(database, soft(row, 97))
    await execute(
        database,
        """INSERT INTO email_event (event_id, recipient_key, type, at, tenant, outbox_id, provider_message_id, payload)
           SELECT event_id || n, recipient_key, type, at + n * interval '1 s', tenant, outbox_id, 'm' || n, payload
           FROM email_event, generate_series(1, 20000) AS n""",
    )
    await execute(database, "VACUUM ANALYZE email_event")
    await apply(database, soft(row, 90))
    assert await streaks(database) == {"shop": 20_002}
    await apply(database, delivered(row, 73), soft(row, 2))
    assert await streaks(database) == {"shop": 1}
    async with database.transaction() as connection:
        for name, value in PLANNER.items():
            await connection.execute(f"SET LOCAL {name} = {value}")
        plan = await connection.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query('find_soft_bounces')}",
            ["shop"],
            [row.key],
            [NOW - timedelta(hours=73)],
        )
    whole = json.loads(plan)[0]["Plan"]
    assert whole["Actual Rows"] == 1
    assert whole["Shared Hit Blocks"] + whole["Shared Read Blocks"] < 20


async def test_bounces_that_say_the_same_and_others_are_one_streak(
    database: Database, row: Row
) -> None:
    for n, hours in enumerate(FIVE):
        said = {"subtype": "MailboxFull"} if n % 2 else {"diagnostic": f"smtp; 451 4.3.{n} later"}
        await apply(database, soft(row, hours, **said))
    await apply(database, soft(row, 0.5, subtype="MessageTooLarge"))
    assert await streaks(database) == {"shop": 5}
    assert await suppressions(database) == [("shop", "*", "soft-bounces")]


PLANS = {
    "find_soft_bounces": "email_event_evidence",
    "find_evidence": "email_event_evidence",
    "find_evidence_scopes": "email_event_evidence",
    "find_evidence_keys": "email_event_evidence",
    "find_unattributed_events": "email_event_unattributed",
    "count_unmatched": "email_event_unmatched",
    "find_soft_suppressions": "suppression_pkey",
}


@pytest.mark.parametrize("name", PLANS)
async def test_the_history_of_a_recipient_is_read_by_index(database: Database, name: str) -> None:
    await execute(
        database,
        """INSERT INTO email_event (event_id, recipient_key, type, at, tenant, outbox_id, payload)
           SELECT n::text, left(md5((n % 5000)::text), 32), CASE WHEN n % 20 = 0 THEN 'bounced' ELSE 'delivered' END, now(),
             'shop', CASE WHEN n % 50 > 0 THEN uuid_v7() END, '{}' FROM generate_series(1, 40000) AS n""",
    )
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, reason) SELECT md5(n::text), 'manual' FROM generate_series(1, 20000) AS n",
    )
    for table in ("email_event", "suppression"):
        await execute(database, f"VACUUM ANALYZE {table}")
    async with database.connection() as connection:
        statement = await connection.prepare(query(name))
        nulls = ", ".join(["NULL"] * len(statement.get_parameters()))
        await connection.execute(f"PREPARE planned AS {query(name)}")
        plan = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE planned ({nulls})")
        await connection.execute("DEALLOCATE planned")
    assert PLANS[name] in plan
    assert "Seq Scan" not in plan
