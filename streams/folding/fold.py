"""One batch of events in one transaction: correlate, lock, keep, add up what is new, derive streaks, suppress, settle.

What only adds up is merged. What is derived from a history (streaks, and what is known of recipients without a tenant) is
derived again from the stored events where this batch may change it, and replaces what was there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from streams.domain import derivation
from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import (
    ANY,
    RULES,
    RuleSet,
    Suppression,
    SuppressionReason,
    suppression_for,
)
from streams.domain.delivery_events import DeliveryEvent, EventId
from streams.domain.facts import (
    Kept,
    Placed,
    RecipientScope,
    RecipientState,
    Settled,
    distinct,
    merge_states,
)
from streams.domain.lifts import NO_LIFTS, Lifts, Scope
from streams.domain.soft_bounces import SoftBounce, suppression_by_streak
from streams.ports.recipients import FactsTransaction, SuppressionRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """What one transaction did."""

    kept: Sequence[Kept] = ()
    settled: Settled = field(default_factory=Settled)
    suppressions: int = 0
    withdrawn: int = 0
    forgotten: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftHistory:
    """One tenant's recipient and its soft bounces since the last delivery."""

    state: RecipientState
    bounces: Sequence[SoftBounce]

    @property
    def scope(self) -> Scope:
        """The suppression that a streak of them causes."""
        return self.state.recipient_key, self.state.tenant, ANY, SuppressionReason.SOFT_BOUNCES

    def suppression(self, rules: RuleSet, lifts: Lifts = NO_LIFTS) -> Suppression | None:
        return suppression_by_streak(
            self.state.scope,
            self.bounces,
            last_delivery=self.state.last_delivery,
            lifts=lifts,
            rules=rules,
        )


async def fold(
    transaction: FactsTransaction, *, events: Sequence[DeliveryEvent], rules: RuleSet = RULES
) -> Folded:
    """Folds one batch. Any order, repetition and division of events into batches leaves the same rows."""
    placed = await transaction.correlate(distinct(events))
    before = await transaction.lock(_scopes(placed))
    kept = await transaction.keep(placed)
    # Another fold may have kept an event meanwhile without its message. Out of order: a deadlock starts this from anew.
    if missing := sorted({(ANY, p.event.recipient_key) for p in _late(kept)} - before.keys()):
        before |= await transaction.lock(missing)
    batch = _Batch(before, kept, rules)
    await batch.merge(transaction)
    await batch.derive(transaction)
    suppressed, withdrawn = await batch.suppress(transaction.suppressions)
    taken = batch.taken
    forgotten = [p for p in taken if p.forgotten]
    if forgotten:
        await transaction.remember_attempts(forgotten)
    outbox_ids = sorted({p.outbox_id for p in taken if p.outbox_id is not None})
    return Folded(
        kept=kept,
        settled=await transaction.settle(outbox_ids) if outbox_ids else Settled(),
        suppressions=suppressed,
        withdrawn=withdrawn,
        forgotten=len(forgotten),
    )


class _Batch:
    """The events that one transaction took, under the locks of their recipients."""

    def __init__(
        self,
        before: Mapping[RecipientScope, RecipientState],
        kept: Sequence[Kept],
        rules: RuleSet,
    ) -> None:
        self.taken = [k.placed for k in kept]
        self._late = _late(kept)
        self._rules = rules
        self._before = before
        self._added = derivation.fold(self.taken, rules=rules)
        self._states = dict(before)
        self._states |= {s.scope: merge_states(before[s.scope], s) for s in self._added.states}
        self._unattributed: list[Placed] = []
        self._soft: list[SoftHistory] = []

    async def merge(self, transaction: FactsTransaction) -> None:
        """Adds what only adds up."""
        if self._added.outcomes:
            await transaction.merge_outcomes(self._added.outcomes)
        if self._added.states:
            await transaction.merge_states(self._added.states)

    async def derive(self, transaction: FactsTransaction) -> None:
        """Derives again what may have changed otherwise than by adding."""
        scopes = derivation.streaks_to_derive(self.taken, self._before, self._rules)
        if self._late:
            scopes |= await self._derive_unattributed(transaction)
        if not scopes:
            return
        ends = {scope: self._states[scope].last_delivery for scope in scopes}
        found = derivation.soft_bounces_among(await transaction.soft_bounces(ends), self._rules)
        self._soft = [
            SoftHistory(state=self._states[scope], bounces=found.get(scope, ()))
            for scope in sorted(scopes)
        ]
        await transaction.restate_streaks(
            [derivation.with_streak(soft.state, soft.bounces) for soft in self._soft]
        )

    async def _derive_unattributed(self, transaction: FactsTransaction) -> set[RecipientScope]:
        """What was known of no tenant is derived from the events that still have none."""
        keys = sorted({p.event.recipient_key for p in self._late})
        self._unattributed = await transaction.unattributed(keys)
        derived = derivation.derive(self._unattributed, rules=self._rules)
        states = {state.scope: state for state in derived.states}
        seen = {p.event.time for p in (*self._unattributed, *self._late)}
        scopes = {(ANY, key) for key in keys}
        for scope in scopes:
            empty = RecipientState(tenant=ANY, recipient_key=scope[1])
            found = states.get(scope, empty)
            self._states[scope] = derivation.restated(self._states[scope], found, seen)
        await transaction.restate([self._states[scope] for scope in sorted(scopes)])
        return scopes

    async def suppress(self, rows: SuppressionRows) -> tuple[int, int]:
        """Puts in and withdraws; how many rows each. Recipients whose suppressions do not change are not touched."""
        softly = (
            await rows.suppressed_softly([s.state.scope for s in self._soft]) if self._soft else ()
        )
        streaks = [
            s
            for s in self._soft
            if s.state.scope in softly or s.suppression(self._rules) is not None
        ]
        keys = {s.recipient_key for s in self._added.suppressions}
        keys |= {s.state.recipient_key for s in streaks}
        if not keys:
            return 0, 0
        lifts = await rows.lock(keys)
        evidence = self.taken
        withdrawn = 0
        if moved := [found for late in self._late for found in _moved(late, self._rules)]:
            withdrawn += await rows.withdraw_unattributed(moved)
            affected = {key for key, _, _ in moved}
            others = (p for p in self._unattributed if p.event.recipient_key in affected)
            evidence = [*self.taken, *others]
        added = derivation.fold(evidence, lifts=lifts, rules=self._rules).suppressions
        suppressed = await rows.suppress(added) if added else 0
        now = datetime.now(UTC)
        wanted = {s.scope: s.suppression(self._rules, lifts) for s in streaks}
        in_force = [found for found in wanted.values() if found is not None and found.in_force(now)]
        if over := wanted.keys() - {found.scope for found in in_force}:
            withdrawn += await rows.withdraw(over)
        if in_force:
            suppressed += await rows.replace(in_force)
        return suppressed, withdrawn


def _late(kept: Sequence[Kept]) -> list[Placed]:
    """Events that were kept before, without their message, which is known now, or without their attempt."""
    return [k.placed for k in kept if not k.is_new and k.placed.outbox_id is not None]


def _moved(
    late: Placed, rules: RuleSet
) -> Iterator[tuple[RecipientKey, EventId, SuppressionReason]]:
    """What the event suppressed for all tenants and now suppresses for its own."""
    before = suppression_for(late.event, tenant=None, rules=rules)
    after = suppression_for(late.event, tenant=late.tenant, rules=rules)
    if before is not None and after is not None and before.scope != after.scope:
        yield before.recipient_key, before.evidence_id, before.reason


def _scopes(placed: Sequence[Placed]) -> list[RecipientScope]:
    """The recipients' rows that a fold of these may change."""
    unattributed = {(ANY, p.event.recipient_key) for p in placed if p.stored_unmatched}
    return sorted({p.scope for p in placed} | unattributed)
