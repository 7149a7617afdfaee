"""On a real PostgreSQL: whatever happens to a message in whatever order, no call is repeated that nobody decided to repeat, and
what was taken twice is counted."""

import itertools
from datetime import timedelta
from typing import Final
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streams.adapters.outbox_admin import OutboxAdmin
from streams.adapters.postgres import Database
from streams.adapters.schedule_store import ScheduleStore
from streams.domain.attempts import OutcomeKind
from streams.domain.by_hand import Decision, LetterFilter, Page, Redrive
from streams.domain.delivery_events import EventType
from streams.domain.schedule import Resending
from tests.integration.outbox_rows import Row, event, execute, fetch, make_row
from tests.integration.test_unknown_policies import apply, claim, end

pytestmark = pytest.mark.servers

AT_ONCE: Final = timedelta(microseconds=1)
RULE: Final = Resending(after=AT_ONCE, when_silent_after=AT_ONCE, most_attempts=5)
ANN: Final = Decision(by_whom="Ann", why="a test")
ANSWERS: Final = st.sampled_from(("lose taken", "lose untaken", "accept", "refuse", "give up"))
NOISE: Final = st.lists(
    st.sampled_from(("event", "late word", "settle", "hold", "hold", "say taken", "cancel")),
    max_size=2,
)
AGAIN: Final = st.sampled_from(("resend", "say not taken", "redrive", "redrive held", "settle"))
# A call, its answer, what happens meanwhile, and what may lead to the next call.
ROUNDS: Final = st.lists(
    st.builds(
        lambda early, answer, noise, again: ["call", *early, answer, *noise, again],
        st.lists(st.sampled_from(("event", "settle", "cancel", "late word")), max_size=1),
        ANSWERS,
        NOISE,
        AGAIN,
    ),
    min_size=2,
    max_size=4,
)


class Message:
    """One message, what SES did with its calls, and who decided that one may be repeated."""

    def __init__(self, database: Database, row: Row) -> None:
        self._database = database
        self._store = ScheduleStore(database)
        self._admin = OutboxAdmin(database)
        self.row = row
        self.under_way: Row | None = None
        # Calls that SES may have taken as far as anybody can know, and those that it did take.
        self.open: set[UUID] = set()
        self.taken: list[Row] = []
        self.lost: list[Row] = []
        self.told: set[UUID] = set()

    async def step(self, what: str) -> None:
        match what:
            case "call":
                await self._call()
            case "lose taken" | "lose untaken" | "accept" | "refuse" | "give up":
                await self._answer(what)
            case "event" if self.taken:
                await self._tell(self.taken[0])
            case "late word" if self.lost:
                await self._late_word(self.lost.pop(0))
            case "settle":
                await self._store.settle([self.row.id])
            case "resend":
                await self._decided((await self._store.resend_ambiguous(RULE, limit=9)).rows)
            case "hold":
                await self._store.hold_ambiguous(after=AT_ONCE, limit=9)
            case "say taken" | "say not taken":
                ids = [self.row.id]
                (done,) = await self._admin.settle(ids, ANN, accepted=what == "say taken")
                await self._decided(done["outcome"] == "pending")
            case "redrive" | "redrive held":
                await self._redrive(held=what == "redrive held")
            case "cancel":
                await execute(self._database, "SELECT cancel_email($1, 'why')", self.row.id)

    async def _call(self) -> None:
        if self.under_way is not None:
            return
        await execute(self._database, "UPDATE email_due SET due = due - interval '1 day'")
        called = await claim(self._database, self.row)
        if isinstance(called, Row):
            assert not self.open, "a call is repeated that SES may have taken"
            self.under_way = called

    async def _answer(self, what: str) -> None:
        called, self.under_way = self.under_way, None
        if called is None or called.attempt_id is None:
            return
        if what in ("lose taken", "accept"):
            self.taken.append(called)
        if what in ("lose taken", "lose untaken"):
            self.open.add(called.attempt_id)
            self.lost.append(called)
        kinds = {"accept": OutcomeKind.ACCEPTED, "refuse": OutcomeKind.RETRY}
        kinds |= {"give up": OutcomeKind.PERMANENT}
        await end(self._database, called, kinds.get(what, OutcomeKind.UNKNOWN))

    async def _tell(self, called: Row) -> None:
        assert called.attempt_id is not None
        self.told.add(called.attempt_id)
        name = f"delivered {called.attempt_id}"
        await apply(self._database, event(EventType.DELIVERED, called, name=name))

    async def _late_word(self, called: Row) -> None:
        """The sender of a lost call comes back and knows what SES said."""
        assert called.attempt_id is not None
        was_taken = called in self.taken
        await end(self._database, called, OutcomeKind.ACCEPTED if was_taken else OutcomeKind.RETRY)
        if was_taken:
            self.told.add(called.attempt_id)
        else:
            self.open.discard(called.attempt_id)

    async def _decided(self, again: object) -> None:
        if again:
            self.open.clear()

    async def _redrive(self, *, held: bool) -> None:
        letters = await self._admin.dead_letters(LetterFilter(), Page())
        how = Redrive(per_second=10.0, held=held)
        ids = [UUID(letter["id"]) for letter in letters]
        done = await self._admin.redrive(ids, how, ANN, start=None) if ids else []
        for one in done:
            assert held or not one["possible_duplicate"]
            await self._decided(one["possible_duplicate"])

    async def finish(self) -> None:
        """Every event comes, and the scheduler looks at all of them."""
        await self._answer("accept")
        for called in self.taken:
            await self._tell(called)
        await self._store.settle([self.row.id])


async def check(database: Database, message: Message) -> None:
    (row,) = await fetch(database, "SELECT state FROM email_outbox")
    accepted = await fetch(database, "SELECT id FROM email_attempt WHERE outcome = 'accepted'")
    assert {one["id"] for one in accepted} == {called.attempt_id for called in message.taken}
    proven = await execute(
        database, "SELECT count(*) FROM email_duplicate WHERE proven IS NOT NULL"
    )
    assert proven == max(len(message.taken) - 1, 0)
    if message.taken:
        assert row["state"] in ("submitted", "cancelled")
        assert await execute(database, "SELECT count(*) FROM dead_letter") == 0
    if row["state"] == "pending":
        assert await execute(database, "SELECT count(*) FROM email_due") == 1
    if row["state"] == "ambiguous":
        waiting = "SELECT count(*) FROM email_unsettled WHERE held IS NULL AND decided IS NULL"
        assert await execute(database, waiting) > 0
    ids = await fetch(
        database,
        "SELECT payload ->> 'id' AS id FROM outbox_feed WHERE aggregatetype = 'delivery-events'",
    )
    assert len({one["id"] for one in ids}) == len(ids)


@settings(
    max_examples=40,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(policy=st.sampled_from(["hold", "resend"]), rounds=ROUNDS)
async def test_no_call_is_repeated_that_nobody_decided_to_repeat(
    database: Database, policy: str, rounds: list[list[str]]
) -> None:
    await execute(
        database,
        "TRUNCATE email_outbox, email_due, email_lease, email_unsettled, email_duplicate, dead_letter, email_attempt, email_event, recipient_outcome, recipient_state, outbox_feed",
    )
    row = await make_row(database, on_ambiguous=policy)
    await execute(
        database,
        "INSERT INTO email_due (id, due, tenant, lane, why) SELECT id, now(), tenant, lane, 'busy' FROM email_outbox",
    )
    message = Message(database, row)
    for step in itertools.chain.from_iterable(rounds):
        await message.step(step)
    await message.finish()
    await check(database, message)
