"""The sender when answers are lost, partitions move, it is told to stop, or a server is away."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiokafka.conn import AIOKafkaConnection
from aiokafka.protocol.metadata import MetadataRequest

import devservers
from streams.adapters.kafka import create_topics
from streams.adapters.kafka_pointers import KafkaPointers
from streams.adapters.migrations import migrate
from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Database
from streams.domain.attempts import AttemptId, Claim, ClaimRequest, Outcome, Recorded
from streams.domain.errors import Unavailable
from streams.domain.topics import Lane, Topics
from streams.sender import Sender
from tests.conftest import SALT
from tests.integration.sender_rig import Rig, ready, rig_on, running, stopped, until
from tests.integration.sender_rows import insert, one, row_of

pytestmark = pytest.mark.servers


@pytest.fixture
async def rig(
    servers: devservers.Servers, database_dsn: str, database: Database, topics: Topics
) -> AsyncIterator[Rig]:
    async with rig_on(servers.kafka.bootstrap_servers, database_dsn, database, topics) as made:
        yield made


class LosingStore(OutboxStore):
    """Does what it is asked and loses the answer, as often as it is told."""

    def __init__(self, database: Database, *, claims: int = 0, outcomes: int = 0) -> None:
        super().__init__(database, max_attempts=5)
        self.claims = claims
        self.outcomes = outcomes
        self.refused = 0

    async def claim(self, requests: Sequence[ClaimRequest], *, lease_s: float) -> list[Claim]:
        answers = await super().claim(requests, lease_s=lease_s)
        if self.claims > 0:
            self.claims -= 1
            raise Unavailable("the answer was lost")
        return answers

    async def record(self, outcomes: Sequence[Outcome]) -> dict[AttemptId, Recorded]:
        if self.outcomes > 0:
            self.outcomes -= 1
            self.refused += 1
            if self.refused % 2:
                raise Unavailable("the statement never came")
            await super().record(outcomes)
            raise Unavailable("the answer was lost")
        return await super().record(outcomes)


async def test_claims_whose_answer_was_lost_are_given_back_and_sent_once(rig: Rig) -> None:
    await rig.fill(40)
    sender = rig.sender(outbox=lambda pool: LosingStore(pool, claims=3))
    async with running(sender):
        await rig.all_in("submitted", 40)
        await rig.all_committed()
    assert not rig.sent_twice()
    attempts = await one(
        rig.database,
        "SELECT count(*) AS n, max(attempts) AS most FROM email_outbox WHERE attempts = 1",
    )
    assert attempts == {"n": 40, "most": 1}
    assert await one(rig.database, "SELECT * FROM email_unsettled") is None


async def test_outcomes_that_cannot_be_written_are_kept_until_they_are(rig: Rig) -> None:
    stores: list[LosingStore] = []

    def losing(pool: Database) -> LosingStore:
        stores.append(LosingStore(pool, outcomes=10**9))
        return stores[0]

    await rig.fill(20)
    sender = rig.sender(outbox=losing)
    async with running(sender):
        await until(lambda: len(rig.ses.accepted) == 20 and stores[0].refused >= 3)
        assert await rig.uncommitted() > 0
        stores[0].outcomes = 0
        await rig.all_in("submitted", 20)
        await rig.all_committed()
    assert not rig.sent_twice()


async def test_stop_finishes_calls_under_way_and_gives_the_rest_back(rig: Rig) -> None:
    await rig.rate(40.0)
    rig.ses.delay_s = 0.5
    await rig.fill(100)
    sender = rig.sender()
    async with running(sender):
        await until(lambda: len(rig.ses.calls) >= 10)
    called = len(rig.ses.calls)
    states = await rig.states()
    assert states["submitted"] == called == len(rig.ses.accepted)
    assert states["pending"] == 100 - called
    assert await one(rig.database, "SELECT * FROM email_lease") is None
    rig.ses.delay_s = 0.0
    await rig.rate()
    async with running(rig.sender()):
        await rig.all_in("submitted", 100)
    assert not rig.sent_twice()


async def test_call_that_outlasts_the_drain_is_left_to_its_lease(rig: Rig) -> None:
    rig.ses.delay_s = 8.0
    id_ = await insert(rig.database)
    async with running(rig.sender(read_timeout_s=15.0, drain_s=2.0)):
        await until(lambda: len(rig.ses.calls) == 1)
    row = await row_of(rig.database, id_)
    lease = await one(rig.database, "SELECT attempt_id FROM email_lease")
    assert row["state"] == "sending"
    assert lease == {"attempt_id": row["attempt_id"]}


async def test_stop_before_start_and_twice_is_harmless(rig: Rig) -> None:
    sender = rig.sender()
    await sender.stop()
    async with running(sender):
        await ready(sender)
    await sender.stop()


async def test_stop_while_it_joins_the_group_leaves_no_connection_open(
    servers: devservers.Servers, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[AIOKafkaConnection] = []
    asked = asyncio.Event()
    connect, send = AIOKafkaConnection.connect, AIOKafkaConnection.send

    async def noted(connection: AIOKafkaConnection) -> Any:
        made.append(connection)
        return await connect(connection)

    async def late(connection: AIOKafkaConnection, request: Any, **options: Any) -> Any:
        if isinstance(request, MetadataRequest):
            asked.set()
            await asyncio.sleep(0.2)
        return await send(connection, request, **options)

    monkeypatch.setattr(AIOKafkaConnection, "connect", noted)
    monkeypatch.setattr(AIOKafkaConnection, "send", late)
    pointers = KafkaPointers(servers.kafka.bootstrap_servers, topics, client_id="sender")
    joining = asyncio.create_task(pointers.start(on_revoked=ignored, on_assigned=ignored))
    await asked.wait()
    await stopped(joining)
    await pointers.stop()
    assert made
    assert not any(connection.connected() for connection in made)


async def ignored(_: frozenset[int]) -> None:
    pass


async def test_partitions_move_between_senders_and_nothing_is_sent_twice(rig: Rig) -> None:
    rig.ses.delay_s = 0.05
    await rig.rate(150.0)
    ids = await rig.fill(300)
    first, second, third = rig.sender(), rig.sender(), rig.sender()
    async with running(first):
        await until(lambda: len(rig.ses.calls) >= 30)
        async with running(second):
            await until(lambda: len(rig.ses.calls) >= 120)
            async with running(third):
                await until(lambda: len(rig.ses.calls) >= 200)
        await rig.all_in("submitted", 300)
        await rig.all_committed()
    assert sorted(rig.ses.accepted) == sorted(map(str, ids))


async def test_senders_beyond_the_partitions_are_ready_and_idle(rig: Rig) -> None:
    senders = [rig.sender() for _ in range(4)]
    async with running(*senders):
        await ready(*senders)
        await rig.fill(30)
        await rig.all_in("submitted", 30)
        await ready(*senders)


async def test_suppression_that_arrives_between_claim_and_call_is_seen(rig: Rig) -> None:
    """Permits lie far ahead, so that the claim waits for its slot while the suppression comes in."""
    await rig.rate(1.5)
    sender = rig.sender()
    async with running(sender):
        await ready(sender)
        key = (await one(rig.database, "SELECT recipient_key('ann@example.com') AS key"))["key"]
        sender._calls.pace.prepared(1.0)
        id_ = await insert(rig.database)

        async def claimed() -> bool:
            state: str = (await row_of(rig.database, id_))["state"]
            return state == "sending"

        await until(claimed)
        async with rig.database.connection() as connection:
            await connection.execute(
                "INSERT INTO suppression (recipient_key, reason) VALUES ($1, 'complaint')", key
            )
        await rig.all_in("suppressed", 1)
    assert rig.ses.calls == []
    assert (await row_of(rig.database, id_))["attempts"] == 0


async def test_process_that_is_always_late_still_sends_and_keeps_the_rate(rig: Rig) -> None:
    """Its loop stands still for 150 ms again and again, three times as long as a call may normally be late."""

    async def stand_still() -> None:
        while True:
            time.sleep(0.15)  # noqa: ASYNC251 the point of the test
            await asyncio.sleep(0.03)

    await rig.rate(40.0)
    await rig.fill(60)
    standing = asyncio.create_task(stand_still())
    try:
        async with running(rig.sender()):
            await rig.all_in("submitted", 60, 60)
    finally:
        await stopped(standing)
    times = rig.ses.times
    assert max(sum(begin <= at < begin + 1 for at in times) for begin in times) <= 44
    assert not rig.sent_twice()


# Servers away ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def fragile(own_servers: devservers.Servers) -> AsyncIterator[Rig]:
    """A rig on servers that the test may stop."""
    name = f"fragile_{os.urandom(4).hex()}"
    dsn = own_servers.postgres.create_database(name)
    topics = Topics(prefix=f"{name}.")
    kafka = own_servers.kafka.bootstrap_servers
    await create_topics(kafka, topics, partitions=3, replication_factor=1)
    async with Database(dsn, pool_size=4, timeout_s=5, name="test") as database:
        await migrate(database, salt=SALT, slot=None)
        async with rig_on(kafka, dsn, database, topics) as made:
            yield made


async def _in_thread(work: Any) -> None:
    await asyncio.get_running_loop().run_in_executor(None, work)


@pytest.mark.parametrize("server", ["postgres", "kafka"])
async def test_server_that_is_away_for_a_while_is_survived(
    own_servers: devservers.Servers, fragile: Rig, server: str
) -> None:
    rig, away = fragile, getattr(own_servers, server)
    rig.ses.delay_s = 0.02
    await rig.rate(60.0)
    ids = await rig.fill(200)
    sender = rig.sender()
    async with running(sender):
        await until(lambda: len(rig.ses.calls) >= 40)
        await _in_thread(away.stop)
        await _failing(sender)
        await _in_thread(away.start)
        await rig.all_in("submitted", 200, 60)
        await ready(sender, seconds=30)
        await rig.all_committed(30)
    assert sorted(rig.ses.accepted) == sorted(map(str, ids))


async def _failing(sender: Sender) -> None:
    """Some duty notices, and the outage lasts a little longer."""
    await until(lambda: bool(sender.health.missing()), 40)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 3.0
    await until(lambda: loop.time() > deadline)
    assert not sender.health.stuck()


async def test_pointers_wait_while_the_lane_is_full(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fetching of the full lane pauses, the other lane goes on, and all of it is sent in the end."""
    monkeypatch.setattr("streams.sending.pointer_intake.MOST_WAITING", 20)
    monkeypatch.setattr("streams.sending.pointer_intake.BATCH", 10)
    async with rig.database.connection() as connection:
        await connection.execute(
            "INSERT INTO pause (scope, value, reason, who) VALUES ('lane', 'nothing', 'test', 'test')"
        )
    await rig.rate(100.0)
    await rig.fill(150, lane="bulk")
    sender = rig.sender()
    most = 0
    async with running(sender):
        await until(lambda: len(rig.ses.calls) >= 10)
        await insert(rig.database, recipient="ann@example.com")
        while (await rig.states())["submitted"] < 151:
            most = max(most, sender._intake.waiting(Lane.BULK))
            await asyncio.sleep(0.01)
        await rig.all_committed()
    assert 10 <= most < 40
    assert len(rig.ses.accepted) == 151
