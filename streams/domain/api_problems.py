"""What the accept API says when it refuses: problem details of RFC 9457, which name the field and what to change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple


class Kind(StrEnum):
    """Why a request is refused; the last part of the problem's type."""

    MALFORMED = "malformed"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not-found"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    NOT_POSSIBLE = "not-possible"
    BUSY = "busy"
    IDEMPOTENCY_CONFLICT = "idempotency-conflict"
    TOO_LARGE = "too-large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type"
    INVALID = "invalid"
    SUPPRESSED = "suppressed"
    RATE_LIMITED = "rate-limited"
    QUOTA_USED_UP = "quota-used-up"
    FAILED = "failed"
    OVERLOADED = "overloaded"
    UNAVAILABLE = "unavailable"

    @property
    def status(self) -> int:
        return _TABLE[self][0]

    @property
    def heading(self) -> str:
        return _TABLE[self][1]


_TABLE: Final[Mapping[str, tuple[int, str]]] = {
    Kind.MALFORMED: (400, "The request cannot be read"),
    Kind.UNAUTHORIZED: (401, "The API key is missing or not valid"),
    Kind.FORBIDDEN: (403, "The API key may not do this"),
    Kind.NOT_FOUND: (404, "There is nothing of this name"),
    Kind.METHOD_NOT_ALLOWED: (405, "This address does not take this method"),
    Kind.NOT_POSSIBLE: (409, "It is too late, or too early, for this"),
    Kind.BUSY: (409, "The message is in other hands this moment"),
    Kind.IDEMPOTENCY_CONFLICT: (409, "The Idempotency-Key was used with another body"),
    Kind.TOO_LARGE: (413, "The body is too large"),
    Kind.UNSUPPORTED_MEDIA_TYPE: (415, "The body has to be plain JSON"),
    Kind.INVALID: (422, "The request has faults"),
    Kind.SUPPRESSED: (422, "The recipient is suppressed"),
    Kind.RATE_LIMITED: (429, "The tenant posts faster than it may"),
    Kind.QUOTA_USED_UP: (429, "The tenant's quota is used up"),
    Kind.FAILED: (500, "We have a bug"),
    Kind.OVERLOADED: (503, "We are full"),
    Kind.UNAVAILABLE: (503, "The database is away or slow"),
}


class Fault(NamedTuple):
    """One thing that is wrong: where, as a JSON pointer (RFC 6901) into the body or "?name" of the query, and what to change."""

    pointer: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One refusal. members: further members of the document. retry_after_s: whole seconds, where trying again makes sense."""

    kind: Kind
    detail: str
    faults: Sequence[Fault] = ()
    members: Mapping[str, Any] = field(default_factory=dict)
    retry_after_s: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The members of application/problem+json."""
        found: dict[str, Any] = {
            "type": f"urn:mailstreams:problem:{self.kind}",
            "title": self.kind.heading,
            "status": self.kind.status,
            "detail": self.detail,
        }
        if self.faults:
            found["errors"] = [fault._asdict() for fault in self.faults]
        return found | dict(self.members)


class Refused(Exception):
    """Ends a request with this problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def refused(kind: Kind, detail: str, *faults: Fault, **more: Any) -> Refused:
    """A refusal in one expression; more: other fields of Problem."""
    return Refused(Problem(kind=kind, detail=detail, faults=faults, **more))


def invalid(faults: Sequence[Fault]) -> Problem:
    """All faults of a request at once."""
    n = len(faults)
    detail = f"{n} fault{'' if n == 1 else 's'}: see errors, correct all of them and post it again"
    return Problem(kind=Kind.INVALID, detail=detail, faults=tuple(faults))
