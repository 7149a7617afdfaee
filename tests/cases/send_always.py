"""What always holds for a ses_send variant, whatever it expects."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.cases import event_checks
from tests.cases.differences import Difference
from tests.cases.loading import Variant
from tests.cases.send_found import Found
from tests.cases.ses_script import Call, Script

# A Kafka record beyond this stops a producer.
_LARGEST_RECORD: Final = 900_000
_WORDS: Final = re.compile(r"[A-Za-z0-9_-]{2,}")
_FEWEST_WORDS: Final = 4
# Clocks, and the time that it takes to look.
_TOLERANCE_S: Final = 0.5


def calls(found: Found, script: Script) -> list[Difference]:
    """Nobody is mailed twice, and a row has one call at a time."""
    accepted = Counter(_row(call) for call in script.calls if call.accepted_at is not None)
    twice = sorted(row for row, times in accepted.items() if times > 1)
    both = sorted({_row(call) for call in _overlapping(found.calls)})
    return [
        *_unless(not twice, "accepted", "no row accepted by SES twice", twice),
        *_unless(not both, "at a time", "one call for a row at a time", both),
    ]


def _row(call: Call) -> str:
    return ", ".join(sorted(call.recipients)) or "unknown"


def _overlapping(seen: Sequence[Call]) -> Iterator[Call]:
    until: dict[str, float] = {}
    for call in sorted((c for c in seen if c.request is not None), key=lambda c: c.arrived):
        row = _row(call)
        if until.get(row, 0.0) > call.arrived:
            yield call
        until[row] = max(until.get(row, 0.0), call.ended or float("inf"))


def leases(found: Found) -> list[Difference]:
    """A call ends before its lease."""
    late = [
        round(call.ended - end, 3)
        for call in found.calls
        if call.ended is not None and (end := found.leases.get(call.attempt or "")) is not None
        if call.ended > end + _TOLERANCE_S
    ]
    return _unless(not late, "lease", "a call ends before its lease", late)


def reasons(variant: Variant, found: Found) -> list[Difference]:
    """A row that failed or was refused says what to change, and not to whom it was to go."""
    told = [] if found.refused is None else [str(found.refused)]
    for row in found.rows:
        if row.state == "failed":
            told += [row.reason or "", found.dead_letters.get(row.id, "")]
    address = variant["row"]["recipient"].strip().lower()
    bad = [
        reason
        for reason in told
        if len(_WORDS.findall(reason)) < _FEWEST_WORDS or (address and address in reason.lower())
    ]
    return _unless(not bad, "reason", "what to change, without an address", bad)


def survival(dead: Sequence[str]) -> list[Difference]:
    return _unless(not dead, "survival", "every stage still runs", list(dead))


def network(refused: Sequence[str], strange: Sequence[str]) -> list[Difference]:
    """No redirect is followed, and nobody else is asked."""
    others = [*refused, *strange]
    return _unless(not others, "network", "no other request", others)


def logs(variant: Variant, lines: Sequence[str], told: Sequence[str]) -> list[Difference]:
    """No traceback; no address in a log or a topic; no content in a topic."""
    broken = [line for line in lines if "Traceback" in line or _has_exception(line)]
    large = [len(text) for text in told if len(text.encode()) > _LARGEST_RECORD]
    return [
        *_unless(not broken, "log", "no traceback", broken[:3]),
        *_unless(not large, "topic", "no record with the content", large[:3]),
        *event_checks.leaks_of(_addresses(variant), {"logs": lines, "topics": told}),
    ]


def _has_exception(line: str) -> bool:
    try:
        return "exception" in json.loads(line)
    except (ValueError, TypeError):
        return False


def _addresses(variant: Variant) -> Any:
    return {"row": variant["row"], "deliveries": variant.get("deliveries", [])}


def _unless(holds: bool, key: str, expected: str, found: Any) -> list[Difference]:
    return [] if holds else [Difference(key=key, expected=expected, found=found)]
