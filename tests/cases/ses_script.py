"""What a fake SES answers call by call, and what it remembers of each call."""

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.cases.words import CONNECTION_FAULTS

Answer = Mapping[str, Any]

# As in case C01.
THROTTLED: Final[Answer] = {
    "status": 429,
    "headers": {"x-amzn-ErrorType": "TooManyRequestsException"},
    "body": {"message": "Maximum sending rate exceeded."},
}
# Calls beyond the end of the list.
_UNEXPECTED: Final[Answer] = {
    "status": 500,
    "headers": {},
    "body": "the list of answers has come to its end",
}
_numbers = itertools.count(1)


@dataclass(slots=True, kw_only=True)
class Call:
    """One SendEmail. Times are monotonic; ended: the answer was written or the connection is gone. request: None if nothing of
    it arrived."""

    answer: Answer
    arrived: float
    port: int = 0
    request: Mapping[str, Any] | None = None
    wrong: str | None = None
    accepted_at: float | None = None
    message_id: str | None = None
    status: int | None = None
    ended: float | None = None

    @property
    def attempt(self) -> str | None:
        return self._tag("attempt")

    @property
    def recipients(self) -> list[str]:
        """To, Cc and Bcc, as they stand in the request."""
        given = (self.request or {}).get("Destination") or {}
        names = ("ToAddresses", "CcAddresses", "BccAddresses")
        return [str(address) for name in names for address in given.get(name) or ()]

    def _tag(self, name: str) -> str | None:
        for tag in (self.request or {}).get("EmailTags") or ():
            if tag.get("Name") == name:
                return str(tag.get("Value"))
        return None


@dataclass(slots=True, kw_only=True)
class Script:
    """Gives out the answers of one variant, in order of arrival. Called by one thread at a time under its lock."""

    stub: Sequence[Answer]
    cycle: bool = False
    enforced: float | None = None
    calls: list[Call] = field(default_factory=list)
    accepted: list[tuple[float, int]] = field(default_factory=list)
    beyond: int = 0
    last_message_id: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: list[Answer] = field(default_factory=list)
    _started: bool = False

    @property
    def closes_connections(self) -> bool:
        """Whether each call needs a connection of its own, since some fail before a byte is written."""
        return any(answer.get("fault") in CONNECTION_FAULTS for answer in self.stub)

    def connection_fault(self) -> Call | None:
        """A call that is to fail while it connects, if that is the next answer."""
        with self.lock:
            waiting = self._answers()
            if not waiting or waiting[0].get("fault") not in CONNECTION_FAULTS:
                return None
            now = time.monotonic()
            call = Call(answer=waiting.pop(0), arrived=now, ended=now)
            self.calls.append(call)
            return call

    def take(self, request: Mapping[str, Any] | None, *, port: int, wrong: str | None) -> Call:
        """The call that arrived, with its answer; accepted from now on if SES takes it."""
        with self.lock:
            call = Call(
                answer=_UNEXPECTED,
                arrived=time.monotonic(),
                port=port,
                request=request,
                wrong=wrong,
            )
            self.calls.append(call)
            call.answer = self._next(call)
            self._decide(call)
            return call

    def _next(self, call: Call) -> Answer:
        waiting = self._answers()
        # Connections that were made before may still carry calls: faults of connecting are left to new ones.
        number = next(
            (n for n, a in enumerate(waiting) if a.get("fault") not in CONNECTION_FAULTS), None
        )
        if number is None:
            self.beyond += 1
            return _UNEXPECTED
        if takes(waiting[number]) and self._is_over(call):
            return THROTTLED
        return waiting.pop(number)

    def _answers(self) -> list[Answer]:
        if not self._waiting and self.stub and (self.cycle or not self._started):
            self._started = True
            self._waiting = list(self.stub)
        return self._waiting

    def _is_over(self, call: Call) -> bool:
        """Whether one more would be too many within any second."""
        if self.enforced is None:
            return False
        recent = sum(n for at, n in self.accepted if at > call.arrived - 1.0)
        return recent + max(len(call.recipients), 1) > self.enforced

    def _decide(self, call: Call) -> None:
        body = call.answer.get("body")
        given = isinstance(body, Mapping) and "MessageId" in body
        call.status = call.answer.get("status")
        if not takes(call.answer) and not given:
            return
        call.message_id = new_message_id()
        if takes(call.answer):
            self.last_message_id = call.message_id
            call.accepted_at = call.arrived
            self.accepted.append((call.arrived, max(len(call.recipients), 1)))


def takes(answer: Answer) -> bool:
    """Whether SES takes the message of the call that gets this answer."""
    body = answer.get("body")
    has_id = isinstance(body, Mapping) and bool(body.get("MessageId"))
    return bool(answer.get("accepted", answer.get("status") == 200 and has_id))


def new_message_id() -> str:
    return f"0107{next(_numbers):012x}-{time.time_ns():x}-000000"
