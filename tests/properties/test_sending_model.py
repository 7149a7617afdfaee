"""The life of outbox rows: the product's own statements on a real PostgreSQL against a small model, in any order of steps.

The model knows what nobody can know in production: whether SES really took a call.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from streams.adapters.outbox_admin import OutboxAdmin
from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Database
from streams.adapters.schedule_store import ScheduleStore
from streams.domain.attempts import AttemptId, Outcome, OutcomeKind, Recorded, Verdict
from streams.domain.by_hand import Decision, Redrive
from streams.domain.schedule import Resending
from tests.integration.sender_rows import insert, requests

pytestmark = pytest.mark.servers

T = TypeVar("T")
N: Final = st.integers(0, 11)
DECISION: Final = Decision(by_whom="model", why="a step of the model")
AT_ONCE: Final = Resending(
    after=timedelta(), when_silent_after=timedelta(days=1), most_attempts=1000
)
# What a call may end with, whose request SES did not take.
REFUSALS: Final = (
    OutcomeKind.RETRY,
    OutcomeKind.THROTTLED,
    OutcomeKind.ACCOUNT_STOP,
    OutcomeKind.MISCONFIGURED,
    OutcomeKind.PERMANENT,
    OutcomeKind.RELEASED,
)


@dataclass(eq=False)
class Call:
    """One attempt. taken: the truth. known: what the database was told. licensed: somebody said that the row may go again."""

    attempt_id: AttemptId
    number: int
    taken: bool = False
    known: str = "open"
    licensed: bool = False


@dataclass(eq=False)
class Message:
    """One row. evidence: the database can know that SES took a call. pointer: one is on its way to a sender."""

    id: UUID
    policy: str
    state: str = "pending"
    calls: list[Call] = field(default_factory=list)
    evidence: bool = False
    by_word: bool = False
    pointer: bool = True

    @property
    def call(self) -> Call:
        return self.calls[-1]

    @property
    def doubtful(self) -> list[Call]:
        """Calls that may have been taken, as far as the database knows, and nobody has decided about."""
        return [c for c in self.calls if c.known in ("open", "unknown") and not c.licensed]

    def license(self) -> None:
        for call in self.calls:
            call.licensed = True


def pick(choices: Sequence[T], n: int) -> T:
    return choices[n % len(choices)]


def in_state(*states: str) -> Callable[["Sending"], bool]:
    """Only while there is a row in one of these."""
    return lambda machine: bool(machine.those(*states))


class Sending(RuleBasedStateMachine):
    """Each rule is one transaction of the product, or one thing that happens in the world."""

    database: Database
    runner: asyncio.Runner

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Message] = []
        self.store = OutboxStore(self.database, max_attempts=1000)
        self.schedule = ScheduleStore(self.database)
        self.admin = OutboxAdmin(self.database)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def _fetch(self, sql: str, *args: Any) -> list[Any]:
        async with self.database.connection() as connection:
            return await connection.fetch(sql, *args)

    def state_of(self, message: Message) -> str:
        (row,) = self.do(self._fetch("SELECT state FROM email_outbox WHERE id = $1", message.id))
        return str(row["state"])

    def those(self, *states: str) -> list[Message]:
        return [m for m in self.made if m.state in states]

    @property
    def open(self) -> list[Message]:
        """Where evidence may change something, or must not."""
        return [m for m in self.made if m.evidence or m.state in ("sending", "ambiguous", "failed")]

    # Senders ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.those("pending", "sending") and len(self.made) < 6)
    @rule(policy=st.sampled_from(("hold", "hold", "resend")))
    def commit(self, policy: str) -> None:
        self.made.append(Message(self.do(insert(self.database, on_ambiguous=policy)), policy))

    @precondition(in_state("pending"))
    @rule(n=N)
    def claim(self, n: int) -> None:
        self._claim(pick(self.those("pending"), n))

    @precondition(in_state("sending", "ambiguous", "submitted", "failed", "cancelled"))
    @rule(n=N)
    def claim_what_does_not_wait(self, n: int) -> None:
        self._claim(pick([m for m in self.made if m.state != "pending"], n))

    @precondition(lambda self: bool(self.late_evidence))
    @rule(n=N)
    def evidence_comes_right_before_a_claim(self, n: int) -> None:
        message = pick(self.late_evidence, n)
        self._tell(message, next(c for c in message.calls if c.taken))
        self._claim(message)

    @property
    def late_evidence(self) -> list[Message]:
        """Rows that go again although SES took a call, which nobody knows."""
        return [m for m in self.those("pending") if any(c.taken for c in m.calls)]

    @precondition(in_state("sending"))
    @rule(n=N)
    def answer_is_lost(self, n: int) -> None:
        """The most frequent beginning of everything that is hard: SES took it, and the sender does not know."""
        message = pick(self.those("sending"), n)
        message.call.taken = True
        assert self._record(message, message.call, OutcomeKind.UNKNOWN) is Recorded.APPLIED
        message.state, message.call.known = "ambiguous", "unknown"

    def _claim(self, message: Message) -> None:
        (request,) = requests([message.id])
        (answer,) = self.do(self.store.claim([request], lease_s=3600))
        if message.state != "pending":
            assert answer.verdict is Verdict.SETTLED
            message.pointer = False
        elif message.evidence:
            assert answer.verdict is Verdict.BUSY, "SES has taken it, so that it is not claimed"
            message.pointer = False
        else:
            assert answer.verdict is Verdict.CLAIMED
            assert answer.email is not None
            assert not message.doubtful, "claimed although an earlier call may have been taken"
            message.calls.append(Call(request.attempt_id, answer.email.attempt))
            message.state, message.pointer = "sending", False

    @precondition(in_state("sending", "ambiguous"))
    @rule(n=N)
    def ses_takes_the_call(self, n: int) -> None:
        message = pick(self.those("sending", "ambiguous"), n)
        if message.call.known in ("open", "unknown"):
            message.call.taken = True

    @precondition(in_state("sending"))
    @rule(n=N, kind=st.sampled_from((*[OutcomeKind.UNKNOWN] * 4, *REFUSALS)))
    def outcome(self, n: int, kind: OutcomeKind) -> None:
        """SES's refusals are true; of a call that it took, only the answer may be missing."""
        message = pick(self.those("sending"), n)
        if message.call.taken and kind is not OutcomeKind.UNKNOWN:
            kind = OutcomeKind.ACCEPTED
        assert self._record(message, message.call, kind) is Recorded.APPLIED
        match kind:
            case OutcomeKind.ACCEPTED:
                message.state, message.call.known, message.evidence = "submitted", "taken", True
            case OutcomeKind.UNKNOWN:
                message.state, message.call.known = "ambiguous", "unknown"
            case OutcomeKind.PERMANENT:
                message.state, message.call.known = "failed", "refused"
            case _:
                message.state, message.call.known = "pending", "refused"

    @precondition(lambda self: any(c.known == "unknown" for m in self.made for c in m.calls))
    @rule(n=N)
    def late_outcome(self, n: int) -> None:
        """Of an attempt that the row has left: changes no state, and what it knows is kept."""
        old = [(m, c) for m in self.made for c in m.calls if c.known == "unknown"]
        message, call = pick(old, n)
        kind = OutcomeKind.ACCEPTED if call.taken else OutcomeKind.RELEASED
        recorded = self._record(message, call, kind)
        assert recorded is not Recorded.APPLIED
        assert self.state_of(message) == message.state
        call.known = "taken" if call.taken else "refused"
        message.evidence = message.evidence or call.taken

    def _record(self, message: Message, call: Call, kind: OutcomeKind) -> Recorded:
        now = datetime.now(UTC)
        outcome = Outcome(
            id=message.id,
            attempt_id=call.attempt_id,
            number=call.number,
            kind=kind,
            started=now,
            finished=now,
            provider_message_id="m-1" if kind is OutcomeKind.ACCEPTED else None,
            error_class=None if kind is OutcomeKind.ACCEPTED else "of-the-model",
            reason=None if kind is OutcomeKind.ACCEPTED else "of the model",
        )
        return self.do(self.store.record([outcome]))[call.attempt_id]

    # Scheduler, events, persons -----------------------------------------------------------------------------------

    @precondition(in_state("sending"))
    @rule(n=N)
    def lease_runs_out(self, n: int) -> None:
        message = pick(self.those("sending"), n)
        self.do(
            self._fetch(
                "UPDATE email_lease SET expires = now() - interval '1 s' WHERE id = $1", message.id
            )
        )
        self.do(self.schedule.expire_leases(1000))
        message.call.known = "unknown"
        message.state = "submitted" if message.evidence else "ambiguous"
        assert self.state_of(message) == message.state

    @precondition(lambda self: any(c.taken for m in self.made for c in m.calls))
    @rule(n=N)
    def event_comes(self, n: int) -> None:
        """Acceptance is told by an event of any of the calls that SES took."""
        message, call = pick([(m, c) for m in self.made for c in m.calls if c.taken], n)
        self._tell(message, call)

    def _tell(self, message: Message, call: Call) -> None:
        self.do(
            self._fetch(
                "INSERT INTO email_event (event_id, recipient_key, type, at, tenant, outbox_id, attempt_id, payload) "
                "SELECT $1, recipient_key, 'accepted', now(), tenant, id, $2, '{}' FROM email_outbox WHERE id = $3 "
                "ON CONFLICT DO NOTHING",
                f"{call.attempt_id}",
                call.attempt_id,
                message.id,
            )
        )
        message.evidence = True

    @precondition(lambda self: bool(self.open))
    @rule(n=N)
    def evidence_is_looked_at(self, n: int) -> None:
        message = pick(self.open, n)
        self.do(self.schedule.settle([message.id]))
        found = self.state_of(message)
        match message.state:
            case "pending" | "ambiguous" if message.evidence:
                assert found == "submitted"
            case "ambiguous" if not message.doubtful and not any(c.licensed for c in message.calls):
                assert found == "pending", "every call was refused, so that it is tried again"
            case "ambiguous" if message.doubtful:
                assert found == "ambiguous", "nothing is known, so that nothing is done"
            case "sending" | "submitted" | "cancelled" as same:
                assert found == same
            case _:
                self._may_be(message, found)
        message.state = found

    def _may_be(self, message: Message, found: str) -> None:
        """Of a failed row, or one about which a person has decided before."""
        assert found in (message.state, "submitted", "pending")
        assert found != "submitted" or message.evidence
        assert found != "pending" or message.state == "pending" or not message.doubtful

    @precondition(lambda self: any(not m.pointer for m in self.those("pending")))
    @rule()
    def what_is_due_is_woken(self) -> None:
        self.do(self.schedule.take_due(1000))
        for message in self.made:
            if message.state == "pending":
                message.state = self.state_of(message)
                assert message.state == ("submitted" if message.evidence else "pending")
                message.pointer = True

    @precondition(in_state("ambiguous"))
    @rule()
    def held(self) -> None:
        self.do(self.schedule.hold_ambiguous(after=timedelta(), limit=1000))
        for message in self.made:
            found = self.state_of(message)
            if message.state == "ambiguous":
                assert found in ("ambiguous", "failed")
            else:
                assert found == message.state
            message.state = found

    @precondition(in_state("ambiguous"))
    @rule()
    def policy_resends(self) -> None:
        self.do(self.schedule.resend_ambiguous(AT_ONCE, limit=1000))
        for message in self.made:
            found = self.state_of(message)
            if found != message.state:
                assert (message.state, found) == ("ambiguous", "pending")
                assert message.policy == "resend"
                assert not message.evidence, "SES has taken it"
                message.license()
            message.state = found

    @precondition(in_state("ambiguous", "failed"))
    @rule(n=N, accepted=st.booleans())
    def person_settles(self, n: int, accepted: bool) -> None:
        message = pick(self.those("ambiguous", "failed"), n)
        self.do(self.admin.settle([message.id], DECISION, accepted=accepted))
        found = self.state_of(message)
        if found != message.state:
            assert message.state in ("ambiguous", "failed", "pending")
            if found == "submitted":
                assert accepted or message.evidence
                message.by_word = message.by_word or not message.evidence
            else:
                assert found == "pending"
                assert not message.evidence
                message.license()
        message.state = found

    @precondition(lambda self: len(self.made) > 3 and in_state("pending", "ambiguous")(self))
    @rule(n=N)
    def person_cancels(self, n: int) -> None:
        message = pick(self.those("pending", "ambiguous"), n)
        self.do(self.admin.cancel([message.id], DECISION))
        found = self.state_of(message)
        if found != message.state:
            assert found == "cancelled"
            assert message.state in ("pending", "ambiguous")
        message.state = found

    @precondition(in_state("failed"))
    @rule(n=N, held=st.booleans())
    def person_redrives(self, n: int, held: bool) -> None:
        message = pick(self.those("failed"), n)
        letters = self.do(
            self._fetch("SELECT id FROM dead_letter WHERE outbox_id = $1", message.id)
        )
        how = Redrive(per_second=1e6, held=held)
        self.do(self.admin.redrive([r["id"] for r in letters], how, DECISION, start=None))
        found = self.state_of(message)
        if found != message.state:
            assert message.state == "failed"
            assert found == ("submitted" if message.evidence else "pending")
            if message.doubtful:
                assert held or message.evidence, "an unknown call is sent again only if told so"
            if found == "pending":
                message.license()
        message.state = found

    # What always holds --------------------------------------------------------------------------------------------

    @invariant()
    def every_row_is_where_the_model_says(self) -> None:
        ids = [m.id for m in self.made]
        rows = self.do(
            self._fetch(
                "SELECT o.id, o.state, o.attempt_id, l.attempt_id AS lease, d.id IS NOT NULL AS due "
                "FROM email_outbox AS o LEFT JOIN email_lease AS l USING (id) LEFT JOIN email_due AS d USING (id) "
                "WHERE o.id = ANY ($1::uuid[])",
                ids,
            )
        )
        found = {row["id"]: row for row in rows}
        for message in self.made:
            row = found[message.id]
            assert row["state"] == message.state
            token = message.call.attempt_id if message.state == "sending" else None
            assert row["attempt_id"] == token
            assert row["lease"] == token
            if message.state == "pending":
                assert row["due"] or message.pointer, "a pending row sleeps"
            if message.state == "submitted":
                assert message.evidence or message.by_word

    @invariant()
    def nothing_is_sent_twice_without_leave(self) -> None:
        for message in self.made:
            taken = [c for c in message.calls if c.taken]
            assert len(taken) < 2 or any(c.licensed for c in taken)


async def opened(dsn: str) -> Database:
    database = Database(dsn, pool_size=2, timeout_s=30, name="model")
    await database.start()
    return database


@pytest.mark.timeout(900)
def test_any_order_of_claims_outcomes_evidence_and_decisions_keeps_the_promises(
    database_dsn: str,
) -> None:
    with asyncio.Runner() as runner:
        database = runner.run(opened(database_dsn))
        try:
            machine = type("Machine", (Sending,), {"database": database, "runner": runner})
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=20,
                    stateful_step_count=50,
                    deadline=None,
                    derandomize=True,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(database.stop())
