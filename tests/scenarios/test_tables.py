"""Claims beside an old snapshot (E06), and two folds of the same recipients (E08).

SCENARIOS=long runs them as they are written; without it they are as short as shows the same.
"""

import asyncio
import random
import re
import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml

from streams.adapters.facts_store import PLANNER as FOLDING
from streams.adapters.facts_store import FactsStore
from streams.adapters.outbox_store import PLANNER, OutboxStore
from streams.adapters.postgres import Database
from streams.adapters.upkeep_store import UpkeepStore
from streams.domain.attempts import OutcomeKind
from streams.domain.delivery_events import DeliveryEvent, EventType
from streams.domain.upkeep import EVENTS_REPEAT
from streams.folding.fold import fold
from tests.integration.outbox_rows import Row, bounced, complained, event, execute, fetch
from tests.integration.sender_rows import claim, outcome
from tests.scenarios.scene import LONG

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]

RATE, BATCH = 200, 20
SEND_S = 180 if LONG else 6
# As it is written; a busy machine may stop a short run for longer.
CLAIM_P99_S = 0.05 if LONG else 0.25
FOLD_S = 60 if LONG else 4
RULES = Path(__file__).parents[2] / "ops" / "prometheus" / "alerts.yml"


def alarm_after_s() -> float:
    """The age of a snapshot from which on the alert asks for it."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    [rule] = [r for g in groups for r in g["rules"] if r["alert"] == "MailstreamsOldSnapshot"]
    found = re.fullmatch(
        r"max\(mailstreams_scheduler_oldest_transaction_age_seconds\) > (\d+)", rule["expr"]
    )
    assert found
    return float(found[1])


async def test_e06_claims_stay_fast_beside_an_old_snapshot_whose_age_is_told(
    database: Database, database_dsn: str
) -> None:
    sending = Database(
        database_dsn, pool_size=2, timeout_s=20, name="sender", server_settings=PLANNER
    )
    async with (
        sending,
        database.connection() as report,
        report.transaction(isolation="repeatable_read", readonly=True),
    ):
        await report.fetchval("SELECT count(*) FROM email_outbox")
        begun = time.monotonic()
        times = await send(sending, OutboxStore(sending, max_attempts=3))
        held = time.monotonic() - begun
        found = await UpkeepStore(database, slot="none").upkeep(feed_kept=EVENTS_REPEAT)
    assert statistics.quantiles(times, n=100)[98] < CLAIM_P99_S
    assert found.oldest_transaction >= held - 1
    assert found.xmin_behind > 0
    assert (found.oldest_transaction > alarm_after_s()) is LONG
    states = await fetch(database, "SELECT state, count(*) FROM email_outbox GROUP BY state")
    assert states == [{"state": "submitted", "count": len(times) * BATCH}]


async def send(database: Database, store: OutboxStore) -> list[float]:
    """Seconds of each claim."""
    times = []
    begun = time.monotonic()
    while (now := time.monotonic()) < begun + SEND_S:
        ids = await insert(database)
        asked = time.monotonic()
        claims = await claim(store, *ids)
        times.append(time.monotonic() - asked)
        await store.record(
            [
                outcome(c.email, OutcomeKind.ACCEPTED, provider_message_id=str(c.email.id))
                for c in claims
                if c.email is not None
            ]
        )
        await asyncio.sleep(max(0.0, now + BATCH / RATE - time.monotonic()))
    return times


async def insert(database: Database) -> list[Any]:
    sql = """INSERT INTO email_outbox (recipient, sender, subject, text)
             SELECT 'user' || n || '@example.com', 'shop@example.com', 'Hello', repeat('Lorem ipsum ', 100) FROM generate_series(1, $1) AS n
             RETURNING id"""
    return [row["id"] for row in await fetch(database, sql, BATCH)]


async def test_e08_two_processes_fold_batches_of_the_same_hot_recipients_once_each(
    database: Database, database_dsn: str
) -> None:
    rows = [
        Row(id=UUID(bytes=row["id"].bytes), attempt_id=None, recipient=row["recipient"])
        for row in await fetch(
            database,
            """INSERT INTO email_outbox (recipient, sender, subject, text)
               SELECT 'hot' || n || '@example.com', 'shop@example.com', 'Hello', 'Hi' FROM generate_series(1, 100) AS n
               RETURNING id, recipient""",
        )
    ]
    await execute(database, "DELETE FROM outbox_feed")
    told: set[tuple[str, str]] = set()
    await asyncio.gather(*(fold_for(database_dsn, rows, told, seed) for seed in (1, 2)))
    kept = await fetch(database, "SELECT event_id, recipient_key FROM email_event")
    assert {(row["event_id"], row["recipient_key"]) for row in kept} == told
    assert len(kept) == len(told)
    outcomes = await execute(database, "SELECT count(*) FROM recipient_outcome")
    assert outcomes == len({key for _, key in told})


async def fold_for(dsn: str, rows: Sequence[Row], told: set[tuple[str, str]], seed: int) -> None:
    """One process: batches in an order of its own, each recipient several times, many events told by the other one too."""
    chance = random.Random(seed)  # noqa: S311 the same batches every time
    async with Database(
        dsn, pool_size=2, timeout_s=60, name="recipients", server_settings=FOLDING
    ) as database:
        store = FactsStore(database)
        ends = time.monotonic() + FOLD_S
        turn = 0
        while time.monotonic() < ends:
            events = [made(chance, chance.choice(rows), turn) for _ in range(150)]
            events += chance.sample(events, 20)
            await store.transact(partial(fold, events=events))
            told |= {(e.id, e.recipient_key) for e in events}
            turn += 1


def made(chance: random.Random, row: Row, turn: int) -> DeliveryEvent:
    kind = chance.choice(("delivered", "opened", "soft", "hard", "complaint"))
    about: dict[str, Any] = {"name": f"{kind}-{turn}", "at_s": float(turn)}
    match kind:
        case "soft":
            return bounced(row, label="Transient", **about)
        case "hard":
            return bounced(row, **about)
        case "complaint":
            return complained(row, **about)
        case _:
            return event(EventType(kind), row, **about)
