"""What the rows of the table of SES's answers look like, and when one matches."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from streams.domain.attempts import OutcomeKind, PauseScope
from streams.domain.ses_answers import Answer, Fault, FaultKind

# AWS takes a signature for five minutes; ours leaves within a lease, unless the process stood still.
SIGNATURE_IS_OLD_S: Final = 240.0
_ANY_STATUS: Final = range(1000)


class Source(StrEnum):
    """Where what a row says is known from."""

    MODEL = "the service model of SES v2 that botocore has"
    COMMON = "the errors that all AWS services have in common"
    GUIDE = "the SES developer guide"
    SEEN = "a text that SES or AWS is known to answer with"
    MEASURED = "measured with servers that fail so"
    LOCAL = "botocore"
    PROOF = "invariant I3: what proves that SES did not take a message"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPattern:
    """Which answers a row is about; what is left open matches everything."""

    status: range = _ANY_STATUS
    codes: frozenset[str] = frozenset()
    text: re.Pattern[str] | None = None
    has_code: bool | None = None
    has_id: bool | None = None
    names_sender: bool | None = None
    is_late: bool | None = None

    def matches(self, answer: Answer, sender: str) -> bool:
        return (
            answer.status in self.status
            and (not self.codes or answer.code in self.codes)
            and (self.text is None or self.text.search(answer.message) is not None)
            and self.has_code in (None, answer.code is not None)
            and self.has_id in (None, answer.message_id is not None)
            and self.is_late in (None, answer.signature_age_s > SIGNATURE_IS_OLD_S)
            and (self.names_sender is None or self.names_sender is _names(answer.message, sender))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPattern:
    """Which faults a row is about."""

    written: bool
    kinds: frozenset[FaultKind] = frozenset(FaultKind)

    def matches(self, fault: Fault) -> bool:
        return fault.written is self.written and fault.kind in self.kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """name is the stable error class; reason says what it means and what to change."""

    name: str
    when: AnswerPattern | FaultPattern
    kind: OutcomeKind
    source: Source
    reason: str
    pause: PauseScope | None = None
    pause_s: float = 60.0


def matches(pattern: AnswerPattern | FaultPattern, seen: Answer | Fault, sender: str) -> bool:
    """Whether the row is about what was seen, for a message of this sender."""
    match pattern, seen:
        case AnswerPattern(), Answer():
            return pattern.matches(seen, sender)
        case FaultPattern(), Fault():
            return pattern.matches(seen)
        case _:
            return False


def _names(text: str, sender: str) -> bool:
    """Whether the text names the sender's address, or its domain alone, as an identity."""
    address = sender.lower()
    domain = re.escape(address.rpartition("@")[2])
    text = text.lower()
    return address in text or re.search(rf"(?<![\w.@-]){domain}(?![\w-])", text) is not None
