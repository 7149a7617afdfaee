"""mail.delivery-events from its beginning -> facts and suppressions once more, compared with the live ones; mended if asked to.

The same fold fills scratch tables from the records that the topic still has. What the live tables hold besides, because the topic
has dropped its records, is told apart by time and partition, and is left alone.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from streams.domain import derivation
from streams.domain.bounce_rules import RULES
from streams.domain.delivery_events import DeliveryEvent
from streams.domain.errors import BadMessage, Unavailable
from streams.domain.event_records import read_event
from streams.domain.facts import RecipientState
from streams.domain.rebuilding import Comparison, Difference, Rebuilt, Table, pages
from streams.domain.records import Record
from streams.folding.fold import fold
from streams.ports.rebuild import Folding, LiveFacts, OutcomePage, Scratch, TopicPast
from streams.ports.recipients import EvidencePage, FactsTransaction
from streams.reclassify import decide

log = logging.getLogger(__name__)

PATIENCE_S: Final = 30.0
# Longer than the stage takes between two looks at unmatched events.
SECOND_LOOK_S: Final = 5.0
_LOOK_S: Final = 0.5
_PAGE: Final = 1000
_MENDED_AT_ONCE: Final = 200
# Each round mends at most as many rows as a comparison keeps.
_ROUNDS: Final = 1000


@dataclass(slots=True)
class Progress:
    """What has been read so far."""

    what: str
    records: int = 0
    of: int = 0


class Rebuild:
    """One run. told is called after each batch."""

    def __init__(
        self,
        *,
        past: TopicPast,
        scratch: Scratch,
        live: LiveFacts,
        patience_s: float = PATIENCE_S,
        second_look_s: float = SECOND_LOOK_S,
        told: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._past = past
        self._scratch = scratch
        self._live = live
        self._patience_s = patience_s
        self._second_look_s = second_look_s
        self._told = told
        self._unreadable = 0
        self._of = 0

    async def check(self) -> Rebuilt:
        """Compares, and changes nothing. Unavailable if the stage recipients is behind the topic's end for too long."""
        records = await self._rebuild()
        await self._all_folded()
        await self._finish()
        comparison, changed = await self._compare()
        if not comparison.is_equal:
            # The stage may just be about to match an event that the rebuilt facts have matched already.
            await asyncio.sleep(self._second_look_s)
            comparison, changed = await self._compare()
        return self._end(
            Rebuilt(
                records=records,
                unreadable=self._unreadable,
                horizon=self._past.horizon(),
                comparison=comparison,
                changed=changed,
            )
        )

    async def apply(self) -> Rebuilt:
        """Folds the topic's past into the live tables too, then derives again what still differs."""
        records = await self._rebuild()
        folded = await self._fold_all(self._live, "folded into the live tables")
        await self._finish()
        mended = 0
        comparison, changed = await self._compare()
        for _ in range(_ROUNDS):
            if comparison.is_equal:
                break
            before = comparison.total
            mended += await self._mend(comparison.found)
            comparison, changed = await self._compare()
            if comparison.total >= before:
                break
        return self._end(
            Rebuilt(
                records=records,
                unreadable=self._unreadable,
                horizon=self._past.horizon(),
                comparison=comparison,
                changed=changed,
                folded=folded,
                mended=mended,
            )
        )

    async def _rebuild(self) -> int:
        await self._scratch.begin()
        self._of = await self._past.capture()
        return await self._fold_all(self._scratch, "rebuilt")

    async def _finish(self) -> None:
        """Messages that became known meanwhile are known to the live facts: only now to the rebuilt ones too."""
        await _match(self._scratch)
        await self._scratch.finish()

    async def _fold_all(self, where: Folding, what: str) -> int:
        """Folds every record that was captured; how many there were."""
        progress = Progress(what=what, of=self._of)
        self._unreadable = 0
        async for records in self._past.batches():
            events = self._read(records)
            if events:
                self._unreadable += await _fold(where, events)
            progress.records += len(records)
            self._told(progress)
        await _match(where)
        return progress.records

    def _read(self, records: Sequence[Record]) -> list[DeliveryEvent]:
        events = []
        for record in records:
            try:
                event = read_event(record.value)
            except BadMessage:
                # The stage has set it aside, with its reason.
                self._unreadable += 1
            else:
                if not event.type.is_life_cycle:
                    events.append(event)
        return events

    async def _all_folded(self) -> None:
        """Waits until the stage has committed everything up to the captured end."""
        deadline = time.monotonic() + self._patience_s
        while behind := await self._past.unfolded():
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the stage recipients has not folded {behind} of the records yet: see that it runs, then check again"
                )
            await asyncio.sleep(_LOOK_S)

    async def _compare(self) -> tuple[Comparison, int]:
        comparison = Comparison(self._past.horizon())
        changed = await self._scratch.compare(comparison)
        return comparison, changed

    async def _mend(self, found: Sequence[Difference]) -> int:
        """Derives the facts of these rows again from what is stored; how many recipients."""
        for rows in pages(found, Table.OUTCOMES, _MENDED_AT_ONCE):
            await self._live.transact_outcomes(rows, _mend_outcomes)
        keys = sorted(
            {d.recipient_key for d in found if d.table in (Table.STATES, Table.SUPPRESSIONS)}
        )
        for at in range(0, len(keys), _MENDED_AT_ONCE):
            some = keys[at : at + _MENDED_AT_ONCE]
            if states := await self._scratch.states(some):
                await self._live.transact(partial(_merge, states=states))
            await self._live.evidence.transact(some, _mend_recipients)
        return len({d.recipient_key for d in found})

    def _end(self, found: Rebuilt) -> Rebuilt:
        log.info(
            "facts were rebuilt from the topic",
            extra={
                "action": "facts.rebuilt",
                "equal": found.is_equal,
                "applied": found.folded is not None,
                "records": found.records,
            },
        )
        return found


async def _fold(where: Folding, events: Sequence[DeliveryEvent]) -> int:
    """Folds them; how many PostgreSQL refuses, found by halving."""
    try:
        await where.transact(partial(fold, events=events))
    except BadMessage:
        if len(events) == 1:
            return 1
        half = len(events) // 2
        return await _fold(where, events[:half]) + await _fold(where, events[half:])
    return 0


async def _match(where: Folding) -> None:
    """Folds kept events again whose message is known by now, until there is none."""
    before = datetime.now(UTC)
    matched = True
    while matched:
        matched = False
        after: datetime | None = datetime.min.replace(tzinfo=UTC)
        while after is not None:
            page = await where.unmatched(after=after, before=before, limit=_PAGE)
            if page.events:
                folded = await where.transact(partial(fold, events=page.events))
                matched = matched or bool(folded.kept)
            after = page.last_received if page.examined == _PAGE else None


async def _mend_outcomes(page: OutcomePage) -> None:
    """An outcome of which no event is stored stays: it may be all that is left of it."""
    outcomes = derivation.fold(await page.lock(), rules=RULES).outcomes
    if outcomes:
        await page.replace(outcomes)


async def _merge(transaction: FactsTransaction, *, states: Sequence[RecipientState]) -> None:
    await transaction.lock(sorted(state.scope for state in states))
    await transaction.merge_states(states)


async def _mend_recipients(page: EvidencePage) -> None:
    """What the stored evidence leads to, with the lifts that there are; none is added."""
    decided = list(decide(await page.lock(), RULES).values())
    if states := [state for one in decided for state in one.states]:
        await page.restate(states)
    gone = [row.scope for one in decided for row in one.moved]
    gone += [lifted.row.scope for one in decided for lifted in one.lifted]
    if gone:
        await page.suppressions.withdraw(gone)
    if written := [s for one in decided for s in (*one.added, *one.replaced)]:
        await page.suppressions.replace(written)
