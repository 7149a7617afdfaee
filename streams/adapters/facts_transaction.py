"""The statements of one fold, in one transaction."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg
import orjson

from streams.adapters.postgres import Connection
from streams.adapters.queries import query
from streams.adapters.suppression_rows import SuppressionRows
from streams.domain.addresses import RecipientKey
from streams.domain.delivery_events import (
    PROVIDER_SOURCE,
    TYPE_PREFIX,
    DeliveryEvent,
    EventType,
    decode,
    encode,
)
from streams.domain.errors import BadMessage
from streams.domain.facts import (
    PROOF_OF_ACCEPTANCE,
    Kept,
    Placed,
    RecipientOutcome,
    RecipientScope,
    RecipientState,
    Settled,
)
from streams.domain.soft_bounces import Alike, SoftBounce

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


class FactsTransaction:
    """The statements of one fold."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.suppressions = SuppressionRows(connection)

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

    async def lock(self, scopes: Sequence[RecipientScope]) -> dict[RecipientScope, RecipientState]:
        """Locks the recipients' rows, making those that are missing, and returns them; nothing of their history may be read before."""
        return {state.scope: state for state in await lock_recipients(self._connection, scopes)}

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

    async def unattributed(self, keys: Sequence[RecipientKey]) -> list[Placed]:
        """What is kept of these recipients and belongs to no known message."""
        rows = await self._connection.fetch(query("find_unattributed_events"), keys)
        return [Placed(event=event_of(row)) for row in rows]

    async def soft_bounces(
        self, last_deliveries: Mapping[RecipientScope, datetime | None]
    ) -> list[Alike]:
        """The kept bounces of these tenants' recipients since their last delivery, put together by what they say."""
        scopes = sorted(last_deliveries)
        rows = await self._connection.fetch(
            query("find_soft_bounces"),
            *columns_of(scopes),
            [last_deliveries[scope] for scope in scopes],
        )
        alike: dict[tuple[str | None, RecipientKey, str], Alike] = {}
        for row in rows:
            says = row["tenant"], row["recipient_key"], row["bounce"]
            found = alike.get(says)
            if found is None:
                found = alike[says] = Alike(tenant=row["tenant"], event=_bounce_of(row), members=[])
            found.members.append(
                SoftBounce(at=row["at"], event_id=row["event_id"], message=row["message"])
            )
        return list(alike.values())

    async def restate(self, states: Sequence[RecipientState]) -> None:
        """Sets the locked rows to exactly this."""
        await restate_recipients(self._connection, states)

    async def restate_streaks(self, states: Sequence[RecipientState]) -> None:
        """Sets the streaks of the locked rows to exactly this."""
        await self._connection.execute(
            query("restate_streaks"),
            *columns_of([s.scope for s in states]),
            [s.soft_bounce_streak for s in states],
            [s.soft_bounces_since for s in states],
        )

    async def remember_attempts(self, forgotten: Sequence[Placed]) -> None:
        """Keeps attempts that only their events know."""
        await self._connection.execute(
            query("insert_forgotten_attempts"),
            [p.attempt_id for p in forgotten],
            [p.outbox_id for p in forgotten],
            [p.event.provider_message_id for p in forgotten],
            [p.event.time for p in forgotten],
        )

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


async def lock_recipients(
    connection: Connection, scopes: Sequence[RecipientScope]
) -> list[RecipientState]:
    """Makes the rows that are missing, locks all in the order of their keys, returns them as they are then."""
    columns = columns_of(scopes)
    await connection.execute(query("insert_recipients"), *columns)
    rows = await connection.fetch(query("lock_recipients"), *columns)
    return [RecipientState(**row) for row in rows]


async def restate_recipients(connection: Connection, states: Sequence[RecipientState]) -> None:
    """Sets the locked rows to exactly this."""
    await connection.execute(
        query("restate_recipients"),
        *columns_of([s.scope for s in states]),
        [s.last_delivery for s in states],
        [s.hard_bounce for s in states],
        [s.complaint for s in states],
        [s.soft_bounce_streak for s in states],
        [s.soft_bounces_since for s in states],
    )


def columns_of(scopes: Sequence[RecipientScope]) -> tuple[list[str], list[RecipientKey]]:
    """The tenants and the recipients, as two parameters."""
    return [tenant for tenant, _ in scopes], [key for _, key in scopes]


def placed_of(row: asyncpg.Record) -> Placed:
    """The event as it was kept, with its message."""
    return Placed(event=event_of(row), outbox_id=row["outbox_id"], tenant=row["tenant"])


def event_of(row: asyncpg.Record) -> DeliveryEvent:
    """The event as it was kept."""
    return _event(row, row["type"], orjson.Fragment(row["payload"]))


def _bounce_of(row: asyncpg.Record) -> DeliveryEvent:
    """A bounce with what it says and whom it is about, no more."""
    bounce = None if row["bounce"] is None else orjson.Fragment(row["bounce"])
    data = {"recipient_key": row["recipient_key"], "bounce": bounce}
    return _event(row, EventType.BOUNCED, data)


def _event(row: asyncpg.Record, kind: str, data: object) -> DeliveryEvent:
    return decode(
        orjson.dumps(
            {
                "id": row["event_id"],
                "type": TYPE_PREFIX + kind,
                "source": PROVIDER_SOURCE,
                "time": row["at"],
                "data": data,
            }
        )
    )
