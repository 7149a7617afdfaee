"""The truth of what was accepted, refused and published, whatever the caller saw."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from streams.simulator.clock import iso_milliseconds
from streams.simulator.outcomes import Outcome
from streams.simulator.send_email import Submission

ATTEMPT_TAG = "attempt"
OUTBOX_TAG = "outbox"


class Answer(StrEnum):
    """What became of the answer to an accepted call."""

    PENDING = "pending"
    SENT = "sent"
    HELD = "held"
    LOST = "lost"
    """The connection was gone, or closed on purpose, before the answer."""
    SPOILT = "spoilt"
    """A fault was answered in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One published event of one recipient."""

    recipient: str
    event: str
    occurred_at: float
    published_at: float
    detail: str | None
    subscribers: int

    def as_json(self) -> dict[str, Any]:
        return {
            "recipient": self.recipient,
            "event": self.event,
            "detail": self.detail,
            "occurred_at": iso_milliseconds(self.occurred_at),
            "published_at": iso_milliseconds(self.published_at),
            "subscribers": self.subscribers,
        }


@dataclass(slots=True, kw_only=True)
class Acceptance:
    """One accepted call. `outcomes` is what was decided for each recipient at acceptance."""

    sequence: int
    accepted_at: float
    message_id: str
    submission: Submission
    outcomes: dict[str, Outcome]
    answer: Answer = Answer.PENDING
    facts: list[Fact] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        tags: dict[str, list[str]] = {}
        for name, value in self.submission.tags:
            tags.setdefault(name, []).append(value)
        return {
            "sequence": self.sequence,
            "accepted_at": iso_milliseconds(self.accepted_at),
            "message_id": self.message_id,
            "attempt": _first(tags.get(ATTEMPT_TAG)),
            "outbox": _first(tags.get(OUTBOX_TAG)),
            "tags": tags,
            "configuration_set": self.submission.configuration_set,
            "source": self.submission.source,
            "recipients": list(self.submission.recipients),
            "outcomes": {address: outcome.fate for address, outcome in self.outcomes.items()},
            "content_digest": self.submission.content_digest,
            "answer": self.answer,
            "facts": [fact.as_json() for fact in self.facts],
        }


def _first(values: list[str] | None) -> str | None:
    return values[0] if values else None


class Ledger:
    """Acceptances in order, refusals by code, and the newest requests for a look."""

    def __init__(self, *, kept_content_bytes: int) -> None:
        self.acceptances: list[Acceptance] = []
        self.refused: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.recipients = 0
        self._by_message_id: dict[str, Acceptance] = {}
        self._by_tag: dict[str, Counter[str]] = {ATTEMPT_TAG: Counter(), OUTBOX_TAG: Counter()}
        self._requests: OrderedDict[str, bytes] = OrderedDict()
        self._room = kept_content_bytes

    def accept(
        self,
        submission: Submission,
        *,
        message_id: str,
        now: float,
        outcomes: dict[str, Outcome],
        request: bytes,
    ) -> Acceptance:
        acceptance = Acceptance(
            sequence=len(self.acceptances) + 1,
            accepted_at=now,
            message_id=message_id,
            submission=submission,
            outcomes=outcomes,
        )
        self.acceptances.append(acceptance)
        self.recipients += len(submission.recipients)
        self._by_message_id[message_id] = acceptance
        for name, value in submission.tags:
            if name in self._by_tag:
                self._by_tag[name][value] += 1
        self._keep(message_id, request)
        return acceptance

    def find(self, message_id: str) -> Acceptance | None:
        return self._by_message_id.get(message_id)

    def request_of(self, message_id: str) -> bytes | None:
        """The request as it came, or None once newer ones have taken its room."""
        return self._requests.get(message_id)

    def after(self, sequence: int) -> Iterator[Acceptance]:
        """What is in the ledger now and newer than `sequence`."""
        for index in range(sequence, len(self.acceptances)):
            yield self.acceptances[index]

    def counts(self) -> dict[str, Any]:
        """Totals; `accepted_again` are tag values beyond their first acceptance."""
        return {
            "accepted": len(self.acceptances),
            "accepted_recipients": self.recipients,
            "accepted_again": {
                name: counter.total() - len(counter) for name, counter in self._by_tag.items()
            },
            "refused": dict(self.refused),
            "faults": dict(self.faults),
        }

    def _keep(self, message_id: str, request: bytes) -> None:
        self._requests[message_id] = request
        self._room -= len(request)
        while self._room < 0 and self._requests:
            self._room += len(self._requests.popitem(last=False)[1])
