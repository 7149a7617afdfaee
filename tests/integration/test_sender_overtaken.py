"""A suppression whose record was overtaken by an older one in the topic, and topics that no longer fit together."""

from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

import devservers
from streams.adapters.postgres import Database
from streams.domain.topics import Topics
from tests.integration.outbox_rows import execute, fetch
from tests.integration.sender_rig import Rig, ready, rig_on, running, until

pytestmark = pytest.mark.servers


@pytest.fixture
async def rig(
    servers: devservers.Servers, database_dsn: str, database: Database, topics: Topics
) -> AsyncIterator[Rig]:
    async with rig_on(servers.kafka.bootstrap_servers, database_dsn, database, topics) as made:
        yield made


async def test_recipient_whose_last_record_is_an_older_one_is_put_into_the_feed_again(
    rig: Rig,
) -> None:
    key = str(
        await execute(
            rig.database,
            "INSERT INTO suppression (recipient_key, reason) VALUES (recipient_key('ann@example.com'), 'complaint') "
            "RETURNING recipient_key",
        )
    )
    statement = "SELECT payload, seq FROM outbox_feed WHERE aggregateid = $1 ORDER BY seq"
    async with running(rig.sender()) as (sender,):
        await until(lambda: any(found.decode() == key for _, found, _ in rig.hand.carried), 60)
        await ready(sender, seconds=60)
        # As a producer of the relay does that was given up and still had a batch on its way.
        await rig.hand.send(rig.topics.suppressions, key.encode(), None, sequence=0)

        async def told_again() -> bool:
            return len(await fetch(rig.database, statement, key)) == 2

        await until(told_again, 90)
        first, again = await fetch(rig.database, statement, key)
        assert again["payload"] == first["payload"]
        await rig.fill(1)
        await rig.all_in("submitted", 1, 60)
    assert len(await fetch(rig.database, statement, key)) == 2


async def test_partitions_that_one_topic_got_alone_stop_the_sender_and_say_what_to_do(
    rig: Rig,
) -> None:
    async with running(rig.sender()) as (sender,):
        await ready(sender, seconds=60)
        admin = AIOKafkaAdminClient(bootstrap_servers=rig.bootstrap_servers)
        await admin.start()
        try:
            await admin.create_partitions({rig.topics.suppressions: NewPartitions(total_count=4)})
        finally:
            await admin.close()
        # Clients ask for what there is now and then.
        await until(
            lambda: (
                "numbers of partitions differ"
                in sender.health.missing().get("suppression_table", "")
            ),
            90,
        )
        assert "suppressions republish" in sender.health.missing()["suppression_table"]
        await rig.fill(3)
        await until(lambda: len(rig.hand.carried) >= 3, 60)
        assert rig.ses.calls == []
