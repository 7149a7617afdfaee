"""The circuit: what opens and closes it for all senders, and how little an outage leaves to settle."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import pytest
from aiohttp import web

import devservers
from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Database
from streams.domain.circuit import NOTHING, REACHED, CircuitState, ProbeIntervals, Report
from streams.domain.pacing import Grant
from streams.domain.topics import Topics
from streams.sending.circuit import UNANSWERED
from tests.integration.sender_rig import REGION, Rig, accept, refusing, rig_on, running, until
from tests.integration.sender_rows import execute, one

pytestmark = pytest.mark.servers

# No probe comes by itself while a test looks; and one that comes at once.
RARE = ProbeIntervals(first_s=3600.0, longest_s=3600.0, unreachable_s=3600.0, answer_s=3600.0)
AT_ONCE = ProbeIntervals(first_s=0.0, longest_s=0.0, unreachable_s=0.0, answer_s=3600.0)
Asking = Callable[..., Awaitable[tuple[Grant, CircuitState]]]


@pytest.fixture
async def rig(
    servers: devservers.Servers, database_dsn: str, database: Database, topics: Topics
) -> AsyncIterator[Rig]:
    async with rig_on(servers.kafka.bootstrap_servers, database_dsn, database, topics) as made:
        yield made


@pytest.fixture
async def ask(database: Database) -> Asking:
    """A question for permits, with a report."""
    await execute(
        database, "INSERT INTO send_rate (scope, per_second) VALUES ($1, 1000000.0)", REGION
    )
    store = OutboxStore(database, max_attempts=5)

    async def asked(
        report: Report = NOTHING, *, messages: int = 0, intervals: ProbeIntervals = RARE
    ) -> tuple[Grant, CircuitState]:
        answer = await store.take_permits(
            REGION, [1.0] * messages, lead_s=0.0, report=report, intervals=intervals
        )
        assert answer is not None
        grant, _, state = answer
        return grant, state

    return asked


def failed(
    count: int, *, messages: int | None = None, first: int = 1, is_unwritten: bool = False
) -> Report:
    """So many calls that failed, of so many messages."""
    ids = tuple(UUID(int=first + n % (messages or count)) for n in range(count))
    return Report(failed=ids, reason="SES failed", is_unwritten=is_unwritten)


# What PostgreSQL keeps --------------------------------------------------------------------------------------------------


async def test_twenty_failures_in_a_row_open_it_for_all(ask: Asking) -> None:
    _, state = await ask(failed(19))
    assert (state.open_since, state.failing, state.has_opened) == (None, 19, False)
    grant, state = await ask(failed(1, first=50), messages=3)
    assert state.open_since is not None
    assert (state.failing, state.has_opened, state.reason) == (20, True, "SES failed")
    assert (grant.messages, grant.permits) == (0, 0)
    grant, state = await ask(messages=3)
    assert grant.messages == 0
    assert grant.wait_s > 1000
    assert state.open_since is not None
    assert not state.has_opened


async def test_failures_of_few_messages_do_not_open_it(ask: Asking) -> None:
    """A message alone may be the fault, and has its attempts for that."""
    _, state = await ask(failed(100, messages=9))
    assert (state.open_since, state.failing_messages) == (None, 9)
    grant, _ = await ask(messages=3)
    assert grant.messages == 3
    _, state = await ask(failed(1, first=50))
    assert state.open_since is not None


async def test_an_answer_in_between_ends_the_row(ask: Asking) -> None:
    await ask(failed(19))
    _, state = await ask(Report(reached=True, failed=failed(3).failed))
    assert (state.failing, state.failing_messages, state.open_since) == (3, 3, None)
    _, state = await ask(REACHED)
    assert (state.failing, state.failing_messages, state.reason) == (0, 0, None)


async def test_an_answer_from_before_the_failures_does_not_end_the_row(ask: Asking) -> None:
    """Of a sender that had nothing to ask for in between."""
    old = Report(reached=True, reached_ago_s=60.0, began_ago_s=61.0)
    await ask(failed(19))
    _, state = await ask(old)
    assert (state.failing, state.open_since) == (19, None)
    _, state = await ask(failed(1, first=50))
    assert state.open_since is not None
    _, state = await ask(old)
    assert state.open_since is not None
    _, state = await ask(Report(reached=True, reached_ago_s=0.0, began_ago_s=61.0))
    assert state.open_since is not None
    _, state = await ask(REACHED)
    assert state.open_since is None


async def test_one_sender_alone_gets_the_probe(ask: Asking) -> None:
    await ask(failed(20), intervals=AT_ONCE)
    answers = await asyncio.gather(*(ask(messages=5, intervals=AT_ONCE) for _ in range(8)))
    assert sorted(grant.messages for grant, _ in answers) == [0] * 7 + [1]
    assert [state.probe is not None for grant, state in answers if grant.messages] == [True]


async def test_a_probe_that_is_not_made_is_given_to_the_next(ask: Asking) -> None:
    await ask(failed(20), intervals=AT_ONCE)
    grant, state = await ask(messages=5, intervals=AT_ONCE)
    assert grant.messages == 1
    assert state.probe is not None
    unused = Report(unused_probe=state.probe)
    grant, again = await ask(unused, messages=5, intervals=AT_ONCE)
    assert grant.messages == 1
    # Its answer was lost: it is told again, while the next one is under way.
    grant, state = await ask(unused, messages=5, intervals=AT_ONCE)
    assert (grant.messages, state.probe) == (0, None)
    grant, state = await ask(Report(unused_probe=again.probe), messages=5, intervals=AT_ONCE)
    assert grant.messages == 1


async def test_calls_that_end_late_bring_no_second_probe_while_one_is_under_way(
    ask: Asking,
) -> None:
    await ask(failed(20), intervals=AT_ONCE)
    _, probing = await ask(messages=5, intervals=AT_ONCE)
    assert probing.probe is not None
    for n in range(5):
        grant, state = await ask(failed(1, first=50 + n), messages=5, intervals=AT_ONCE)
        assert (grant.messages, state.probe) == (0, None)
    over = Report(failed=failed(1).failed, reason="SES failed", failed_probe=probing.probe)
    await ask(over, intervals=AT_ONCE)
    grant, state = await ask(over, messages=5, intervals=AT_ONCE)
    assert grant.messages == 1
    # Told twice: that one is waited for all the same.
    grant, _ = await ask(over, messages=5, intervals=AT_ONCE)
    assert grant.messages == 0


async def test_a_probe_that_is_answered_closes_it_and_all_go_on(ask: Asking) -> None:
    await ask(failed(20), intervals=AT_ONCE)
    await ask(messages=5, intervals=AT_ONCE)
    grant, state = await ask(REACHED, messages=5)
    assert (grant.messages, state.open_since, state.failing, state.probe) == (5, None, 0, None)


@pytest.mark.parametrize(
    ("is_unwritten", "longest"), [(True, 30.0), (False, 240.0)], ids=["unreachable", "unknown"]
)
async def test_probes_come_at_growing_and_bounded_intervals(
    ask: Asking, database: Database, is_unwritten: bool, longest: float
) -> None:
    """Rarer where each may leave an ambiguous message behind."""
    intervals = ProbeIntervals()
    await ask(failed(20, is_unwritten=is_unwritten), intervals=intervals)
    waits = []
    for n in range(9):
        due = await one(
            database,
            "SELECT extract(epoch FROM probe_at - clock_timestamp())::float8 AS s FROM send_rate",
        )
        waits.append(due["s"])
        await execute(database, "UPDATE send_rate SET probe_at = clock_timestamp()")
        _, state = await ask(messages=5, intervals=intervals)
        assert state.probe is not None
        over = replace(failed(1, first=50 + n, is_unwritten=is_unwritten), failed_probe=state.probe)
        await ask(over, intervals=intervals)
    for n, wait in enumerate(waits):
        whole = min(5.0 * 2**n, longest)
        # The question took some time of it.
        assert 0.75 * whole - 3.0 <= wait <= whole
    assert sum(waits) < 0.95 * sum(min(5.0 * 2**n, longest) for n in range(9))


async def test_asking_costs_no_write_while_nothing_is_granted_and_nothing_is_new(
    ask: Asking, database: Database
) -> None:
    before = await one(database, "SELECT xmin::text, ctid::text FROM send_rate")
    for report in (NOTHING, REACHED):
        await ask(report)
    assert await one(database, "SELECT xmin::text, ctid::text FROM send_rate") == before


# An outage --------------------------------------------------------------------------------------------------------------


class World:
    """SES as it is now. Before: so many calls are answered well."""

    def __init__(self, rig: Rig, kind: str) -> None:
        self.rig = rig
        self.kind = kind
        self.is_down = True

    async def answer(self, request: web.Request, number: int) -> web.StreamResponse:
        if self.kind == "unreachable" or not self.is_down:
            return await accept(request, number)
        if self.kind == "mute":
            await until(lambda: not self.is_down, 300)
            raise web.HTTPServiceUnavailable
        return await refusing(503, "ServiceUnavailable", "")(request, number)

    async def begin(self) -> None:
        self.rig.ses.answer = self.answer
        if self.kind == "unreachable":
            await self.rig.ses.stop()

    async def end(self) -> None:
        self.is_down = False
        if self.kind == "unreachable":
            await self.rig.ses.start()

    async def probes(self) -> int:
        found = await one(self.rig.database, "SELECT probes FROM send_rate")
        return int(found["probes"])

    async def ever_ambiguous(self) -> int:
        found = await one(
            self.rig.database,
            "SELECT count(DISTINCT outbox_id) AS n FROM email_attempt WHERE outcome = 'unknown'",
        )
        return int(found["n"])


@pytest.mark.parametrize("kind", ["503", "unreachable"])
async def test_outage_leaves_little_to_settle_and_all_others_go_out_by_themselves(
    rig: Rig, kind: str
) -> None:
    """As many probes as half an hour has at the intervals of production; two replicas."""
    world = World(rig, kind)
    await world.begin()
    ids = await rig.fill(600)
    first, second = rig.sender(), rig.sender()
    async with running(first, second):

        async def half_an_hour() -> bool:
            return await world.probes() >= 14

        await until(half_an_hour, 120)
        probes, states = await world.probes(), await rig.states()
        await until(lambda: "circuit" in {*first.health.missing(), *second.health.missing()}, 60)
        await world.end()

        async def over() -> bool:
            found = await rig.states()
            return found["submitted"] + found["ambiguous"] == len(ids)

        await until(over, 120)
        await until(
            lambda: not {"circuit"} & {*first.health.missing(), *second.health.missing()}, 60
        )
    ambiguous = await world.ever_ambiguous()
    charged = await one(
        rig.database,
        "SELECT count(*) FILTER (WHERE attempts > 1) AS rows, max(attempts) AS most FROM email_outbox",
    )
    assert states["failed"] == states["submitted"] == 0
    assert (await rig.states())["failed"] == 0
    assert not rig.sent_twice()
    if kind == "unreachable":
        assert ambiguous == 0
        assert (charged["rows"] <= 2, charged["most"] <= 2) == (True, True)
    else:
        # 20 open it, two replicas may have some under way that moment, a probe or two may follow before the end.
        assert 20 <= ambiguous <= 50
        assert ambiguous <= 20 + 2 * UNANSWERED + probes + 4


async def test_world_without_answers_is_met_by_few_calls(rig: Rig) -> None:
    """Nothing is known before the first call times out: until then few have begun, whatever the rate allows."""
    world = World(rig, "mute")
    await world.begin()
    await rig.fill(300)
    first, second = (rig.sender(read_timeout_s=3.0, max_in_flight=64) for _ in range(2))
    async with running(first, second):
        await until(lambda: "circuit" in {*first.health.missing(), *second.health.missing()}, 90)
        assert 20 <= len(rig.ses.calls) <= 20 + 2 * UNANSWERED
        await world.end()

        async def over() -> bool:
            found = await rig.states()
            return found["submitted"] + found["ambiguous"] == 300

        await until(over, 120)
    assert 20 <= await world.ever_ambiguous() <= 50
    assert not rig.sent_twice()


async def test_in_health_all_calls_that_are_allowed_are_under_way(rig: Rig) -> None:
    rig.ses.delay_s = 2.0
    await rig.fill(150)
    async with running(rig.sender(max_in_flight=48, lease_s=40.0, read_timeout_s=30.0)):
        await rig.all_in("submitted", 150, 120)
    assert 40 <= rig.ses.most_at_once <= 48
