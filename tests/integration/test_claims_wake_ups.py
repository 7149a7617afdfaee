"""Nothing pending sleeps, and nobody waits in a circle: what is left after claims, alone and under load."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from streams.adapters.outbox_store import PLANNER, OutboxStore
from streams.adapters.postgres import Database
from streams.adapters.schedule_store import ScheduleStore
from streams.domain.attempts import Email, OutcomeKind, Verdict
from tests.integration.sender_rows import (
    claim,
    execute,
    insert,
    one,
    outcome,
    requests,
    row_of,
    suppress,
)

pytestmark = pytest.mark.servers


@pytest.mark.parametrize(
    ("row", "before", "verdict", "wake_ups"),
    [
        ({}, None, Verdict.CLAIMED, 0),
        ({"recipient": "gone@example.com"}, None, Verdict.SUPPRESSED, 0),
        ({"expires_at": datetime.now(UTC) - timedelta(days=1)}, None, Verdict.EXPIRED, 0),
        ({"send_after": datetime.now(UTC) + timedelta(days=1)}, None, Verdict.EARLY, 1),
        ({"lane": "bulk"}, None, Verdict.PAUSED, 1),
        ({}, "accepted", Verdict.BUSY, 1),
    ],
)
@pytest.mark.parametrize("waits_already", [False, True])
async def test_what_stays_pending_has_one_wake_up_and_nothing_else_has(
    database: Database,
    store: OutboxStore,
    *,
    row: dict[str, Any],
    before: str | None,
    verdict: Verdict,
    wake_ups: int,
    waits_already: bool,
) -> None:
    await suppress(database, "gone@example.com")
    await execute(
        database,
        "INSERT INTO pause (scope, value, reason, who) VALUES ('lane', 'bulk', 'test', 'test')",
    )
    id_ = await insert(database, **row)
    await execute(database, "DELETE FROM email_due")
    if before:
        await execute(
            database,
            "INSERT INTO email_attempt (id, outbox_id, number, finished, outcome) VALUES (uuid_v7(), $1, 0, now(), $2)",
            id_,
            before,
        )
    if waits_already:
        await execute(
            database,
            "INSERT INTO email_due (id, due, tenant, lane, why) VALUES ($1, now(), 'default', 'transactional', 'busy')",
            id_,
        )
    [answer] = await claim(store, id_)
    assert answer.verdict is verdict
    state = (await row_of(database, id_))["state"]
    assert (state == "pending") == (wake_ups == 1)
    found = await one(database, "SELECT count(*) AS n FROM email_due")
    assert found == {"n": wake_ups}


class Load:
    """What senders, the scheduler and persons do at once, each a few rows at a time in an order of its own."""

    def __init__(self, database: Database, ids: list[UUID], seed: int) -> None:
        self._database = database
        self._store = OutboxStore(database, max_attempts=3)
        self._scheduler = ScheduleStore(database)
        self._ids = ids
        self._random = random.Random(seed)  # noqa: S311 the same load every time
        self._held: list[Email] = []
        self.accepted: list[UUID] = []

    async def run(self, steps: int) -> None:
        ways = [self._claim, self._tell, self._tell, self._schedule, self._cancel]
        for _ in range(steps):
            await self._random.choice(ways)()

    def _some(self, most: int) -> list[UUID]:
        return self._random.sample(self._ids, self._random.randint(1, most))

    async def _claim(self) -> None:
        lease_s = self._random.choice([0.0, 60.0])
        answers = await self._store.claim(requests(self._some(15)), lease_s=lease_s)
        self._held += [a.email for a in answers if a.email is not None]

    async def _tell(self) -> None:
        self._random.shuffle(self._held)
        told, self._held = self._held[:10], self._held[10:]
        outcomes = [
            outcome(email, self._random.choice(list(OutcomeKind)), reason="as it happens")
            for email in told
        ]
        await self._store.record(outcomes)
        self.accepted += [o.id for o in outcomes if o.kind is OutcomeKind.ACCEPTED]

    async def _schedule(self) -> None:
        await self._scheduler.expire_leases(20)
        await self._scheduler.settle(self._some(20))
        await self._scheduler.take_due(20)

    async def _cancel(self) -> None:
        await execute(self._database, "SELECT cancel_email($1, 'by hand')", self._some(1)[0])


async def test_load_of_every_kind_ends_without_a_deadlock_and_with_nothing_asleep(
    database: Database, database_dsn: str
) -> None:
    ids = [await insert(database, recipient=f"user{n}@example.com") for n in range(60)]
    # As after a relay that works: only what is left pending by a claim or an outcome has a wake-up.
    never_claimed = "SELECT id FROM email_outbox WHERE state = 'pending' AND changed = created"
    async with Database(
        database_dsn, pool_size=8, timeout_s=120, name="load", server_settings=PLANNER
    ) as working:
        loads = [Load(working, ids, seed) for seed in range(6)]
        await asyncio.gather(*(load.run(60) for load in loads))
    asleep = await one(
        database,
        "SELECT count(*) AS n FROM email_outbox AS o WHERE o.state = 'pending' AND NOT EXISTS (SELECT FROM email_due AS d WHERE d.id = o.id) "
        f"AND o.id NOT IN ({never_claimed}) AND NOT EXISTS (SELECT FROM outbox_feed AS f WHERE f.type = 'pointer' AND f.payload ->> 'id' = o.id::text AND f.ts >= o.changed AT TIME ZONE 'UTC')",
    )
    assert asleep == {"n": 0}
    unleased = await one(
        database,
        "SELECT count(*) AS n FROM email_outbox AS o WHERE o.state = 'sending' "
        "AND NOT EXISTS (SELECT FROM email_lease AS l WHERE l.attempt_id = o.attempt_id)",
    )
    assert unleased == {"n": 0}
    counted = await one(
        database, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    assert counted == {"deadlocks": 0}
    # What SES took is never waiting to be sent once more without the scheduler knowing better.
    accepted = {id_ for load in loads for id_ in load.accepted}
    assert accepted
    await ScheduleStore(database).settle(sorted(accepted))
    states = {(await row_of(database, id_))["state"] for id_ in accepted}
    assert states <= {"submitted", "sending", "cancelled", "failed"}
