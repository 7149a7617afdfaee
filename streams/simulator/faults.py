"""Lies on purpose: faults before and after acceptance, and answers that are held back."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from streams.simulator.outcomes import chance
from streams.simulator.strict import BadDocumentError, Document, Fields


class When(StrEnum):
    BEFORE = "before"
    AFTER = "after"


class Lie(StrEnum):
    """What happens instead of the right answer."""

    ERROR = "error"
    """An answer with `status`, `code` and `message`."""
    CLOSE = "close"
    """The connection is closed without an answer."""
    RESET = "reset"
    """The connection is reset without an answer."""
    HANG = "hang"
    """No answer until the caller goes away."""
    DELAY = "delay"
    """`seconds` later: before acceptance the acceptance too, even if the caller is gone by then."""
    BROKEN_BODY = "broken-body"
    """200 with a body that is not JSON."""
    NO_MESSAGE_ID = "no-message-id"
    """200 with an empty object."""
    TRUNCATED = "truncated"
    """200, half of the body, then the connection is closed."""


_ONLY_AFTER = (Lie.BROKEN_BODY, Lie.NO_MESSAGE_ID, Lie.TRUNCATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One lie for the next `next` calls, or for a share of all calls by a seed."""

    when: When
    lie: Lie
    status: int
    code: str
    message: str
    seconds: float
    next: int | None
    share: float
    seed: str

    @property
    def name(self) -> str:
        return f"{self.when} {self.lie}"

    def as_json(self) -> dict[str, Any]:
        reach = {"share": self.share} if self.next is None else {"next": self.next}
        return {"when": self.when, "lie": self.lie, **reach}


class FaultScript:
    """An ordered list of faults; a call gets the first that is due."""

    def __init__(self) -> None:
        self._faults: tuple[Fault, ...] = ()
        self._used: Counter[int] = Counter()
        self._calls = 0

    def replace(self, faults: tuple[Fault, ...]) -> None:
        self._faults = faults
        self._used.clear()

    def next_fault(self) -> Fault | None:
        self._calls += 1
        for number, fault in enumerate(self._faults):
            if fault.next is None:
                if chance(fault.seed, str(self._calls)) < fault.share:
                    return fault
            elif self._used[number] < fault.next:
                self._used[number] += 1
                return fault
        return None

    def as_json(self) -> list[dict[str, Any]]:
        """The faults with what is left of them."""
        return [
            fault.as_json()
            | ({} if fault.next is None else {"next": fault.next - self._used[number]})
            for number, fault in enumerate(self._faults)
        ]


def read_faults(documents: list[Document], seed: str) -> tuple[Fault, ...]:
    return tuple(_read_fault(document, seed, n) for n, document in enumerate(documents))


def _read_fault(document: Document, seed: str, number: int) -> Fault:
    fields = Fields(document, where=f"fault {number}")
    when = When(fields.choice("when", list(When)))
    lie = Lie(fields.choice("lie", list(Lie)))
    if when is When.BEFORE and lie in _ONLY_AFTER:
        raise BadDocumentError(f"Fault {number}: '{lie}' is possible only after acceptance.")
    error = lie is Lie.ERROR
    if ("next" in fields) == ("share" in fields):
        raise BadDocumentError(f"Fault {number} needs either 'next' or 'share'.")
    fault = Fault(
        when=when,
        lie=lie,
        status=fields.whole("status", least=400) if error else 0,
        code=fields.text("code") if error else "",
        message=fields.text("message", "Injected fault.") if error else "",
        seconds=fields.number("seconds") if lie is Lie.DELAY else 0.0,
        next=fields.whole("next") if "next" in fields else None,
        share=fields.share("share") if "share" in fields else 0.0,
        seed=fields.text("seed", f"{seed}-fault-{number}"),
    )
    fields.done()
    if fault.status > 599:
        raise BadDocumentError(f"Field 'status' in fault {number} must be at most 599.")
    return fault


class AnswerGate:
    """Holds answers back; `held` is how many callers wait for theirs now."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.held = 0

    @property
    def holding(self) -> bool:
        return not self._open.is_set()

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        """Wait until answers go out; a caller that goes away stops counting."""
        with self._counted():
            await self._open.wait()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1
