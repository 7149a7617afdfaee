"""Faults put into the product in a worker, to show that the harness finds them: each breaks one promise's keeper.

A mutation replaces a method or a text of a query in the process of a worker; no file of the product knows of it. With each
stands the kind of round in which it shows soon (`crash.focus`).
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from crash.scenario import Mix

Apply = Callable[[], None]
_SLOW_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One fault. focus: the disturbances of its rounds by kind, with how many of each; shows_as: what the verdict may call it."""

    stage: str
    what: str
    put_in: Apply
    shows_as: tuple[str, ...]
    focus: Mapping[str, int]
    mix: Mix = field(default_factory=Mix)
    points: tuple[str, ...] = ()
    freeze_s: tuple[float, float] = (8.5, 11.0)


def apply(name: str, stage: str) -> None:
    """Breaks this process as the mutation says, if it is one of this stage."""
    mutation = MUTATIONS[name]
    if mutation.stage == stage:
        mutation.put_in()


def _changed_query(name: str, old: str, new: str) -> None:
    """From now on what the pattern finds in the statement is another text; refused if it finds nothing."""
    from streams.adapters import postgres, queries

    original = queries.query
    text, found = re.subn(old, new, original(name))
    if not found:
        raise RuntimeError(f"the mutation does not fit {name}.sql any more: {old!r}")

    def query(asked: str) -> str:
        return text if asked == name else original(asked)

    vars(postgres)["query"] = query


def _outcome_without_token() -> None:
    _changed_query(
        "record_outcomes", r"\w\.state = 'sending' AND \w\.attempt_id = \w\.token", "true"
    )


def _ready_before_caught_up() -> None:
    """The topic is read late besides, as a large one is."""
    from streams.adapters.kafka_suppressions import KafkaSuppressions
    from streams.suppression_table import SuppressionTable

    SuppressionTable.usable = lambda *_: True  # type: ignore[method-assign]
    original = KafkaSuppressions.follow

    async def follow(self: Any, *args: Any) -> Any:
        await asyncio.sleep(_SLOW_S)
        return await original(self, *args)

    setattr(KafkaSuppressions, "follow", follow)  # noqa: B010


def _no_last_look() -> None:
    from streams.sending import calls

    class Blind:
        def usable(self, *_: Any) -> bool:
            return True

        def hit(self, *_: Any) -> None:
            return None

    original = calls.Calls.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs | {"guard": Blind()})

    calls.Calls.__init__ = made  # type: ignore[method-assign]


def _claim_without_suppressions() -> None:
    _changed_query(
        "claim_emails",
        "FROM suppression AS s",
        "FROM (SELECT * FROM suppression WHERE false) AS s",
    )


def _offsets_before_outcomes() -> None:
    from streams.adapters.kafka_pointers import KafkaPointers

    original = KafkaPointers.fetch

    async def fetch(self: Any, *args: Any, **kwargs: Any) -> Any:
        records = await original(self, *args, **kwargs)
        ends = {r.topic_partition: r.offset + 1 for r in records}
        if ends:
            await self.commit(ends)
        return records

    KafkaPointers.fetch = fetch  # type: ignore[method-assign]


def _facts_after_commit() -> None:
    from streams.adapters.kafka_group import GroupConsumer

    original = GroupConsumer.poll

    async def poll(self: Any) -> Any:
        records = await original(self)
        await self.commit(records)
        return records

    GroupConsumer.poll = poll  # type: ignore[method-assign]


def _no_circuit() -> None:
    from streams.adapters.outbox_store import OutboxStore
    from streams.domain.circuit import NOTHING, Report
    from streams.sending.circuit import Circuit

    original = OutboxStore.take_permits

    async def take_permits(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(NOTHING if isinstance(a, Report) else a for a in args)
        kwargs = {k: NOTHING if isinstance(v, Report) else v for k, v in kwargs.items()}
        return await original(self, *args, **kwargs)

    OutboxStore.take_permits = take_permits  # type: ignore[method-assign]
    Circuit.has_room = property(lambda _: True)  # type: ignore[method-assign,assignment]


def _unknown_is_retried() -> None:
    from dataclasses import replace

    from streams.adapters.outbox_store import OutboxStore
    from streams.domain.attempts import OutcomeKind

    original = OutboxStore.record

    async def record(self: Any, outcomes: Any) -> Any:
        return await original(
            self,
            [
                replace(o, kind=OutcomeKind.RETRY) if o.kind is OutcomeKind.UNKNOWN else o
                for o in outcomes
            ],
        )

    OutboxStore.record = record  # type: ignore[method-assign]


def _called_again() -> None:
    """As an SDK does by itself."""
    from streams.adapters.ses import SesApi
    from streams.domain.ses_answers import Fault

    original = SesApi.send

    async def send(self: Any, call: Any, **kwargs: Any) -> Any:
        seen = await original(self, call, **kwargs)
        if isinstance(seen, Fault) and seen.written:
            again = {**kwargs, "latest": float("inf"), "on_begin": lambda: None}
            seen = await original(self, call, **again)
        return seen

    SesApi.send = send  # type: ignore[method-assign]


def _evidence_unseen() -> None:
    from streams.adapters import schedule_store

    schedule_store.PROOF = []  # type: ignore[misc]


def _slot_before_acknowledged() -> None:
    from streams.domain.acknowledgement import AcknowledgedPrefix

    original = AcknowledgedPrefix.opened

    def opened(self: Any, first: Any) -> Any:
        batch = original(self, first)
        batch.acknowledged = True
        return batch

    AcknowledgedPrefix.opened = opened  # type: ignore[method-assign]


def _answer_before_kafka() -> None:
    from streams.adapters.kafka_publisher import KafkaPublisher

    original = KafkaPublisher.publish
    under_way: set[asyncio.Task[None]] = set()

    async def publish(self: Any, records: Any) -> None:
        task = asyncio.create_task(original(self, records))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    KafkaPublisher.publish = publish  # type: ignore[method-assign]


_SUPPRESSING: Final = Mix(suppressed=0.3, scheduled=0.0, expiring=0.0, cancelled=0.0)
_SLOW: Final = Mix(slow_answers=0.8)

MUTATIONS: Final[dict[str, Mutation]] = {
    "outcome-without-token": Mutation(
        stage="sender",
        what="an outcome moves its row whatever attempt the row is under",
        put_in=_outcome_without_token,
        shows_as=("stale_writes", "sent_twice"),
        focus={"freeze at": 9},
        points=("after claim", "after sign", "before call", "after call"),
    ),
    "ready-before-caught-up": Mutation(
        stage="sender",
        what="a partition is used before its suppressions are read",
        put_in=_ready_before_caught_up,
        shows_as=("called_before_caught_up", "sent_to_suppressed"),
        focus={"kill": 10, "kill at": 4},
        points=("after assign",),
    ),
    "no-last-look": Mutation(
        stage="sender",
        what="the suppression table is not looked at right before the call",
        put_in=_no_last_look,
        shows_as=("called_although_known",),
        focus={"freeze at": 20},
        freeze_s=(0.4, 1.5),
        mix=_SUPPRESSING,
        points=("after claim", "after take permits", "before call"),
    ),
    "claim-without-suppressions": Mutation(
        stage="sender",
        what="the claim does not look at the table of suppressions",
        put_in=_claim_without_suppressions,
        shows_as=("sent_to_suppressed",),
        focus={"kill": 2},
        mix=_SUPPRESSING,
    ),
    "offsets-before-outcomes": Mutation(
        stage="sender",
        what="offsets are committed when the pointers are read",
        put_in=_offsets_before_outcomes,
        shows_as=("pending_at_end",),
        focus={"kill": 15},
    ),
    "facts-after-commit": Mutation(
        stage="recipients",
        what="offsets of events are committed before they are folded",
        put_in=_facts_after_commit,
        shows_as=("facts_wrong", "ambiguous_at_end"),
        focus={"kill": 3, "kill at": 10},
        points=("before fold", "before settle"),
    ),
    "no-circuit": Mutation(
        stage="sender",
        what="senders go on while every call fails",
        put_in=_no_circuit,
        shows_as=("unknown_in_outage",),
        focus={"outage": 1},
    ),
    "unknown-is-retried": Mutation(
        stage="sender",
        what="a call of unknown outcome is tried again",
        put_in=_unknown_is_retried,
        shows_as=("sent_twice", "stale_writes"),
        focus={"kill": 1},
    ),
    "called-again": Mutation(
        stage="sender",
        what="a call without an answer is made once more at once, as SDKs do",
        put_in=_called_again,
        shows_as=("sent_twice",),
        focus={"kill": 1},
    ),
    "evidence-unseen": Mutation(
        stage="scheduler",
        what="events that came before the lease ran out are not looked for",
        put_in=_evidence_unseen,
        shows_as=("ambiguous_at_end",),
        focus={"kill sender": 14},
        mix=_SLOW,
    ),
    "slot-before-acknowledged": Mutation(
        stage="relay",
        what="the slot is confirmed before Kafka has acknowledged",
        put_in=_slot_before_acknowledged,
        shows_as=("pending_at_end", "facts_wrong"),
        focus={"kill while kafka is frozen": 4},
    ),
    "answer-before-kafka": Mutation(
        stage="events",
        what="SNS gets its 200 before Kafka has the event",
        put_in=_answer_before_kafka,
        shows_as=("facts_wrong", "ambiguous_at_end"),
        focus={"kill while kafka is frozen": 4},
    ),
}
