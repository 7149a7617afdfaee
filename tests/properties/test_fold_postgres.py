"""On a real PostgreSQL: any order, repetition, cutting into batches and number of folds at once leaves the same rows."""

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from streams.adapters.facts_store import EvidenceStore, FactsStore
from streams.adapters.facts_transaction import placed_of
from streams.adapters.postgres import Database
from streams.domain.addresses import recipient_key
from streams.domain.bounce_rules import RULES
from streams.domain.delivery_events import DeliveryEvent, EventType
from streams.domain.derivation import derive
from streams.domain.lifts import Lift, Lifts
from streams.folding.fold import fold
from streams.recipients import Recipients
from streams.reclassify import reclassify_all
from tests.conftest import SALT
from tests.integration.outbox_rows import (
    START,
    Row,
    all_facts,
    bounced,
    complained,
    event,
    execute,
    make_row,
)

pytestmark = pytest.mark.servers

NOW = datetime.now(UTC)
IDS = [UUID(f"01900000-0000-7000-8000-00000000000{n}") for n in range(4)]
ATTEMPTS = [UUID(f"01900000-0000-7000-8000-0000000000a{n}") for n in range(4)]


async def fresh_rows(database: Database) -> list[Row]:
    """Four messages to the same person: of two tenants, in the states in which events find them."""
    await execute(database, "DELETE FROM suppression")
    await execute(
        database,
        "TRUNCATE email_outbox, email_due, email_lease, email_unsettled, dead_letter, email_attempt, email_event, recipient_outcome, recipient_state, suppressed_recipient, suppression_log, provider_unlisting, outbox_feed",
    )
    states = ("ambiguous", "submitted", "pending", "ambiguous")
    return [
        await make_row(
            database,
            state,
            id=IDS[n],
            attempt_id=ATTEMPTS[n],
            tenant="one" if n < 2 else "two",
            provider_message_id="p-1" if state == "submitted" else None,
            cc=["copied@example.com"] if n == 3 else None,
        )
        for n, state in enumerate(states)
    ]


def story(rows: list[Row]) -> list[DeliveryEvent]:
    """Events of every kind about these messages, some without tags, some in two shapes, one about nobody of ours."""
    unknown, sent, waiting, copied = rows
    p0: dict[str, Any] = {"provider_message_id": "p-0"}
    return [
        event(EventType.ACCEPTED, unknown, **p0),
        bounced(unknown, label="Transient", name="soft", at_s=1, **p0),
        bounced(unknown, name="hard", at_s=5, tagged=False, **p0),
        bounced(unknown, name="hard", at_s=5, **p0),
        bounced(unknown, name="undetermined", label="Undetermined", at_s=0, status=None, **p0),
        complained(unknown, at_s=30, tagged=False, **p0),
        event(EventType.DELIVERED, unknown, at_s=2, tagged=False, **p0),
        event(EventType.DELIVERED, sent, at_s=4, tagged=False),
        complained(sent, name="first", at_s=20),
        complained(sent, name="second", label=None, at_s=21, tagged=False),
        event(EventType.OPENED, sent, name="open 1", at_s=6),
        event(EventType.OPENED, sent, name="open 2", at_s=5, tagged=False),
        event(EventType.UNSUBSCRIBED, sent, at_s=40),
        # Its attempt is one that the database has forgotten.
        event(
            EventType.DELIVERED,
            waiting,
            at_s=7,
            attempt_id=ATTEMPTS[2],
            provider_message_id="p-2",
        ),
        event(EventType.OPENED, waiting, at_s=8, tagged=False, provider_message_id="p-2"),
        event(EventType.UNSUBSCRIBED, copied, at_s=3, tagged=False, provider_message_id="p-3"),
        event(
            EventType.DELIVERED, copied, recipient="copied@example.com", provider_message_id="p-3"
        ),
        complained(recipient=unknown.recipient, provider_message_id="foreign", at_s=25),
        *streak(sent),
        *(soft(None, hours, f"foreign {hours}") for hours in (90, 60, 15, 10, 2)),
    ]


def streak(sent: Row) -> list[DeliveryEvent]:
    """Five messages that bounced softly within four days, one of them twice, and deliveries of which two break the streak."""
    delivery = partial(event, EventType.DELIVERED, sent)
    return [
        soft(sent, 97, "s-1"),
        soft(sent, 73, "s-2", tagged=False),
        event(EventType.ACCEPTED, sent, name="took 2", provider_message_id="s-2", at_s=ago(80)),
        soft(sent, 49, "s-3", tagged=False),
        event(EventType.ACCEPTED, sent, name="took 3", provider_message_id="s-3", at_s=ago(60)),
        soft(sent, 25, "s-4"),
        soft(sent, 1, "s-5"),
        soft(sent, 0.5, "s-5"),
        soft(sent, 0.4, "s-6"),
        delivery(name="before", at_s=ago(98), provider_message_id="d-1"),
        delivery(name="breaks it", at_s=ago(60), provider_message_id="d-2"),
        delivery(name="late", at_s=ago(30), tagged=False, provider_message_id="s-3"),
    ]


def soft(row: Row | None, hours_ago: float, message: str, **fields: Any) -> DeliveryEvent:
    return bounced(
        row,
        label="Transient",
        name=f"soft {hours_ago}",
        at_s=ago(hours_ago),
        provider_message_id=message,
        **fields,
    )


def ago(hours: float) -> float:
    """As seconds after START."""
    return (NOW - timedelta(hours=hours) - START).total_seconds()


SIZE = len(story([Row(id=i, attempt_id=None, recipient="a@example.com") for i in IDS]))


# Where in the suppressions a lift may have been: of everything, of some tenant, lane or reason; and when.
LIFTS = st.lists(
    st.tuples(
        st.sampled_from(["*", "one", "two"]),
        st.sampled_from(["*", "bulk"]),
        st.sampled_from(["*", "hard-bounce", "complaint", "soft-bounces", "unsubscribed"]),
        st.sampled_from([ago(1000), ago(50), ago(0.45), 5.5, 20.0]),
    ),
    max_size=3,
)


async def fold_all(
    database: Database,
    batches: list[list[DeliveryEvent]],
    at_once: int,
    *,
    lift_before: int | None = None,
    reclassified: bool = False,
) -> Any:
    """Folds the batches, so many at a time; lifts every suppression of tenant "one" before the one of this number. Reclassified:
    beside all that, again and again."""
    store = FactsStore(database)
    waiting = list(enumerate(batches))

    async def worker() -> None:
        while waiting:
            number, events = waiting.pop(0)
            if number == lift_before:
                await lift_all_of_one(database)
            await store.transact(partial(fold, events=events))

    async def again_and_again() -> None:
        while waiting:
            await reclassify_all(EvidenceStore(database), rules=RULES, dry_run=False)

    await asyncio.gather(
        *(worker() for _ in range(at_once)), *([again_and_again()] if reclassified else [])
    )
    matcher = Recipients(consumer=None, facts=store, unreadable=None)  # type: ignore[arg-type]
    for _ in range(3):
        await matcher.match_unmatched_events()
    facts = await all_facts(database)
    await check_against_derivation(database, facts)
    return facts


async def check_against_derivation(database: Database, facts: dict[str, list[Any]]) -> None:
    """What was added up step by step is what follows from the stored history as a whole."""
    async with database.connection() as connection:
        history = [placed_of(row) for row in await connection.fetch("SELECT * FROM email_event")]
        log = await connection.fetch(
            "SELECT recipient_key, tenant, lane, reason, at FROM suppression_log"
        )
    derived = derive(history, lifts=Lifts(Lift(**row) for row in log))
    assert [asdict(state) for state in derived.states] == facts["states"]
    wanted = [asdict(s) for s in derived.suppressions if s.in_force(datetime.now(UTC))]
    assert wanted == facts["suppressions"]
    outcomes = [(o.outbox_id, o.recipient_key) for o in derived.outcomes]
    assert outcomes == [(o["outbox_id"], o["recipient_key"]) for o in facts["outcomes"]]


async def lift_all_of_one(database: Database) -> None:
    key = recipient_key("user1@example.com", SALT)
    await execute(
        database,
        "SELECT lift_suppressions(ARRAY[$1], ARRAY['one'], ARRAY['*'], ARRAY['*'], 'ann', 'why')",
        key,
    )


async def lifted_then(database: Database, lifts: list[tuple[str, str, str, float]]) -> None:
    """Lifts of some time ago."""
    for tenant, lane, reason, at_s in lifts:
        await execute(
            database,
            "INSERT INTO suppression_log (recipient_key, tenant, lane, reason, at, by_whom, why) VALUES ($1, $2, $3, $4, $5, 'ann', 'why')",
            recipient_key("user1@example.com", SALT),
            tenant,
            lane,
            reason,
            START + timedelta(seconds=at_s),
        )


UNHURRIED = settings(
    max_examples=20,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ALL = list(range(SIZE))
subsets = st.one_of(
    st.just(set(ALL)),
    st.sets(st.integers(0, SIZE - 1), max_size=5).map(lambda out: set(ALL) - out),
    st.sets(st.integers(0, SIZE - 1), min_size=4),
)


@UNHURRIED
@given(
    chosen=subsets,
    order=st.permutations(ALL),
    repeated=st.sets(st.integers(0, SIZE - 1), max_size=6),
    size=st.integers(1, 7),
    at_once=st.integers(1, 3),
    lifts=LIFTS,
    reclassified=st.booleans(),
)
# The order of bounces in Python and in SQL: a transient and an undetermined one, no permanent one.
@example(
    chosen={0, 1, 4, 7}, order=ALL, repeated=set(), size=1, at_once=1, lifts=[], reclassified=False
)
@example(
    chosen=set(ALL),
    order=ALL[::-1],
    repeated={2, 3},
    size=1,
    at_once=1,
    lifts=[],
    reclassified=False,
)
@example(
    chosen=set(ALL),
    order=ALL,
    repeated=set(range(6)),
    size=3,
    at_once=3,
    lifts=[],
    reclassified=True,
)
async def test_the_same_rows_whatever_the_order(
    *,
    database: Database,
    chosen: set[int],
    order: list[int],
    repeated: set[int],
    size: int,
    at_once: int,
    lifts: list[tuple[str, str, str, float]],
    reclassified: bool,
) -> None:
    events = story(await fresh_rows(database))
    await lifted_then(database, lifts)
    expected = await fold_all(database, [[events[n] for n in sorted(chosen)]], at_once=1)
    await fresh_rows(database)
    await lifted_then(database, lifts)
    mixed = [events[n] for n in order if n in chosen]
    mixed += [events[n] for n in order if n in chosen & repeated]
    batches = [mixed[n : n + size] for n in range(0, len(mixed), size)]
    found = await fold_all(database, batches, at_once, reclassified=reclassified)
    for part, rows in expected.items():
        assert found[part] == rows, part


@UNHURRIED
@given(
    chosen=subsets,
    order=st.permutations(ALL),
    size=st.integers(1, 7),
    at_once=st.integers(1, 3),
    position=st.floats(0, 1, exclude_max=True),
)
async def test_a_lift_ends_the_same_whenever_evidence_of_before_arrives(
    *,
    database: Database,
    chosen: set[int],
    order: list[int],
    size: int,
    at_once: int,
    position: float,
) -> None:
    events = story(await fresh_rows(database))
    await fold_all(database, [[events[n] for n in sorted(chosen)]], at_once=1)
    await lift_all_of_one(database)
    expected = await all_facts(database)
    await fresh_rows(database)
    mixed = [events[n] for n in order if n in chosen]
    batches = [mixed[n : n + size] for n in range(0, len(mixed), size)]
    found = await fold_all(database, batches, at_once, lift_before=int(position * len(batches)))
    for part, rows in expected.items():
        assert found[part] == rows, part
