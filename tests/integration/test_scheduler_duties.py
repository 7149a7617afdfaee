"""Each duty of the scheduler on a real PostgreSQL, alone and beside a second replica."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from aiokafka.partitioner import murmur2

from streams.adapters.facts_store import FactsStore
from streams.adapters.postgres import Database
from streams.adapters.schedule_store import ScheduleStore
from streams.domain.delivery_events import EventType
from streams.domain.errors import Unavailable
from streams.domain.schedule import FIRST_ID
from streams.domain.sending_account import SendingAccount
from streams.domain.topics import Lane
from streams.folding.fold import fold
from streams.runtime.settings import Settings
from streams.scheduler import Scheduler
from streams.scheduling.account_poll import AccountPoll
from streams.scheduling.oldest_pending import OldestPendingSearch
from tests.integration.outbox_rows import Row, bounced, event, execute, fetch, make_row

pytestmark = pytest.mark.servers

HEALTHY = SendingAccount(max_send_rate=100.0, sending_enabled=True, enforcement_status="HEALTHY")


class ScriptedAccount:
    """Answers of GetAccount, one after the other; the last one stays."""

    region = "eu-central-1"

    def __init__(self, *answers: SendingAccount | Unavailable) -> None:
        self.answers = list(answers)
        self.reads = 0

    async def read(self) -> SendingAccount:
        self.reads += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    async def stop(self) -> None: ...


def scheduler(database: Database, **settings: Any) -> Scheduler:
    given = {"partitions": 3, "scheduler_interval_s": 0.05} | settings
    return Scheduler(
        schedule=ScheduleStore(database),
        account=ScriptedAccount(HEALTHY),
        settings=Settings(**given),
    )


async def twice_at_once(step: Callable[[Scheduler], Awaitable[float]], database: Database) -> None:
    """The same duty of two replicas, several times, side by side."""
    replicas = [scheduler(database), scheduler(database)]
    await asyncio.gather(*(step(replica) for replica in replicas for _ in range(4)))


async def state_of(database: Database, row: Row) -> Any:
    return await execute(database, "SELECT state FROM email_outbox WHERE id = $1", row.id)


async def feed(database: Database, aggregatetype: str | None = None) -> list[dict[str, Any]]:
    return await fetch(
        database,
        "SELECT aggregatetype, aggregateid, type, payload FROM outbox_feed WHERE $1::text IS NULL OR aggregatetype = $1 ORDER BY seq",
        aggregatetype,
    )


async def make_due(database: Database, row: Row, ago: str = "1 s") -> None:
    await execute(
        database,
        "INSERT INTO email_due (id, due, tenant, lane, why) SELECT id, clock_timestamp() - $2::text::interval, tenant, lane, 'retry' FROM email_outbox WHERE id = $1 ON CONFLICT (id) DO UPDATE SET due = excluded.due",
        row.id,
        ago,
    )


async def apply(database: Database, *events: Any) -> None:
    await FactsStore(database).transact(partial(fold, events=events))


# take_due


async def test_what_is_due_goes_into_the_feed_as_a_pointer(database: Database) -> None:
    row = await make_row(database)
    later = await make_row(database, recipient="later@example.com")
    await make_due(database, row)
    await make_due(database, later, ago="-60 s")
    await scheduler(database).take_due()
    (pointer,) = await feed(database)
    assert (pointer["aggregatetype"], pointer["type"]) == ("outbox.transactional", "pointer")
    assert pointer["aggregateid"] == row.key
    assert json.loads(pointer["payload"])["id"] == str(row.id)
    assert await fetch(database, "SELECT id FROM email_due") == [{"id": later.id}]


async def test_two_replicas_take_what_is_due_once(database: Database) -> None:
    for n in range(40):
        await make_due(database, await make_row(database, recipient=f"user{n}@example.com"))
    await twice_at_once(Scheduler.take_due, database)
    assert len(await feed(database)) == 40
    assert await fetch(database, "SELECT * FROM email_due") == []


async def test_what_expired_while_it_waited_is_not_sent(database: Database) -> None:
    row = await make_row(database, expires_at=datetime(2026, 1, 1, tzinfo=UTC))
    await make_due(database, row)
    await scheduler(database).take_due()
    assert await state_of(database, row) == "expired"
    (told,) = await feed(database)
    assert (told["aggregatetype"], told["type"]) == ("delivery-events", "expired")
    assert json.loads(told["payload"])["type"] == "mailstreams.email.expired"


@pytest.mark.parametrize("state", ["submitted", "sending", "ambiguous"])
async def test_a_row_that_is_not_pending_any_more_gets_no_pointer(
    database: Database, state: str
) -> None:
    row = await make_row(database, state)
    await make_due(database, row)
    await scheduler(database).take_due()
    assert await feed(database) == []
    assert await fetch(database, "SELECT * FROM email_due") == []


async def test_a_row_in_other_hands_keeps_its_wake_up(database: Database) -> None:
    row = await make_row(database)
    await make_due(database, row)
    async with database.transaction() as connection:
        await connection.execute("SELECT FROM email_outbox WHERE id = $1 FOR UPDATE", row.id)
        await scheduler(database).take_due()
        assert await feed(database) == []
    assert len(await fetch(database, "SELECT * FROM email_due")) == 1
    await scheduler(database).take_due()
    assert len(await feed(database)) == 1


async def test_a_retry_that_turns_out_to_be_taken_is_settled_instead(database: Database) -> None:
    row = await make_row(database, "sending")
    await apply(database, event(EventType.DELIVERED, row))
    await execute(
        database,
        "UPDATE email_outbox SET state = 'pending', attempt_id = NULL WHERE id = $1",
        row.id,
    )
    await make_due(database, row)
    await scheduler(database).take_due()
    assert await state_of(database, row) == "submitted"
    assert await feed(database) == []
    assert await fetch(database, "SELECT * FROM email_due") == []


async def test_a_wake_up_without_a_row_is_dropped(database: Database) -> None:
    await execute(
        database,
        "INSERT INTO email_due (id, due, tenant, lane, why) VALUES (uuid_v7(), clock_timestamp(), 'shop', 'bulk', 'retry')",
    )
    await scheduler(database).take_due()
    assert await fetch(database, "SELECT * FROM email_due") == []


async def test_fifty_thousand_due_at_once_are_in_the_feed_after_few_rounds(
    database: Database,
) -> None:
    await execute(
        database,
        """WITH made AS (
             INSERT INTO email_outbox (recipient, sender, subject, text)
             SELECT 'user' || n || '@example.com', 'sender@example.com', 'Hello', repeat('0123456789abcdef ', 120)
             FROM generate_series(1, 50000) AS n
             RETURNING id, tenant, lane)
           INSERT INTO email_due SELECT id, clock_timestamp(), tenant, lane, 'scheduled' FROM made""",
    )
    await execute(database, "TRUNCATE outbox_feed")
    stage = scheduler(database)
    rounds = 0
    while await stage.take_due() == 0.0:
        rounds += 1
    assert rounds <= 50
    assert await execute(database, "SELECT count(*) FROM outbox_feed") == 50_000
    assert await execute(database, "SELECT count(*) FROM email_due") == 0


# expire_leases, settle_ambiguous, hold_ambiguous


async def test_a_lease_that_ran_out_leaves_its_row_ambiguous(database: Database) -> None:
    row = await make_row(database, "sending", lease_s=-1)
    alive = await make_row(database, "sending", recipient="alive@example.com")
    await scheduler(database).unknown.expire_leases()
    assert await state_of(database, row) == "ambiguous"
    assert await state_of(database, alive) == "sending"
    attempts = await fetch(database, "SELECT id, outbox_id, number, outcome FROM email_attempt")
    assert attempts == [
        {"id": row.attempt_id, "outbox_id": row.id, "number": 1, "outcome": "unknown"}
    ]
    assert await fetch(database, "SELECT attempt_id FROM email_unsettled") == [
        {"attempt_id": row.attempt_id}
    ]
    assert await fetch(database, "SELECT id FROM email_lease") == [{"id": alive.id}]


async def test_evidence_before_the_lease_ran_out_makes_it_submitted(database: Database) -> None:
    row = await make_row(database, "sending", lease_s=-1)
    await apply(database, event(EventType.ACCEPTED, row, provider_message_id="p-1"))
    assert await state_of(database, row) == "sending"
    await scheduler(database).unknown.expire_leases()
    assert await state_of(database, row) == "submitted"
    assert await fetch(database, "SELECT outcome, provider_message_id FROM email_attempt") == [
        {"outcome": "accepted", "provider_message_id": "p-1"}
    ]
    assert await fetch(database, "SELECT * FROM email_unsettled") == []


async def test_evidence_after_the_lease_ran_out_makes_it_submitted(database: Database) -> None:
    row = await make_row(database, "sending", lease_s=-1)
    await scheduler(database).unknown.expire_leases()
    await apply(database, bounced(row))
    assert await state_of(database, row) == "submitted"


async def test_two_replicas_expire_a_lease_once(database: Database) -> None:
    rows = [
        await make_row(database, "sending", lease_s=-1, recipient=f"user{n}@example.com")
        for n in range(20)
    ]
    await twice_at_once(lambda stage: stage.unknown.expire_leases(), database)
    assert {await state_of(database, row) for row in rows} == {"ambiguous"}
    assert await execute(database, "SELECT count(*) FROM email_attempt") == 20


async def test_a_lease_of_an_older_token_changes_nothing(database: Database) -> None:
    row = await make_row(database, "sending")
    await execute(
        database,
        "UPDATE email_lease SET attempt_id = uuid_v7(), expires = clock_timestamp() - interval '1 s'",
    )
    await scheduler(database).unknown.expire_leases()
    assert await state_of(database, row) == "sending"
    assert await fetch(database, "SELECT * FROM email_attempt") == []


async def late_outcome(database: Database, row: Row, outcome: str, **columns: Any) -> None:
    """What a sender writes that comes back after its lease: its attempt alone."""
    await execute(
        database,
        "UPDATE email_attempt SET outcome = $2, provider_message_id = $3 WHERE id = $1",
        row.attempt_id,
        outcome,
        columns.get("provider_message_id"),
    )


async def test_a_late_acceptance_settles_the_row(database: Database) -> None:
    row = await make_row(database, "ambiguous")
    await late_outcome(database, row, "accepted", provider_message_id="p-1")
    await scheduler(database).unknown.settle_ambiguous()
    assert await state_of(database, row) == "submitted"


@pytest.mark.parametrize("outcome", ["retry", "throttled", "account-stop", "misconfigured"])
async def test_a_late_refusal_makes_the_row_pending_and_due(
    database: Database, outcome: str
) -> None:
    row = await make_row(database, "ambiguous")
    await late_outcome(database, row, outcome)
    await scheduler(database).unknown.settle_ambiguous()
    assert await state_of(database, row) == "pending"
    assert await fetch(database, "SELECT id, why FROM email_due") == [
        {"id": row.id, "why": "retry"}
    ]
    assert await fetch(database, "SELECT * FROM email_unsettled") == []


async def test_without_evidence_nothing_is_settled(database: Database) -> None:
    row = await make_row(database, "ambiguous")
    await scheduler(database).unknown.settle_ambiguous()
    assert await state_of(database, row) == "ambiguous"
    assert len(await fetch(database, "SELECT * FROM email_unsettled")) == 1


async def test_a_refusal_does_not_free_a_row_with_another_unknown_attempt(
    database: Database,
) -> None:
    row = await make_row(database, "ambiguous")
    await execute(
        database,
        "INSERT INTO email_unsettled (attempt_id, outbox_id) VALUES (uuid_v7(), $1)",
        row.id,
    )
    await late_outcome(database, row, "retry")
    await scheduler(database).unknown.settle_ambiguous()
    assert await state_of(database, row) == "ambiguous"
    assert await execute(database, "SELECT count(*) FROM email_unsettled") == 1


async def test_settling_goes_through_all_pages(database: Database) -> None:
    rows = [
        await make_row(database, "ambiguous", recipient=f"user{n}@example.com") for n in range(5)
    ]
    await late_outcome(database, rows[-1], "accepted")
    store = ScheduleStore(database)
    after = FIRST_ID
    seen: list[UUID] = []
    while True:
        page = await store.unsettled(after=after, limit=2)
        seen += page.outbox_ids
        await store.settle(page.outbox_ids)
        if page.last is None:
            break
        after = page.last
    assert sorted(seen) == sorted(row.id for row in rows)
    assert await state_of(database, rows[-1]) == "submitted"


async def test_a_row_that_stays_ambiguous_is_given_to_a_person(database: Database) -> None:
    old = await make_row(database, "ambiguous", since="25 h")
    young = await make_row(database, "ambiguous", since="23 h", recipient="young@example.com")
    await scheduler(database).unknown.hold_ambiguous()
    assert await state_of(database, old) == "failed"
    assert await state_of(database, young) == "ambiguous"
    (letter,) = await fetch(database, "SELECT outbox_id, class, attempt_id FROM dead_letter")
    assert letter == {"outbox_id": old.id, "class": "held", "attempt_id": old.attempt_id}
    told, dead = await feed(database)
    assert (told["aggregatetype"], told["type"]) == ("delivery-events", "failed")
    assert (dead["aggregatetype"], dead["type"]) == ("dead-letters", "dead-letter")
    assert json.loads(dead["payload"])["class"] == "held"
    reason = await execute(database, "SELECT reason FROM email_outbox WHERE id = $1", old.id)
    assert reason.startswith("held: ")


async def test_late_evidence_settles_a_row_that_a_person_was_asked_about(
    database: Database,
) -> None:
    row = await make_row(database, "ambiguous", since="25 h")
    await scheduler(database).unknown.hold_ambiguous()
    await apply(database, event(EventType.DELIVERED, row))
    assert await state_of(database, row) == "submitted"
    assert await fetch(database, "SELECT * FROM dead_letter") == []
    assert await fetch(database, "SELECT * FROM email_unsettled") == []


async def test_a_late_refusal_frees_a_row_that_a_person_was_asked_about(
    database: Database,
) -> None:
    row = await make_row(database, "ambiguous", since="25 h")
    await scheduler(database).unknown.hold_ambiguous()
    await late_outcome(database, row, "retry")
    await scheduler(database).unknown.settle_ambiguous()
    assert await state_of(database, row) == "pending"
    assert await fetch(database, "SELECT id FROM email_due") == [{"id": row.id}]
    assert await fetch(database, "SELECT * FROM dead_letter") == []
    assert await fetch(database, "SELECT * FROM email_unsettled") == []


async def test_a_late_refusal_does_not_free_a_row_that_failed_by_a_later_call(
    database: Database,
) -> None:
    row = await make_row(database, "ambiguous", since="25 h")
    await scheduler(database).unknown.hold_ambiguous()
    await execute(
        database,
        "INSERT INTO dead_letter (outbox_id, tenant, lane, class, reason) VALUES ($1, 'shop', 'transactional', 'permanent', 'refused')",
        row.id,
    )
    await late_outcome(database, row, "retry")
    await scheduler(database).unknown.settle_ambiguous()
    assert await state_of(database, row) == "failed"
    assert await fetch(database, "SELECT * FROM email_due") == []


async def test_two_replicas_ask_a_person_once(database: Database) -> None:
    for n in range(10):
        await make_row(database, "ambiguous", since="25 h", recipient=f"user{n}@example.com")
    await twice_at_once(lambda stage: stage.unknown.hold_ambiguous(), database)
    assert await execute(database, "SELECT count(*) FROM dead_letter") == 10
    assert len(await feed(database, "dead-letters")) == 10


async def test_a_failed_row_that_nobody_was_asked_about_stays_failed(database: Database) -> None:
    row = await make_row(database, "failed")
    await apply(database, event(EventType.DELIVERED, row))
    assert await state_of(database, row) == "failed"


# sweep_pending


def id_of(age_s: float, n: int) -> UUID:
    """An id of version 7 of a moment so long ago."""
    ms = int((time.time() - age_s) * 1000)
    return UUID(int=ms << 80 | 0x7 << 76 | 0x2 << 62 | n)


async def test_a_row_pending_for_long_gets_a_new_pointer_once_an_age(database: Database) -> None:
    lost = await make_row(database, id=id_of(301, 1))
    await make_row(database, id=id_of(200, 2), recipient="young@example.com")
    await make_row(database, "submitted", id=id_of(301, 3), recipient="done@example.com")
    waits = await make_row(database, id=id_of(301, 4), recipient="waits@example.com")
    await make_due(database, waits, ago="-60 s")
    stage = scheduler(database)
    await stage.sweep_pending()
    await stage.sweep_pending()
    pointers = await feed(database)
    assert [json.loads(p["payload"])["id"] for p in pointers] == [str(lost.id)]


async def test_a_row_that_stays_pending_is_woken_again_at_growing_ages(
    database: Database,
) -> None:
    await make_row(database, id=id_of(5000, 1))
    await scheduler(database).sweep_pending()
    # 300 s, 1,200 s and 4,800 s have passed.
    assert len(await feed(database)) == 3


async def test_two_replicas_sweep_a_row_once(database: Database) -> None:
    for n in range(30):
        await make_row(database, id=id_of(400, n), recipient=f"user{n}@example.com")
    await twice_at_once(Scheduler.sweep_pending, database)
    assert len(await feed(database)) == 30


async def test_a_sweep_goes_on_where_it_was_also_within_one_millisecond(
    database: Database,
) -> None:
    first = id_of(400, 0).int
    for n in range(7):
        await make_row(database, id=UUID(int=first | n), recipient=f"user{n}@example.com")
    store = ScheduleStore(database)
    await store.make_duty("sweep")
    age = timedelta(seconds=300)
    seen = [(await store.sweep_pending("sweep", age=age, limit=3)).seen for _ in range(4)]
    assert seen == [3, 3, 1, 0]
    assert len(await feed(database)) == 7


# heartbeat, suppressions, partitions


async def test_one_replica_puts_a_heartbeat_into_each_partition(database: Database) -> None:
    await twice_at_once(Scheduler.heartbeat, database)
    beats = await feed(database)
    partitions = [(murmur2(b["aggregateid"].encode()) & 0x7FFFFFFF) % 3 for b in beats]
    assert sorted(partitions) == [0, 1, 2]
    for beat in beats:
        assert (beat["aggregatetype"], beat["type"]) == ("suppressions", "heartbeat")
        assert beat["aggregateid"].startswith("heartbeat-")
        assert len(beat["aggregateid"]) == 32
        assert datetime.fromisoformat(json.loads(beat["payload"])["heartbeat"]).tzinfo is UTC


@pytest.mark.parametrize(("ahead", "beats"), [("1 h", 3), ("1.5 s", 0)])
async def test_a_clock_that_was_set_back_does_not_stop_the_heartbeats(
    database: Database, ahead: str, beats: int
) -> None:
    await execute(
        database,
        "INSERT INTO scheduler_duty (name, next_at) VALUES ('heartbeat', clock_timestamp() + $1::text::interval)",
        ahead,
    )
    await scheduler(database).heartbeat()
    assert len(await feed(database)) == beats


async def test_a_clock_that_was_set_back_does_not_stop_a_duty(database: Database) -> None:
    store, every = ScheduleStore(database), timedelta(seconds=60)
    assert await store.take_duty("read_account", every)
    assert not await store.take_duty("read_account", every)
    await execute(database, "UPDATE scheduler_duty SET next_at = next_at + interval '1 h'")
    assert await store.take_duty("read_account", every)
    assert not await store.take_duty("read_account", every)


async def test_a_suppression_whose_time_is_over_is_removed_and_announced(
    database: Database,
) -> None:
    await execute(
        database,
        """INSERT INTO suppression (recipient_key, reason, expires) VALUES
             (repeat('a', 32), 'soft-bounces', clock_timestamp() - interval '1 s'),
             (repeat('b', 32), 'soft-bounces', clock_timestamp() + interval '1 h'),
             (repeat('b', 32), 'manual', NULL)""",
    )
    await execute(database, "TRUNCATE outbox_feed")
    await twice_at_once(Scheduler.expire_suppressions, database)
    assert await execute(database, "SELECT count(*) FROM suppression") == 2
    assert [(f["aggregateid"], f["payload"]) for f in await feed(database)] == [("a" * 32, None)]


async def test_partitions_of_the_feed_that_are_missing_are_made(database: Database) -> None:
    names = await fetch(
        database,
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'outbox_feed'::regclass AND c.relname <> 'outbox_feed_default' ORDER BY 1",
    )
    await execute(database, f"DROP TABLE {names[-1]['relname']}")
    await twice_at_once(Scheduler.make_feed_partitions, database)
    assert await execute(database, "SELECT to_regclass($1) IS NOT NULL", names[-1]["relname"])


async def test_a_busy_feed_is_left_alone_until_later(database: Database) -> None:
    name = await execute(
        database, "SELECT max(relname) FROM pg_class WHERE relname ~ '^outbox_feed_2'"
    )
    await execute(database, f"DROP TABLE {name}")
    async with database.transaction() as connection:
        await connection.execute("LOCK TABLE outbox_feed IN SHARE MODE")
        assert await ScheduleStore(database).make_feed_partitions(3) is None
    assert await ScheduleStore(database).make_feed_partitions(3) == 1


# read_account


async def poll(database: Database, *answers: SendingAccount | Unavailable) -> None:
    account = ScriptedAccount(*answers)
    step = AccountPoll(ScheduleStore(database), account, factor=0.95)
    for _ in answers:
        await execute(database, "DELETE FROM scheduler_duty")
        await step.read_account()


async def rate(database: Database) -> list[dict[str, Any]]:
    return await fetch(database, "SELECT scope, per_second FROM send_rate")


async def pauses(database: Database) -> list[dict[str, Any]]:
    return await fetch(database, "SELECT scope, who, reason FROM pause ORDER BY who")


async def test_the_rate_is_what_ses_says_times_the_factor(database: Database) -> None:
    await poll(database, HEALTHY)
    assert await rate(database) == [{"scope": "eu-central-1", "per_second": 95.0}]
    assert await pauses(database) == []


async def test_one_replica_reads_the_account_in_a_minute(database: Database) -> None:
    account = ScriptedAccount(HEALTHY)
    replicas = [AccountPoll(ScheduleStore(database), account, factor=1) for _ in range(2)]
    await asyncio.gather(*(replica.read_account() for replica in replicas for _ in range(3)))
    assert account.reads == 1


@pytest.mark.parametrize("nonsense", [0.0, -1.0, float("nan"), float("inf"), None])
async def test_a_rate_that_makes_no_sense_changes_nothing(
    database: Database, nonsense: float | None
) -> None:
    strange = SendingAccount(
        max_send_rate=nonsense, sending_enabled=True, enforcement_status="HEALTHY"
    )
    await poll(database, HEALTHY, strange)
    assert await rate(database) == [{"scope": "eu-central-1", "per_second": 95.0}]


async def test_an_account_that_cannot_be_read_changes_nothing(database: Database) -> None:
    await poll(database, HEALTHY, Unavailable("SES: away"))
    assert await rate(database) == [{"scope": "eu-central-1", "per_second": 95.0}]
    assert await pauses(database) == []


STOPPED = [
    SendingAccount(max_send_rate=100.0, sending_enabled=True, enforcement_status="SHUTDOWN"),
    SendingAccount(max_send_rate=100.0, sending_enabled=False, enforcement_status="HEALTHY"),
]


@pytest.mark.parametrize("stopped", STOPPED)
async def test_a_stopped_account_is_paused_until_it_is_healthy(
    database: Database, stopped: SendingAccount
) -> None:
    await poll(database, HEALTHY, stopped)
    (pause,) = await pauses(database)
    assert (pause["scope"], pause["who"]) == ("account", "account poll")
    left = await execute(
        database, "SELECT extract(epoch FROM until - clock_timestamp())::float8 FROM pause"
    )
    assert 110 < left <= 120
    await poll(database, HEALTHY)
    assert await pauses(database) == []


async def test_a_pause_of_somebody_else_is_not_lifted(database: Database) -> None:
    await execute(
        database,
        "INSERT INTO pause (scope, value, reason, who) VALUES ('account', 'eu-central-1', 'campaign', 'ann')",
    )
    await poll(database, STOPPED[0], HEALTHY)
    assert await pauses(database) == [{"scope": "account", "who": "ann", "reason": "campaign"}]


# measure


async def test_the_oldest_pending_row_of_each_lane_is_found(database: Database) -> None:
    now = datetime.now(UTC)
    for n in range(30):
        await make_row(database, "submitted", id=id_of(900 - n, n), recipient=f"u{n}@example.com")
    row = await make_row(database, id=id_of(700, 1), recipient="o@example.com")
    created = now - timedelta(seconds=700)
    await execute(database, "UPDATE email_outbox SET created = $2 WHERE id = $1", row.id, created)
    await make_row(
        database,
        id=id_of(800, 2),
        send_after=now + timedelta(hours=1),
        recipient="scheduled@example.com",
    )
    store = ScheduleStore(database)
    search = OldestPendingSearch(store, Lane.TRANSACTIONAL)
    assert await search.age(now) == pytest.approx(700, abs=30)
    assert await OldestPendingSearch(store, Lane.BULK).age(now) == 0.0
    await execute(database, "UPDATE email_outbox SET state = 'cancelled' WHERE id = $1", row.id)
    assert await search.age(now) == 0.0


async def test_the_backlog_is_counted(database: Database) -> None:
    await make_due(database, await make_row(database))
    await make_row(database, "sending", recipient="b@example.com")
    await make_row(database, "ambiguous", recipient="c@example.com")
    await make_row(database, "ambiguous", since="25 h", recipient="d@example.com")
    stage = scheduler(database)
    await stage.heartbeat()
    await stage.unknown.hold_ambiguous()
    found = await ScheduleStore(database).backlog(heartbeats_every=timedelta(seconds=1))
    assert (found.due, found.leases, found.ambiguous) == (1, 1, 1)
    assert (found.held, found.dead_letters) == (1, 1)
    assert found.heartbeat_age is not None
    assert 0 <= found.heartbeat_age < 5
    await stage.measure()


# the life of the stage


async def test_the_stage_runs_every_duty_and_stops(database_dsn: str) -> None:
    own = Database(database_dsn, pool_size=4, timeout_s=20, name="scheduler")
    async with Database(database_dsn, pool_size=2, timeout_s=20, name="test") as database:
        row = await make_row(database, "sending", lease_s=-1)
        stage = scheduler(own)
        await stage.start()
        run = asyncio.create_task(stage.run())
        deadline = time.monotonic() + 60
        while await state_of(database, row) != "ambiguous" or not await rate(database):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        while len(await feed(database, "suppressions")) < 6:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert stage.health.missing() == {}
        await stage.stop()
        await stage.stop()
        await asyncio.wait_for(run, 30)
