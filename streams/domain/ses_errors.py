"""What an answer of SES or a fault means for one message, with a reason that says what to change."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from streams.domain.ses_answers import Answer, Fault, without_addresses
from streams.domain.ses_error_table import TABLE
from streams.domain.ses_patterns import Row, matches

__all__ = ["TABLE", "Meaning", "meaning"]

# Less may be the way of the answer, and is no reason for AWS.
_WORTH_TELLING_S: Final = 60.0
_ENTRY_STATUS: Final = re.compile(r"[A-Z][A-Z_]{1,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """A row of the table together with what SES said, addresses taken out."""

    row: Row
    code: str | None
    http_status: int | None
    reason: str


def meaning(seen: Answer | Fault, *, sender: str, addresses: Iterable[str]) -> Meaning:
    """What an answer or fault means for a message of this sender to these addresses."""
    row = next(row for row in TABLE if matches(row.when, seen, sender))
    if isinstance(seen, Fault):
        reason = f"{row.reason} ({without_addresses(seen.detail)})" if seen.detail else row.reason
        return Meaning(row=row, code=None, http_status=None, reason=reason)
    reason = row.reason
    if seen.entry_status is not None:
        return _of_entry(row, seen, seen.entry_status, (sender, *addresses))
    if seen.status >= 300:
        said = without_addresses(seen.message, (sender, *addresses)) if seen.message else ""
        quoted = ": ".join(part for part in (seen.code, said) if part)
        clock = _clock(seen.clock_ahead_s) if row.name == "clock-skew" else ""
        reason = f"{reason}{clock} (SES said {seen.status} {quoted})"
    return Meaning(row=row, code=seen.code, http_status=seen.status, reason=reason)


def _of_entry(row: Row, seen: Answer, status: str, addresses: tuple[str, ...]) -> Meaning:
    """With the word of SES in the place of a code, and the status that its answer really had."""
    code = status if _ENTRY_STATUS.fullmatch(status) else None
    said = without_addresses(seen.message, addresses) if seen.message else ""
    quoted = ": ".join(part for part in (code or "no status that can be shown", said) if part)
    is_accepted = seen.message_id is not None
    reason = row.reason if is_accepted else f"{row.reason} (SES said of this entry {quoted})"
    return Meaning(
        row=row,
        code=None if is_accepted else code,
        http_status=seen.http_status,
        reason=reason,
    )


def _clock(ahead_s: float | None) -> str:
    """By how much it is wrong, if the answer told its time."""
    if ahead_s is None or abs(ahead_s) < _WORTH_TELLING_S:
        return ""
    return f", it is {abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'}"
