"""What another version of the bounce rules changes in the suppressions that stored evidence has led to: a decision, nothing is written."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Final

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import RuleSet, Suppression, SuppressionReason
from streams.domain.delivery_events import EventId
from streams.domain.derivation import derive, restated
from streams.domain.facts import Placed, RecipientScope, RecipientState
from streams.domain.lifts import Lift, Lifts, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressionRow:
    """A row of table suppression as it is; without evidence it was put in by hand, or came from elsewhere."""

    recipient_key: RecipientKey
    tenant: str
    lane: str
    reason: SuppressionReason
    evidence_id: EventId | None
    evidence_at: datetime | None
    unattributed: bool
    rule_version: int
    expires: datetime | None

    @property
    def scope(self) -> Scope:
        return self.recipient_key, self.tenant, self.lane, self.reason

    def says(self, wanted: Suppression) -> bool:
        """It is what the rules want, whichever version put it in."""
        own = self.evidence_id, self.evidence_at, self.unattributed, self.expires
        return own == (
            wanted.evidence_id,
            wanted.evidence_at,
            wanted.unattributed,
            wanted.expires,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is stored of one recipient and counts: events, states and suppressions. The history has no deliveries: the last
    of each tenant stands in its state."""

    recipient_key: RecipientKey
    history: Sequence[Placed]
    states: Sequence[RecipientState]
    rows: Sequence[SuppressionRow]
    lifts: Lifts


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftedRow:
    """A row that the rules of before got wrong, and why it goes. up_to: the time of the lift, which is that of the newest evidence
    that was looked at, so that what is under way and newer still counts."""

    row: SuppressionRow
    why: str
    up_to: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclassified:
    """What there is to write for some recipients.

    moved: rows that go without a lift, since it would lift what this version wants in another scope too.
    """

    added: Sequence[Suppression] = ()
    replaced: Sequence[Suppression] = ()
    lifted: Sequence[LiftedRow] = ()
    moved: Sequence[SuppressionRow] = ()
    states: Sequence[RecipientState] = ()

    @property
    def changes_suppressions(self) -> bool:
        return bool(self.added or self.replaced or self.lifted or self.moved)

    @property
    def changes_anything(self) -> bool:
        return self.changes_suppressions or bool(self.states)


# What can happen to a row of table suppression.
CHANGES: Final = ("added", "lifted", "replaced", "moved")


@dataclass(slots=True)
class Report:
    """Counts of what was, or would be, changed: of rows by the change and their reason, of recipients whose rows change."""

    rules_version: int
    dry_run: bool
    last: RecipientKey | None = None
    recipients: int = 0
    changed: int = 0
    by_change: Mapping[str, Counter[str]] = field(
        default_factory=lambda: {change: Counter() for change in CHANGES}
    )

    def count(self, found: Reclassified) -> None:
        """Takes in what was decided for one recipient."""
        self.recipients += 1
        self.changed += found.changes_suppressions
        self.by_change["added"].update(s.reason.value for s in found.added)
        self.by_change["lifted"].update(one.row.reason.value for one in found.lifted)
        self.by_change["replaced"].update(s.reason.value for s in found.replaced)
        self.by_change["moved"].update(row.reason.value for row in found.moved)

    def as_json(self) -> dict[str, object]:
        return {
            "rules_version": self.rules_version,
            "dry_run": self.dry_run,
            "recipients": self.recipients,
            "changed": self.changed,
            **{change: dict(rows) for change, rows in self.by_change.items()},
            "last": self.last,
        }


def reclassify(evidence: Evidence, *, rules: RuleSet, now: datetime) -> Reclassified:
    """What this version makes of the evidence of one recipient.

    Rows that rest on no stored event are left: they were put in by hand, came from the provider's list, or outlived their event.
    What was lifted stays lifted, and a time that outlived its event stays.
    """
    derived = derive(
        evidence.history, lifts=evidence.lifts, rules=rules, deliveries=_deliveries(evidence.states)
    )
    wanted = {s.scope: s for s in derived.suppressions if s.in_force(now)}
    stored = {placed.event.id for placed in evidence.history}
    rows = {row.scope: row for row in evidence.rows}
    ours = {scope: row for scope, row in rows.items() if row.evidence_id in stored}
    gone = [row for scope, row in ours.items() if scope not in wanted]
    newest = max((placed.event.time for placed in evidence.history), default=now)
    lifted = [row for row in gone if not any(_lift(row, newest).covers(scope) for scope in wanted)]
    return Reclassified(
        added=[s for scope, s in wanted.items() if scope not in rows],
        replaced=[s for scope, s in wanted.items() if scope in ours and not ours[scope].says(s)],
        lifted=[
            LiftedRow(
                row=row, why=f"reclassify v{row.rule_version}->v{rules.version}", up_to=newest
            )
            for row in lifted
        ],
        moved=[row for row in gone if row not in lifted],
        states=_restated(evidence, {state.scope: state for state in derived.states}),
    )


def together(found: Sequence[Reclassified]) -> Reclassified:
    """What there is to write for all of them."""
    return Reclassified(
        added=list(chain.from_iterable(one.added for one in found)),
        replaced=list(chain.from_iterable(one.replaced for one in found)),
        lifted=list(chain.from_iterable(one.lifted for one in found)),
        moved=list(chain.from_iterable(one.moved for one in found)),
        states=list(chain.from_iterable(one.states for one in found)),
    )


def _lift(row: SuppressionRow, at: datetime) -> Lift:
    return Lift(
        recipient_key=row.recipient_key,
        tenant=row.tenant,
        lane=row.lane,
        reason=row.reason,
        at=at,
    )


def _deliveries(states: Sequence[RecipientState]) -> dict[RecipientScope, datetime]:
    return {s.scope: s.last_delivery for s in states if s.last_delivery is not None}


def _restated(
    evidence: Evidence, derived: Mapping[RecipientScope, RecipientState]
) -> list[RecipientState]:
    """The states that change."""
    seen = {placed.event.time for placed in evidence.history}
    found = []
    for stored in evidence.states:
        empty = RecipientState(tenant=stored.tenant, recipient_key=stored.recipient_key)
        state = restated(stored, derived.get(stored.scope, empty), seen)
        found += [state] if state != stored else []
    return found
