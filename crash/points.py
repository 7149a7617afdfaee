"""Puts the points and the journal around the methods of the product's adapters, in a worker."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from crash.journal import Journal
from crash.traps import DOINGS, Trap
from crash.witness import Witness

_ATTEMPT: Final = re.compile(rb'"attempt"\s*,\s*"Value"\s*:\s*"([0-9a-fA-F-]{36})"')
Wrapped = Callable[..., Any]


def install(stage: str, trap: Trap, journal: Journal) -> None:
    """From now on a worker of this stage passes its points."""
    around = _Around(trap)
    _INSTALLERS[stage](around, journal)
    missing = set(DOINGS[stage]) - around.placed
    if missing:
        raise RuntimeError(
            f"no method of the product has these points: {', '.join(sorted(missing))}"
        )


class _Around:
    """Puts two points around methods."""

    def __init__(self, trap: Trap) -> None:
        self._trap = trap
        self.placed: set[str] = set()

    def points(self, doing: str) -> tuple[Callable[[], None], Callable[[], None]]:
        self.placed.add(doing)
        before, after = (self._trap.number(f"{side} {doing}") for side in ("before", "after"))
        hit = self._trap.hit
        return lambda: hit(before), lambda: hit(after)

    def waits(self, owner: type, name: str, doing: str) -> None:
        """Of a coroutine method."""
        original: Callable[..., Awaitable[Any]] = getattr(owner, name)
        before, after = self.points(doing)

        async def passed(*args: Any, **kwargs: Any) -> Any:
            before()
            result = await original(*args, **kwargs)
            after()
            return result

        setattr(owner, name, passed)

    def at_once(self, owner: type, name: str, doing: str) -> None:
        """Of a plain method."""
        original: Callable[..., Any] = getattr(owner, name)
        before, after = self.points(doing)

        def passed(*args: Any, **kwargs: Any) -> Any:
            before()
            result = original(*args, **kwargs)
            after()
            return result

        setattr(owner, name, passed)


def _sender(around: _Around, journal: Journal) -> None:
    from streams.adapters.kafka_pointers import KafkaPointers
    from streams.adapters.kafka_suppressions import KafkaSuppressions
    from streams.adapters.outbox_store import OutboxStore
    from streams.adapters.ses import SesApi
    from streams.sender import Sender

    witness = Witness()
    _note_claims(OutboxStore, journal, witness)
    _note_overruled(OutboxStore, witness)
    _note_outcomes(OutboxStore, journal)
    _note_calls(SesApi, around, journal, witness)
    around.waits(Sender, "_assigned", "assign")
    around.waits(Sender, "_revoked", "revoke")
    around.waits(KafkaSuppressions, "follow", "follow suppressions")
    around.waits(OutboxStore, "read_pending", "read pending")
    around.waits(OutboxStore, "close_unsendable", "close unsendable")
    around.waits(OutboxStore, "hold_paused", "hold paused")
    around.waits(OutboxStore, "take_permits", "take permits")
    around.waits(OutboxStore, "claim", "claim")
    around.waits(SesApi, "sign", "sign")
    around.waits(SesApi, "send", "call")
    around.waits(OutboxStore, "record", "record outcomes")
    around.waits(KafkaPointers, "commit", "commit offsets")


def _note_claims(store: Any, journal: Journal, witness: Witness) -> None:
    original = store.claim

    async def claim(self: Any, requests: Any, **kwargs: Any) -> Any:
        claims = await original(self, requests, **kwargs)
        ours = [c.email for c in claims if c.email is not None]
        witness.claimed(ours)
        journal.note_all([("claim", str(e.attempt_id), str(e.id)) for e in ours])
        return claims

    store.claim = claim


def _note_overruled(store: Any, witness: Witness) -> None:
    original = store.close_unsendable

    async def close_unsendable(self: Any, ids: Any) -> Any:
        closed = await original(self, ids)
        witness.overruled([i for i in ids if i not in closed])
        return closed

    store.close_unsendable = close_unsendable


def _note_outcomes(store: Any, journal: Journal) -> None:
    original = store.record

    async def record(self: Any, outcomes: Any) -> Any:
        journal.note_all([("tell", str(o.attempt_id), str(o.kind)) for o in outcomes])
        recorded = await original(self, outcomes)
        journal.note_all([("told", str(a), str(r)) for a, r in recorded.items()])
        return recorded

    store.record = record


def _note_calls(api: Any, around: _Around, journal: Journal, witness: Witness) -> None:
    original = api.send
    before, after = around.points("first byte")

    async def send(self: Any, call: Any, **kwargs: Any) -> Any:
        found = _ATTEMPT.search(call.body)
        attempt = found[1].decode() if found else "-"
        on_begin = kwargs.pop("on_begin", lambda: None)

        def begin() -> None:
            on_begin()
            journal.note("call", attempt, witness.sees(attempt))
            before()

        seen = await original(self, call, on_begin=begin, **kwargs)
        after()
        journal.note("answer", attempt, _word(seen))
        return seen

    api.send = send


def _word(seen: Any) -> str:
    status = getattr(seen, "status", None)
    if status is not None:
        return str(status)
    return f"fault-{seen.kind}" if hasattr(seen, "kind") else "missed"


def _relay(around: _Around, _: Journal) -> None:
    from streams.adapters.kafka_batches import KafkaBatches
    from streams.adapters.relay_store import RelayStore
    from streams.adapters.replication import ReplicationConnection
    from streams.domain.acknowledgement import AcknowledgedPrefix

    around.waits(ReplicationConnection, "receive", "receive")
    around.at_once(KafkaBatches, "append", "append")
    around.at_once(AcknowledgedPrefix, "acknowledged", "acknowledge")
    around.waits(RelayStore, "store_checkpoint", "store checkpoint")
    around.at_once(ReplicationConnection, "send_status", "confirm slot")


def _events(around: _Around, _: Journal) -> None:
    from streams.adapters.kafka_publisher import KafkaPublisher
    from streams.events import Events

    around.waits(KafkaPublisher, "publish", "publish")
    around.waits(Events, "_post", "answer")


def _recipients(around: _Around, _: Journal) -> None:
    from streams.adapters.facts_store import FactsStore
    from streams.adapters.facts_transaction import FactsTransaction
    from streams.adapters.kafka_group import GroupConsumer

    around.waits(GroupConsumer, "poll", "poll")
    around.waits(FactsStore, "transact", "fold")
    around.waits(FactsTransaction, "settle", "settle")
    around.waits(GroupConsumer, "commit", "commit offsets")


def _scheduler(around: _Around, _: Journal) -> None:
    from streams.adapters.schedule_store import ScheduleStore

    around.waits(ScheduleStore, "take_due", "take due")
    around.waits(ScheduleStore, "expire_leases", "expire leases")
    around.waits(ScheduleStore, "settle", "settle")
    around.waits(ScheduleStore, "hold_ambiguous", "hold")
    around.waits(ScheduleStore, "beat", "beat")


_INSTALLERS: Final[dict[str, Callable[[_Around, Journal], None]]] = {
    "sender": _sender,
    "relay": _relay,
    "events": _events,
    "recipients": _recipients,
    "scheduler": _scheduler,
}
