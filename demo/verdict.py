"""What was found, compared with the script and with the simulator's ledger. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import quantiles
from typing import Any, Final
from uuid import UUID

from demo.plan import FINAL_STATE, Kind, Plan

FINAL: Final = frozenset(("submitted", "suppressed", "failed", "expired", "cancelled"))
# The simulator's event types and the columns of recipient_outcome that they must have filled.
FACT_COLUMN: Final = {
    "Send": "accepted_at",
    "Delivery": "delivered_at",
    "Bounce": "bounced_at",
    "Complaint": "complained_at",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the servers hold at the end. states: by outbox id; facts: (outbox id, recipient key) -> filled columns;
    suppressed_at: by recipient key; keys: address -> recipient key."""

    states: Mapping[UUID, str]
    ledger: Sequence[Mapping[str, Any]]
    facts: Mapping[tuple[UUID, str], frozenset[str]]
    suppressed_at: Mapping[str, datetime]
    keys: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The numbers of the last line, and what is wrong in words."""

    numbers: Mapping[str, int | float | None]
    faults: Sequence[str]


def judge(
    plan: Plan,
    ids: Mapping[int, UUID],
    committed_at: Mapping[UUID, float],
    found: Found,
    *,
    twins_made_anew: int = 0,
) -> Verdict:
    """Every count against what the script says it must be. twins_made_anew: calls under a used dedup key that gave another id."""
    accepted = Counter(UUID(call["outbox"]) for call in found.ledger if call["outbox"])
    kinds = {ids[m.number]: m.kind for m in plan.messages if m.number in ids}
    states = Counter(found.states.values())
    lost = [i for i, kind in kinds.items() if _is_lost(i, kind, found, accepted)]
    unexpected = [
        i
        for i, kind in kinds.items()
        if found.states.get(i) in FINAL and found.states[i] != FINAL_STATE[kind]
    ]
    uncommitted = [i for i in accepted if i not in kinds] + [
        i for i in found.states if i not in kinds
    ]
    twice = sum(count - 1 for count in accepted.values())
    to_suppressed = _sent_to_suppressed(plan, kinds, found)
    missing = _missing_facts(found)
    latency = _percentiles(_commit_to_ses(plan, ids, committed_at, found.ledger))
    delay = _percentiles(_event_to_suppression(found))
    numbers: dict[str, int | float | None] = {
        "committed": len(kinds),
        **{s: states[s] for s in ("submitted", "suppressed", "failed", "expired", "ambiguous")},
        "lost": len(lost),
        "sent_twice": twice,
        "sent_to_suppressed": to_suppressed,
        "sent_uncommitted": len(uncommitted),
        "facts_missing": missing,
        "twins_made_anew": twins_made_anew,
        "ledger_accepted": len(found.ledger),
        "commit_to_ses_ms_p50": latency[0],
        "commit_to_ses_ms_p99": latency[1],
        "event_to_suppression_ms_p50": delay[0],
        "event_to_suppression_ms_p99": delay[1],
    }
    return Verdict(numbers=numbers, faults=_faults(plan, states, numbers, len(unexpected)))


def _is_lost(outbox_id: UUID, kind: Kind, found: Found, accepted: Counter[UUID]) -> bool:
    """Gone, not at an end, or called sent although SES never had it."""
    state = found.states.get(outbox_id)
    if state is None or state not in FINAL:
        return True
    wanted = FINAL_STATE[kind] == "submitted"
    return (wanted or state == "submitted") and accepted[outbox_id] == 0


def _sent_to_suppressed(plan: Plan, kinds: Mapping[UUID, Kind], found: Found) -> int:
    forbidden = set(plan.suppressed_before)
    return sum(
        1
        for call in found.ledger
        if forbidden & set(call["recipients"])
        or (call["outbox"] and kinds.get(UUID(call["outbox"])) is Kind.FOLLOW_UP)
    )


def _missing_facts(found: Found) -> int:
    """Facts that the simulator published and PostgreSQL does not have, and facts that nobody published."""
    published: dict[tuple[UUID, str], set[str]] = {}
    for call in found.ledger:
        for fact in call["facts"]:
            if fact["event"] in FACT_COLUMN and call["outbox"]:
                key = (UUID(call["outbox"]), found.keys.get(fact["recipient"], fact["recipient"]))
                published.setdefault(key, set()).add(FACT_COLUMN[fact["event"]])
    both = published.keys() | found.facts.keys()
    return sum(len(published.get(k, set()) ^ found.facts.get(k, frozenset())) for k in both)


def _commit_to_ses(
    plan: Plan,
    ids: Mapping[int, UUID],
    committed_at: Mapping[UUID, float],
    ledger: Sequence[Mapping[str, Any]],
) -> list[float]:
    at_once = {ids[m.number] for m in plan.messages if m.due_in_s is None and m.number in ids}
    return [
        (datetime.fromisoformat(call["accepted_at"]).timestamp() - committed_at[outbox_id]) * 1000
        for call in ledger
        if call["outbox"] and (outbox_id := UUID(call["outbox"])) in at_once
    ]


def _event_to_suppression(found: Found) -> list[float]:
    """From the event's publication by SES to the suppression's commit, for bounces and complaints."""
    delays = []
    for call in found.ledger:
        for fact in call["facts"]:
            at = found.suppressed_at.get(found.keys.get(fact["recipient"], ""))
            if fact["event"] in ("Bounce", "Complaint") and at is not None:
                delays.append(
                    (at - datetime.fromisoformat(fact["published_at"])).total_seconds() * 1000
                )
    return delays


def _percentiles(values: Sequence[float]) -> tuple[float | None, float | None]:
    if len(values) < 2:
        return None, None
    cuts = quantiles(values, n=100, method="inclusive")
    return round(cuts[49], 1), round(cuts[98], 1)


def _faults(
    plan: Plan, states: Counter[str], numbers: Mapping[str, int | float | None], unexpected: int
) -> list[str]:
    faults = [
        f"{state}: {states[state]} rows instead of {plan.expected_states[state]}"
        for state in sorted(states.keys() | plan.expected_states.keys())
        if states[state] != plan.expected_states[state]
    ]
    must_be_zero = (
        "lost",
        "sent_twice",
        "sent_to_suppressed",
        "sent_uncommitted",
        "ambiguous",
        "facts_missing",
        "twins_made_anew",
    )
    faults += [f"{name} is {numbers[name]} instead of 0" for name in must_be_zero if numbers[name]]
    if unexpected:
        faults.append(f"{unexpected} rows ended in another state than the script says")
    if numbers["committed"] != len(plan.messages):
        faults.append(
            f"{numbers['committed']} messages were committed instead of {len(plan.messages)}"
        )
    return faults
