"""The facts of recipients in PostgreSQL: one transaction a batch of events, in the steps that the fold asks for."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

import asyncpg
import orjson

from streams.adapters.postgres import Connection, Database
from streams.adapters.queries import query
from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import Suppression
from streams.domain.delivery_events import (
    PROVIDER_SOURCE,
    TYPE_PREFIX,
    DeliveryEvent,
    EventId,
    EventType,
    decode,
    encode,
)
from streams.domain.errors import BadMessage, Unavailable
from streams.domain.facts import (
    PROOF_OF_ACCEPTANCE,
    Kept,
    Placed,
    RecipientOutcome,
    RecipientState,
    Settled,
    UnmatchedPage,
)
from streams.runtime import metrics

log = logging.getLogger(__name__)
T = TypeVar("T")

PROOF: Final = sorted(PROOF_OF_ACCEPTANCE)
_TIMES: Final = (
    EventType.ACCEPTED,
    EventType.DELIVERED,
    EventType.DELAYED,
    EventType.REJECTED,
    EventType.RENDERING_FAILED,
    EventType.OPENED,
    EventType.CLICKED,
    EventType.UNSUBSCRIBED,
)
_TRIES: Final = 6
# What the server says of a value that it will never take; too long for an index is the third.
_REFUSALS: Final = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
)


class FactsStore:
    """Owns its pool: start() connects, stop() closes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(self) -> None:
        await self._database.start()

    async def stop(self) -> None:
        await self._database.stop()

    async def transact(self, work: Callable[["FactsTransaction"], Awaitable[T]]) -> T:
        """Runs work in one transaction and commits; again from its start after a deadlock or a serialisation failure.

        BadMessage if PostgreSQL refuses a value, which no repetition mends.
        """
        for again in range(1, _TRIES + 1):
            try:
                async with self._database.transaction() as connection:
                    return await work(FactsTransaction(connection))
            except _REFUSALS as error:
                raise BadMessage(f"PostgreSQL refuses it: {type(error).__name__}") from error
            except Unavailable as error:
                if _is_refused_argument(error.__cause__):
                    raise BadMessage("a value has a type that PostgreSQL refuses") from error
                if not _is_conflict(error.__cause__) or again == _TRIES:
                    raise
                metrics.FOLD_CONFLICTS.inc()
                log.info("fold is tried again", extra={"action": "fold.conflict", "again": again})
                await asyncio.sleep(0.01 * 2**again * random.random())  # noqa: S311 jitter
        raise AssertionError("unreachable")

    async def unmatched(self, *, after: datetime, before: datetime, limit: int) -> UnmatchedPage:
        """Kept events without a message that were received in this span, oldest first, at most so many."""
        rows = await self._database.rows("find_unmatched_events", after, before, limit)
        return UnmatchedPage(
            examined=len(rows),
            last_received=rows[-1]["received"] if rows else None,
            events=[_event(row) for row in rows if row["payload"] is not None],
        )


class FactsTransaction:
    """The statements of one fold."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def correlate(self, events: Sequence[DeliveryEvent]) -> list[Placed]:
        """Each event with its message, in the same order."""
        rows = await self._connection.fetch(
            query("correlate_events"),
            list(range(len(events))),
            [e.id for e in events],
            [e.recipient_key for e in events],
            [e.attempt_id for e in events],
            [e.outbox_id for e in events],
            [e.provider_message_id for e in events],
        )
        return [
            Placed(
                event=event,
                outbox_id=row["outbox_id"],
                tenant=row["tenant"],
                attempt_id=row["attempt_id"],
                forgotten=row["forgotten"],
                stored_unmatched=row["stored_unmatched"],
            )
            for event, row in zip(events, rows, strict=True)
        ]

    async def lock(self, scopes: Sequence[tuple[str, RecipientKey]]) -> None:
        """Locks the recipients' rows, making those that are missing; nothing of their history may be read before."""
        columns = [tenant for tenant, _ in scopes], [key for _, key in scopes]
        await self._connection.execute(query("insert_recipients"), *columns)
        await self._connection.fetch(query("lock_recipients"), *columns)

    async def keep(self, placed: Sequence[Placed]) -> list[Kept]:
        """Keeps the events; returns those that are new or now know more of their message than before."""
        rows = await self._connection.fetch(
            query("keep_events"),
            [p.event.id for p in placed],
            [p.event.recipient_key for p in placed],
            [p.event.type.value for p in placed],
            [p.event.time for p in placed],
            [p.tenant for p in placed],
            [p.outbox_id for p in placed],
            [p.attempt_id for p in placed],
            [p.event.provider_message_id for p in placed],
            [_payload(p.event) for p in placed],
        )
        new = {(row["event_id"], row["recipient_key"]): row["is_new"] for row in rows}
        found = ((p, new.get((p.event.id, p.event.recipient_key))) for p in placed)
        return [Kept(placed=p, is_new=is_new) for p, is_new in found if is_new is not None]

    async def merge_outcomes(self, outcomes: Sequence[RecipientOutcome]) -> None:
        bounces = [o.bounce for o in outcomes]
        complaints = [o.complaint for o in outcomes]
        await self._connection.execute(
            query("merge_outcomes"),
            [o.outbox_id for o in outcomes],
            [o.recipient_key for o in outcomes],
            *([o.times.get(kind) for o in outcomes] for kind in _TIMES),
            [None if b is None else b.at for b in bounces],
            [None if b is None else b.event_id for b in bounces],
            [None if b is None else b.type.value for b in bounces],
            [None if b is None else b.reason.value for b in bounces],
            [None if b is None else b.diagnostic for b in bounces],
            [None if c is None else c.at for c in complaints],
            [None if c is None else c.event_id for c in complaints],
            [None if c is None else c.type for c in complaints],
        )

    async def merge_states(self, states: Sequence[RecipientState]) -> None:
        await self._connection.execute(
            query("merge_states"),
            [s.tenant for s in states],
            [s.recipient_key for s in states],
            [s.last_delivery for s in states],
            [s.hard_bounce for s in states],
            [s.complaint for s in states],
        )

    async def suppress(self, suppressions: Sequence[Suppression]) -> int:
        """Puts them in force; how many rows were new or changed."""
        rows = await self._connection.fetch(
            query("upsert_suppressions"),
            [s.recipient_key for s in suppressions],
            [s.tenant for s in suppressions],
            [s.lane for s in suppressions],
            [s.reason.value for s in suppressions],
            [s.evidence_id for s in suppressions],
            [s.evidence_at for s in suppressions],
            [s.rule_version for s in suppressions],
        )
        return len(rows)

    async def unattributed(self, keys: Sequence[RecipientKey]) -> list[DeliveryEvent]:
        """What is kept of these recipients and belongs to no known message."""
        rows = await self._connection.fetch(query("find_unattributed_events"), keys)
        return [_event(row) for row in rows]

    async def restate(self, states: Sequence[RecipientState]) -> None:
        """Sets the rows of no known tenant to exactly this."""
        await self._connection.execute(
            query("restate_unattributed"),
            [s.recipient_key for s in states],
            [s.last_delivery for s in states],
            [s.hard_bounce for s in states],
            [s.complaint for s in states],
        )

    async def withdraw(self, evidence: Sequence[tuple[RecipientKey, EventId]]) -> int:
        """Withdraws suppressions of all tenants that rest on evidence which has a tenant now."""
        rows = await self._connection.fetch(
            query("withdraw_unattributed"), [key for key, _ in evidence], [i for _, i in evidence]
        )
        return len(rows)

    async def remember_attempts(self, forgotten: Sequence[Placed]) -> int:
        """Keeps attempts that only their events know; how many of their messages SES took twice."""
        rows = await self._connection.fetch(
            query("insert_forgotten_attempts"),
            [p.attempt_id for p in forgotten],
            [p.outbox_id for p in forgotten],
            [p.event.provider_message_id for p in forgotten],
            [p.event.time for p in forgotten],
        )
        return len(rows)

    async def settle(self, outbox_ids: Sequence[UUID]) -> Settled:
        """Settles rows by the evidence that there is; those under a call or a lock are left for later."""
        row = await self._connection.fetchrow(query("settle_ambiguous"), outbox_ids, PROOF)
        return Settled() if row is None else Settled(**row)


def _payload(event: DeliveryEvent) -> str:
    """The data of the event as the topic carries it; BadMessage if it is nested too deep."""
    try:
        data: dict[str, Any] = orjson.loads(encode(event))["data"]
        return orjson.dumps(data).decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise BadMessage("a payload that cannot be written as JSON") from error


def _event(row: asyncpg.Record) -> DeliveryEvent:
    """The event as it was kept."""
    return decode(
        orjson.dumps(
            {
                "id": row["event_id"],
                "type": TYPE_PREFIX + row["type"],
                "source": PROVIDER_SOURCE,
                "time": row["at"],
                "data": orjson.Fragment(row["payload"]),
            }
        )
    )


def _is_conflict(error: BaseException | None) -> bool:
    return isinstance(error, (asyncpg.DeadlockDetectedError, asyncpg.SerializationError))


def _is_refused_argument(error: BaseException | None) -> bool:
    """asyncpg's own refusal of an argument; its name is taken by an error of the server."""
    return isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
