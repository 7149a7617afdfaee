"""Faults put into the relay in a worker, to show that the fuzz finds them; no file of the product knows of it.

With each stands the kind of round in which it shows soon.
"""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from relayfuzz.plan import ACTIVE, KAFKA_LINK, RELAYS, Disturbance, Load, Plan

LASTING_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One fault. focus: what disturbs its rounds; shows_as: what the verdict may call it."""

    what: str
    put_in: Callable[[], None]
    shows_as: tuple[str, ...]
    focus: Callable[[random.Random, float], Iterator[Disturbance]]
    load: Load = field(default_factory=Load)
    heal_always: bool = False


def plan_for(name: str, *, seed: int, number: int) -> Plan:
    """A round with what this mutation cannot stand."""
    mutation = MUTATIONS[name]
    rng = random.Random(f"{seed}/{number}/{name}")  # noqa: S311 moments, no secrets
    chosen = [d for n in range(4) for d in mutation.focus(rng, 1.0 + n * 4.5 + rng.random())]
    return Plan(
        seed=seed,
        number=number,
        lasting_s=LASTING_S,
        load=mutation.load,
        disturbances=tuple(sorted(chosen, key=lambda d: d.at)),
        mutation=name,
        heal_always=mutation.heal_always,
    )


# Faults -----------------------------------------------------------------------------------------------------------


def _confirmed_before_acknowledged() -> None:
    from streams.domain.acknowledgement import AcknowledgedPrefix

    original = AcknowledgedPrefix.opened

    def opened(self: Any, first: Any) -> Any:
        batch = original(self, first)
        batch.acknowledged = True
        return batch

    AcknowledgedPrefix.opened = opened  # type: ignore[method-assign]


def _confirmed_beyond_the_prefix() -> None:
    from streams.domain.acknowledgement import AcknowledgedPrefix

    original = AcknowledgedPrefix.acknowledged

    def acknowledged(self: Any, batch: Any) -> None:
        original(self, batch)
        for other in self._outstanding:
            other.acknowledged = True

    AcknowledgedPrefix.acknowledged = acknowledged  # type: ignore[method-assign]


def _no_replay() -> None:
    """What a stream that failed had on its way counts as sent: the slot goes on from what was read."""
    from psycopg import sql

    from streams.adapters.kafka_batches import KafkaBatches
    from streams.adapters.replication import ReplicationConnection

    close_before, start_before = KafkaBatches.close, ReplicationConnection.start
    advance = sql.SQL(
        "SELECT pg_replication_slot_advance(slot, lsn) FROM relay_checkpoint JOIN pg_replication_slots ON slot_name = slot "
        "WHERE slot = {} AND lsn > confirmed_flush_lsn"
    ).format(os.environ["MAILSTREAMS_RELAY_SLOT"])

    async def close(self: Any) -> list[bytes]:
        for batch in getattr(getattr(self, "_prefix", None), "_outstanding", ()):
            batch.acknowledged = True
        return await close_before(self)

    async def start(self: Any, position: Any = 0) -> bool:
        await self._live().execute(advance)
        return await start_before(self, position)

    KafkaBatches.close = close  # type: ignore[method-assign]
    ReplicationConnection.start = start  # type: ignore[method-assign]


def _two_writers() -> None:
    """The second relay reads a slot of its own, as if nothing kept it out."""
    import psycopg

    if os.environ["FUZZ_RELAY"] == RELAYS[0]:
        return
    slot = f"{os.environ['MAILSTREAMS_RELAY_SLOT']}_{os.getpid()}"
    with psycopg.connect(os.environ["MAILSTREAMS_POSTGRES_DSN"], autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    os.environ["MAILSTREAMS_RELAY_SLOT"] = slot


def _late_suppressions_forgotten() -> None:
    from streams.relay_late import LateSuppressions

    LateSuppressions.add = lambda *_: None  # type: ignore[method-assign]


def _moved_slot_is_trusted() -> None:
    from streams import relay_slot
    from streams.domain.slots import Lost, Usable

    original = vars(relay_slot)["judge"]

    def judge(slot: Any, *args: Any, **kwargs: Any) -> Any:
        verdict = original(slot, *args, **kwargs)
        trusted = isinstance(verdict, Lost) and slot is not None and slot.confirmed is not None
        if not trusted:
            return verdict
        return Usable(confirmed=slot.confirmed, start=slot.confirmed)

    vars(relay_slot)["judge"] = judge


# What shows them --------------------------------------------------------------------------------------------------


def _killed_while_kafka_is_slow(rng: random.Random, at: float) -> Iterator[Disturbance]:
    yield Disturbance(at=at, do="cut", who=KAFKA_LINK, how="freeze", seconds=1.5)
    yield Disturbance(at=at + rng.uniform(0.7, 1.3), do="kill", who=ACTIVE)


def _cut_while_kafka_is_slow(rng: random.Random, at: float) -> Iterator[Disturbance]:
    # Longer than a stream that is given up waits for what is on its way.
    yield Disturbance(at=at, do="cut", who=KAFKA_LINK, how="freeze", seconds=4.0)
    yield Disturbance(
        at=at + rng.uniform(0.3, 0.8), do="cut", who=f"{ACTIVE}-replication", how="reset"
    )


def _killed(rng: random.Random, at: float) -> Iterator[Disturbance]:
    yield Disturbance(at=at + rng.random(), do="kill", who=ACTIVE)


def _slot_stolen(rng: random.Random, at: float) -> Iterator[Disturbance]:
    yield Disturbance(at=at + rng.random(), do="advance slot")


def _late_on_the_way(rng: random.Random, at: float) -> Iterator[Disturbance]:
    yield Disturbance(at=at, do="cut", who=KAFKA_LINK, how="late", seconds=3.0)
    reset = at + rng.uniform(0.5, 1.0)
    yield Disturbance(at=reset, do="cut", who=f"{ACTIVE}-replication", how="reset")


_BUSY: Final = replace(Load(), writers=10, per_second=150.0, sizes=(1, 2, 5, 40))
_SUPPRESSING: Final = replace(Load(), per_second=60.0, suppressing=0.8, recipients=6)

MUTATIONS: Final[dict[str, Mutation]] = {
    "confirmed-before-acknowledged": Mutation(
        what="a transaction is confirmed before Kafka has acknowledged its records",
        put_in=_confirmed_before_acknowledged,
        shows_as=("lost",),
        focus=_killed_while_kafka_is_slow,
    ),
    "confirmed-beyond-the-prefix": Mutation(
        what="one acknowledgement confirms everything that was read, acknowledged or not",
        put_in=_confirmed_beyond_the_prefix,
        shows_as=("lost",),
        focus=_killed_while_kafka_is_slow,
        load=_BUSY,
    ),
    "no-replay": Mutation(
        what="what a stream that failed had on its way counts as sent",
        put_in=_no_replay,
        shows_as=("lost",),
        focus=_cut_while_kafka_is_slow,
    ),
    "two-writers": Mutation(
        what="two relays write at the same time, each from a slot of its own",
        put_in=_two_writers,
        shows_as=("duplicates_beyond_bound",),
        focus=_killed,
    ),
    "late-suppressions-forgotten": Mutation(
        what="suppressions that a producer was given up with are not put into the feed again",
        put_in=_late_suppressions_forgotten,
        shows_as=("not_healed",),
        focus=_late_on_the_way,
        load=_SUPPRESSING,
    ),
    "moved-slot-is-trusted": Mutation(
        what="a slot that somebody else moved on or made anew is read from where it stands",
        put_in=_moved_slot_is_trusted,
        shows_as=("lost",),
        focus=_slot_stolen,
    ),
}
