"""Whatever else comes and goes, a complaint stays: in the table, the feed, the topic and the sender's memory."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final

import orjson
import pytest

import devservers
from streams.adapters.facts_store import FactsStore
from streams.adapters.kafka_suppressions import KafkaSuppressions
from streams.adapters.postgres import Database
from streams.adapters.schedule_store import ScheduleStore
from streams.domain.delivery_events import DeliveryEvent, EventType
from streams.domain.partitioner import partition_of
from streams.domain.topics import Lane, Topics
from streams.folding.fold import fold
from streams.suppression_table import SuppressionTable
from tests.conftest import PARTITIONS
from tests.integration.outbox_rows import Row, bounced, complained, event, execute, make_row
from tests.integration.relay_setup import Reader, Setup, eventually, streaming
from tests.integration.suppression_truth import keys_whose_last_record_differs, truth

pytestmark = pytest.mark.servers

Story = Callable[[Database, Row], Awaitable[None]]


async def fold_events(database: Database, *events: DeliveryEvent) -> None:
    for one in events:
        await FactsStore(database).transact(partial(fold, events=[one]))


async def opt_out_after(database: Database, row: Row) -> None:
    await fold_events(database, complained(row, at_s=1), event(EventType.UNSUBSCRIBED, row, at_s=2))


async def opt_out_before(database: Database, row: Row) -> None:
    await fold_events(database, event(EventType.UNSUBSCRIBED, row, at_s=1), complained(row, at_s=2))


async def opt_out_is_lifted(database: Database, row: Row) -> None:
    await opt_out_after(database, row)
    lifted = await execute(
        database,
        "SELECT count(*) FROM lift_suppressions(ARRAY[$1], ARRAY['shop'], ARRAY['bulk'], ARRAY['unsubscribed'], 'ann', 'she asked')",
        row.key,
    )
    assert lifted == 1


async def soft_bounces_expire(database: Database, row: Row) -> None:
    await fold_events(database, complained(row, at_s=1))
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, tenant, reason, evidence_id, evidence_at, expires) VALUES ($1, 'shop', 'soft-bounces', 'soft', now(), clock_timestamp() + interval '50 ms') RETURNING true",
        row.key,
    )
    schedule = ScheduleStore(database)

    async def over() -> bool:
        await schedule.expire_suppressions(100)
        left = "SELECT count(*) = 0 FROM suppression WHERE reason = 'soft-bounces' AND recipient_key = $1"
        return bool(await execute(database, left, row.key))

    await eventually(over)


async def hard_bounce_is_withdrawn(database: Database, row: Row) -> None:
    await fold_events(database, bounced(row, at_s=1), complained(row, at_s=2))
    await execute(
        database,
        "DELETE FROM suppression WHERE recipient_key = $1 AND reason = 'hard-bounce' RETURNING true",
        row.key,
    )


async def unattributed_complaint_finds_its_tenant(database: Database, row: Row) -> None:
    """What suppressed for every tenant is withdrawn when the message is known, and suppresses for its own."""
    untold = complained(row, at_s=1, tagged=False, provider_message_id=f"p-{row.id}")
    await fold_events(database, untold)
    await execute(
        database,
        "UPDATE email_attempt SET provider_message_id = $2 WHERE outbox_id = $1 RETURNING true",
        row.id,
        f"p-{row.id}",
    )
    await fold_events(database, untold)


async def delivery_comes_late(database: Database, row: Row) -> None:
    await fold_events(database, complained(row, at_s=1), event(EventType.DELIVERED, row, at_s=60))


async def manual_entry_is_removed(database: Database, row: Row) -> None:
    await fold_events(database, complained(row, at_s=1))
    for statement in (
        "INSERT INTO suppression (recipient_key, reason) VALUES ($1, 'manual') RETURNING true",
        "DELETE FROM suppression WHERE recipient_key = $1 AND reason = 'manual' RETURNING true",
    ):
        await execute(database, statement, row.key)


STORIES: Final[tuple[Story, ...]] = (
    opt_out_after,
    opt_out_before,
    opt_out_is_lifted,
    soft_bounces_expire,
    hard_bounce_is_withdrawn,
    unattributed_complaint_finds_its_tenant,
    delivery_comes_late,
    manual_entry_is_removed,
)


@pytest.fixture
async def setup(
    servers: devservers.Servers, topics: Topics, database_dsn: str
) -> AsyncIterator[Setup]:
    made = Setup(dsn=database_dsn, bootstrap_servers=servers.kafka.bootstrap_servers, topics=topics)
    await made.make_slot()
    async with streaming(made.relay()):
        yield made


async def test_a_complaint_is_never_lost(setup: Setup, database: Database) -> None:
    rows = {
        story: await make_row(database, "submitted", recipient=f"{story.__name__}@example.com")
        for story in STORIES
    }
    for story, row in rows.items():
        await story(database, row)
    assert await keys_whose_last_record_differs(database) == 0
    held = await truth(database)
    for story, row in rows.items():
        assert complaint_of_shop(held[row.key]), story.__name__
    topic = setup.topics.suppressions
    last = int(await setup.value("SELECT max(seq) FROM outbox_feed"))
    async with Reader(setup.bootstrap_servers, topic) as reader:
        records = await reader.read(
            lambda found: any(int(dict(r.headers)["seq"]) == last for r in found)
        )
    values = {r.key.decode(): r.value for r in records}
    for story, row in rows.items():
        value = values[row.key]
        assert value is not None, story.__name__
        assert orjson.loads(value) == held[row.key], story.__name__
    await in_memory(setup, list(rows.values()))


def complaint_of_shop(value: dict[str, Any]) -> bool:
    return any(s["reason"] == "complaint" and s["tenant"] == "shop" for s in value["suppressions"])


async def in_memory(setup: Setup, rows: list[Row]) -> None:
    """The sender's table stops both lanes of the tenant, whatever else each recipient's set holds."""
    table = SuppressionTable(
        KafkaSuppressions(setup.bootstrap_servers, setup.topics.suppressions, client_id="test"),
        staleness_s=60.0,
    )
    try:
        table.own(frozenset(range(PARTITIONS)))
        deadline = time.monotonic() + 20
        while "no heartbeat" not in (table.missing() or ""):
            assert time.monotonic() < deadline, table.missing()
            await table.follow()
        for row in rows:
            partition = partition_of(row.key.encode(), PARTITIONS)
            for lane in Lane:
                assert table.hit(partition, row.key, "shop", lane) is not None, (row, lane)
            others = [table.hit(partition, row.key, "other", lane) for lane in Lane]
            assert others == [None, None], row
    finally:
        await table.stop()
