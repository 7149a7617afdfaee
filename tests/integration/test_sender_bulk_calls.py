"""Bulk calls on real PostgreSQL and Kafka against the simulator: each message has its own outcome, and none goes out twice."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

import devservers
from streams.adapters.facts_store import FactsStore
from streams.adapters.postgres import Database
from streams.adapters.ses import SesApi
from streams.domain.delivery_events import DeliveryEvent
from streams.domain.ses_answers import SEND_BULK_EMAIL, Missed, SignedCall
from streams.domain.ses_events import read_notice
from streams.domain.topics import Topics
from streams.folding.fold import fold
from streams.runtime import metrics
from streams.sender import Sender
from streams.simulator.ledger import Acceptance, Answer
from streams.simulator.server import Simulator
from tests.conftest import SALT
from tests.integration.sender_rig import REGION, Rig, rig_on, running, until
from tests.integration.sender_rows import one
from tests.simulator_rig import Control, Endpoint, endpoint, quick_settings

pytestmark = pytest.mark.servers
MANY = 100
PATIENCE_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A rig whose SES is the simulator, and somebody who hears its events."""

    rig: Rig
    simulator: Simulator
    control: Control
    listening: Endpoint

    @property
    def accepted(self) -> Sequence[Acceptance]:
        return self.simulator.ledger.acceptances

    @property
    def operations(self) -> Counter[str]:
        """Of the messages that were accepted."""
        return Counter(acceptance.submission.operation for acceptance in self.accepted)

    @property
    def times_accepted(self) -> Counter[str]:
        """By outbox id."""
        return Counter(dict(acceptance.submission.tags)["outbox"] for acceptance in self.accepted)

    def events(self) -> list[DeliveryEvent]:
        """What SES has told of the messages until now."""
        now = datetime.now(UTC)
        return [
            event
            for notification in self.listening.notifications
            for event in read_notice(
                notification.envelope["Message"], salt=SALT, received=now
            ).events
        ]


def bulk_calls(result: str) -> float:
    value: float = metrics.SENDER_BULK_CALLS.labels(result=result)._value.get()
    return value


def bulk_sender(scene: Scene) -> Sender:
    """Patient, so that a busy machine is no outage."""
    return scene.rig.sender(bulk=True, connect_timeout_s=15.0, read_timeout_s=15.0, lease_s=60.0)


async def carried(scene: Scene, count: int) -> None:
    """All rows wait in Kafka, so that the first batch of the sender has several."""
    await until(lambda: len(scene.rig.hand.carried) >= count, PATIENCE_S)


def fault_of_the_first_bulk_call(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, **fault: Any
) -> None:
    """Calls go one at a time until that one has ended, so that no other gets its fault."""
    original = SesApi.send
    one_at_a_time = asyncio.Lock()
    done = False

    async def send(self: SesApi, call: SignedCall, **how: Any) -> Any:
        nonlocal done
        if done:
            return await original(self, call, **how)
        async with one_at_a_time:
            if not done and call.path == SEND_BULK_EMAIL:
                await scene.control.post("faults", faults=[fault | {"next": 1}])
                try:
                    seen = await original(self, call, **how)
                    done = not isinstance(seen, Missed)
                finally:
                    if not done:  # it was not made, and the fault is no other call's
                        await scene.control.post("faults", faults=[])
                return seen
            return await original(self, call, **how)

    monkeypatch.setattr(SesApi, "send", send)


async def outcomes(scene: Scene) -> Counter[str]:
    """Of the attempts."""
    async with scene.rig.database.connection() as connection:
        rows = await connection.fetch(
            "SELECT outcome, count(*) AS n FROM email_attempt GROUP BY outcome"
        )
    return Counter({row["outcome"]: row["n"] for row in rows})


async def charged_otherwise(scene: Scene) -> int:
    """Messages that were charged for anything but the attempt that was accepted and those that are to be tried again."""
    row = await one(
        scene.rig.database,
        "SELECT count(*) AS n FROM email_outbox AS o WHERE o.state = 'submitted' AND o.attempts <> 1 + ("
        "SELECT count(*) FROM email_attempt AS e WHERE e.outbox_id = o.id AND e.outcome = 'retry')",
    )
    return int(row["n"])


@pytest.fixture
async def scene(
    servers: devservers.Servers,
    database_dsn: str,
    database: Database,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Scene]:
    async with (
        rig_on(
            servers.kafka.bootstrap_servers, database_dsn, database, topics, patch=monkeypatch
        ) as rig,
        endpoint() as listening,
        aiohttp.ClientSession() as session,
        Simulator(quick_settings(subscribe=(listening.url,), rate=1e6)) as simulator,
    ):
        listening.simulator_url = simulator.url
        monkeypatch.setenv("AWS_ENDPOINT_URL_SESV2", simulator.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        await rig.rate(1e6)
        yield Scene(
            rig=rig,
            simulator=simulator,
            control=Control(session, simulator.url),
            listening=listening,
        )


async def test_bulk_rows_share_calls_and_transactional_rows_have_their_own(scene: Scene) -> None:
    ids = await scene.rig.fill(MANY, lane="bulk", subject="{{name}} & {{{text}}} <b>")
    urgent = await scene.rig.fill(10)
    await carried(scene, MANY + 10)
    answered = bulk_calls("answered")
    async with running(bulk_sender(scene)):
        await scene.rig.all_in("submitted", MANY + 10, PATIENCE_S)
        await scene.rig.all_committed(PATIENCE_S)
    assert scene.times_accepted == Counter(str(id_) for id_ in ids + urgent)
    alone = {
        dict(a.submission.tags)["outbox"]
        for a in scene.accepted
        if a.submission.operation == "SendEmail"
    }
    assert {str(id_) for id_ in urgent} <= alone
    shared = scene.operations["SendBulkEmail"]
    assert shared >= 2
    assert 1 <= bulk_calls("answered") - answered <= shared / 2
    subjects = {a.submission.subject for a in scene.accepted}
    assert subjects == {"{{name}} & {{{text}}} <b>", "Hello"}
    # n recipients take n permits.
    granted = await one(
        scene.rig.database, "SELECT granted FROM send_rate WHERE scope = $1", REGION
    )
    assert granted["granted"] >= MANY + 10


async def test_entries_of_a_call_end_each_in_its_own_way(scene: Scene) -> None:
    await scene.control.post(
        "bulk",
        entries=[
            {"match": "*", "status": "MESSAGE_REJECTED", "next": 2},
            {"match": "*", "status": "TRANSIENT_FAILURE", "next": 2},
            {"match": "*", "status": "ACCOUNT_THROTTLED", "next": 1},
            {"match": "*", "status": "SOMETHING_NEW", "next": 1},
        ],
    )
    await scene.rig.fill(MANY, lane="bulk")
    await carried(scene, MANY)
    async with running(bulk_sender(scene)):
        await scene.rig.all_in("submitted", MANY - 3, PATIENCE_S)
    assert await scene.rig.states() == {"submitted": MANY - 3, "failed": 2, "ambiguous": 1}
    assert max(scene.times_accepted.values()) == 1
    async with scene.rig.database.connection() as connection:
        letters = await connection.fetch("SELECT class, reason FROM dead_letter")
    assert {row["class"] for row in letters} == {"message-rejected"}
    assert all("MESSAGE_REJECTED" in row["reason"] for row in letters)
    least = Counter({"permanent": 2, "retry": 2, "throttled": 1, "unknown": 1})
    assert await outcomes(scene) >= least
    assert await charged_otherwise(scene) == 0


async def test_a_lost_answer_leaves_all_its_messages_unknown_until_events_settle_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault_of_the_first_bulk_call(scene, monkeypatch, when="after", lie="close")
    ids = await scene.rig.fill(MANY, lane="bulk")
    await carried(scene, MANY)
    lost = bulk_calls("unknown")
    async with running(bulk_sender(scene)):
        await until(lambda: len(scene.accepted) == MANY, PATIENCE_S)
        unknown = [a for a in scene.accepted if a.answer is not Answer.SENT]
        assert len(unknown) >= 2
        await scene.rig.all_in("ambiguous", len(unknown), PATIENCE_S)
        await scene.rig.all_in("submitted", MANY - len(unknown), PATIENCE_S)
    assert bulk_calls("unknown") - lost == 1
    await scene.control.quiet(within_s=PATIENCE_S)
    events = scene.events()
    await FactsStore(scene.rig.database).transact(lambda t: fold(t, events=events))
    await scene.rig.all_in("submitted", MANY, PATIENCE_S)
    assert scene.times_accepted == Counter(str(id_) for id_ in ids)


@pytest.mark.parametrize(
    ("code", "status", "result"),
    [("TooManyRequestsException", 429, "throttled"), ("BadRequestException", 400, "refused")],
)
async def test_a_call_that_is_refused_as_a_whole_costs_its_messages_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, code: str, status: int, result: str
) -> None:
    """Not an attempt, and not the rate of anybody else."""
    fault_of_the_first_bulk_call(
        scene, monkeypatch, when="before", lie="error", status=status, code=code
    )
    ids = await scene.rig.fill(MANY, lane="bulk")
    await carried(scene, MANY)
    refused = bulk_calls(result)
    sender = bulk_sender(scene)
    async with running(sender):
        await scene.rig.all_in("submitted", MANY, PATIENCE_S)
        assert sender._calls.backing_off_s == 0
    assert bulk_calls(result) - refused == 1
    assert scene.times_accepted == Counter(str(id_) for id_ in ids)
    assert await charged_otherwise(scene) == 0
