"""Compares what became of a ses_send variant with its expectations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.cases.differences import Difference
from tests.cases.event_checks import key_of, named
from tests.cases.loading import Variant
from tests.cases.send_found import Found, in_seconds, most_in_window
from tests.cases.send_requests import check_request
from tests.cases.send_state import OutboxRow
from tests.cases.ses_script import Script
from tests.cases.words import fits

Expect = Mapping[str, Any]


def observed(variant: Variant, found: Found, script: Script) -> list[Difference]:
    """All that is so at the end of the observation."""
    expect: Expect = variant["expect"]
    differences = [
        *_calls(expect, found, script),
        *_outcomes(expect, found),
        *_states(expect, found, variant.get("rows", 1)),
        *_charged(expect, found),
        *_pauses(expect, found),
        *_retry(expect, found),
        *_windows(expect, script),
        *_throttled(expect, script),
    ]
    if wanted := expect.get("request"):
        requests = [call.request for call in found.calls if call.request is not None]
        differences += check_request(wanted, requests)
    return differences


def _calls(expect: Expect, found: Found, script: Script) -> list[Difference]:
    differences = []
    if expect["calls"] is not None and not fits(len(found.calls), expect["calls"]):
        shown = [_shown(call) for call in found.calls[:20]]
        differences.append(
            Difference(key="calls", expected=expect["calls"], found=f"{len(found.calls)}: {shown}")
        )
    if script.beyond:
        differences.append(
            Difference(key="stub", expected="no call beyond its end", found=script.beyond)
        )
    if wrong := sorted({call.wrong for call in found.calls if call.wrong is not None}):
        differences.append(Difference(key="request", expected="a call that SES reads", found=wrong))
    return differences


def _shown(call: Any) -> str:
    return str(call.answer.get("fault") or call.status)


def _outcomes(expect: Expect, found: Found) -> list[Difference]:
    wanted: Sequence[Any] | None = expect["outcomes"]
    if not wanted:
        return []
    differences = []
    for number, (call, attempt) in enumerate(found.paired()):
        allowed = wanted[min(number, len(wanted) - 1)]
        if allowed is None or (attempt is None and call.ended is None):
            continue
        outcome = None if attempt is None else attempt.outcome
        if outcome not in allowed:
            differences.append(
                Difference(key=f"outcomes: {number + 1}", expected=allowed, found=outcome)
            )
    return differences


def _states(expect: Expect, found: Found, count: int) -> list[Difference]:
    counts = Counter(row.state for row in found.rows)
    if found.refused is not None:
        counts["refused"] += count
    if "row_state" in expect:
        allowed, [state] = expect["row_state"], counts or ["none"]
        if allowed is None or state in allowed:
            return []
        why = next((row.reason for row in found.rows), str(found.refused))
        shown = state if why is None else f"{state}: {why}"
        return [Difference(key="row_state", expected=allowed, found=shown)]
    wanted: Mapping[str, Any] | None = expect["row_states"]
    if wanted is None:
        return []
    wrong = any(
        not fits(counts[state], wanted.get(state, 0)) for state in counts.keys() | wanted.keys()
    )
    if not wrong:
        return []
    return [Difference(key="row_states", expected=wanted, found=dict(counts))]


def _charged(expect: Expect, found: Found) -> list[Difference]:
    wanted = expect["attempts_charged"]
    if wanted is None:
        return []
    counts = Counter(row.charged for row in found.rows)
    if all(fits(charged, wanted) for charged in counts):
        return []
    shown: Any = dict(counts) if len(found.rows) > 1 else found.rows[0].charged
    return [Difference(key="attempts_charged", expected=wanted, found=shown)]


def _pauses(expect: Expect, found: Found) -> list[Difference]:
    allowed = expect["pauses"]
    if allowed is None:
        return []
    seen: set[str | None] = {*found.pauses} or {None}
    if seen <= set(allowed):
        return []
    return [Difference(key="pauses", expected=allowed, found=sorted(map(str, seen)))]


def _retry(expect: Expect, found: Found) -> list[Difference]:
    wanted, after = expect["retry_after_s"], found.retry_after_s
    if wanted is None or (after is not None and fits(after, wanted)):
        return []
    return [Difference(key="retry_after_s", expected=wanted, found=in_seconds(after))]


def _windows(expect: Expect, script: Script) -> list[Difference]:
    differences = []
    for window in expect.get("windows") or ():
        most = most_in_window(script.accepted, window["seconds"])
        if most > window["max"]:
            key = f"windows: {window['seconds']} s"
            differences.append(Difference(key=key, expected=window["max"], found=most))
    return differences


def _throttled(expect: Expect, script: Script) -> list[Difference]:
    wanted = expect.get("throttled_calls")
    given = sum(call.status == 429 for call in script.calls)
    if wanted is None or fits(given, wanted):
        return []
    return [Difference(key="throttled_calls", expected=wanted, found=given)]


def afterwards(expect: Expect, rows: Sequence[OutboxRow], suppressed: set[str]) -> list[Difference]:
    """What has to be so after the deliveries."""
    differences = []
    if expect["suppressed"] is not None:
        names = {key_of(address): address for address in expect["suppressed"]}
        if suppressed != set(names):
            wanted, there = ([named(k, names) for k in sorted(s)] for s in (set(names), suppressed))
            differences.append(Difference(key="suppressed", expected=wanted, found=there))
    allowed = expect.get("row_state_after")
    if allowed is not None and any(row.state not in allowed for row in rows):
        states = sorted({row.state for row in rows})
        differences.append(Difference(key="row_state_after", expected=allowed, found=states))
    return differences


def events(expect: Expect, published: Sequence[str]) -> list[Difference]:
    """Life-cycle events that must be there; others may be too."""
    if expect["events"] is None or set(expect["events"]) <= set(published):
        return []
    return [Difference(key="events", expected=expect["events"], found=sorted(published))]
