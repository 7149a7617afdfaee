"""On a real PostgreSQL: any order, repetition, cutting into batches and number of folds at once leaves the same rows."""

import asyncio
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from streams.adapters.facts_store import FactsStore
from streams.adapters.postgres import Database
from streams.domain.delivery_events import DeliveryEvent, EventType
from streams.folding.fold import fold
from streams.recipients import Recipients
from tests.integration.outbox_rows import (
    Row,
    all_facts,
    bounced,
    complained,
    event,
    execute,
    make_row,
)

pytestmark = pytest.mark.servers

IDS = [UUID(f"01900000-0000-7000-8000-00000000000{n}") for n in range(4)]
ATTEMPTS = [UUID(f"01900000-0000-7000-8000-0000000000a{n}") for n in range(4)]


async def fresh_rows(database: Database) -> list[Row]:
    """Four messages to the same person: of two tenants, in the states in which events find them."""
    await execute(
        database,
        "TRUNCATE email_outbox, email_due, email_lease, email_unsettled, dead_letter, email_attempt, email_event, recipient_outcome, recipient_state, suppression, suppressed_recipient, outbox_feed",
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
    ]


SIZE = len(story([Row(id=i, attempt_id=None, recipient="a@example.com") for i in IDS]))


async def fold_all(database: Database, batches: list[list[DeliveryEvent]], at_once: int) -> Any:
    store = FactsStore(database)
    waiting = list(batches)

    async def worker() -> None:
        while waiting:
            await store.transact(partial(fold, events=waiting.pop(0)))

    await asyncio.gather(*(worker() for _ in range(at_once)))
    matcher = Recipients(consumer=None, facts=store, unreadable=None)  # type: ignore[arg-type]
    for _ in range(3):
        await matcher.match_unmatched_events()
    return await all_facts(database)


@settings(
    max_examples=20,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    chosen=st.sets(st.integers(0, SIZE - 1), min_size=4),
    order=st.permutations(range(SIZE)),
    repeated=st.sets(st.integers(0, SIZE - 1), max_size=6),
    size=st.integers(1, 7),
    at_once=st.integers(1, 3),
)
# The order of bounces in Python and in SQL: a transient and an undetermined one, no permanent one.
@example(chosen={0, 1, 4, 7}, order=list(range(SIZE)), repeated=set(), size=1, at_once=1)
@example(chosen=set(range(SIZE)), order=list(range(SIZE))[::-1], repeated={2, 3}, size=1, at_once=1)
@example(
    chosen=set(range(SIZE)), order=list(range(SIZE)), repeated=set(range(6)), size=3, at_once=3
)
async def test_the_same_rows_whatever_the_order(
    *,
    database: Database,
    chosen: set[int],
    order: list[int],
    repeated: set[int],
    size: int,
    at_once: int,
) -> None:
    events = story(await fresh_rows(database))
    expected = await fold_all(database, [[events[n] for n in sorted(chosen)]], at_once=1)
    await fresh_rows(database)
    mixed = [events[n] for n in order if n in chosen]
    mixed += [events[n] for n in order if n in chosen & repeated]
    batches = [mixed[n : n + size] for n in range(0, len(mixed), size)]
    found = await fold_all(database, batches, at_once)
    for part, rows in expected.items():
        assert found[part] == rows, part
