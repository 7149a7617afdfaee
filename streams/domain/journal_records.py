"""The lines of an attempt journal, and what the next owner of it concludes about attempts that its former owner left.

A line is the CRC-32 of its JSON in eight hex digits, a space and the JSON: ["claiming", [[row, attempt], ...]] before the
claim, ["begun", ...] before the first byte of a call, ["answered", ...] after it, ["closed", [attempt, ...]] once nothing
is left to find out. ["open", ...] is one attempt as a rewritten file keeps it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID
from zlib import crc32

import orjson

from streams.domain.addresses import RecipientKey
from streams.domain.attempts import AttemptId, Outcome, OutcomeKind

VERSION: Final = 1
_OUTCOME_FIELDS: Final = tuple(f.name for f in fields(Outcome))


class Unreadable(ValueError):
    """A line that is none of ours, or not whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A call whose first byte could leave from then on."""

    attempt_id: AttemptId
    number: int
    started: datetime
    left_out: tuple[RecipientKey, ...] = ()


@dataclass(slots=True, kw_only=True)
class OpenAttempt:
    """What the journal knows of an attempt that is not closed."""

    id: UUID
    attempt_id: AttemptId
    begin: Begin | None = None
    answer: Outcome | None = None


@dataclass(slots=True)
class OpenAttempts:
    """The journal's records folded: what is open after them."""

    attempts: dict[AttemptId, OpenAttempt] = field(default_factory=dict)

    def claiming(self, pairs: Iterable[tuple[UUID, AttemptId]]) -> None:
        for id_, attempt_id in pairs:
            self.attempts[attempt_id] = OpenAttempt(id=id_, attempt_id=attempt_id)

    def begun(self, begin: Begin) -> None:
        if (attempt := self.attempts.get(begin.attempt_id)) is not None:
            attempt.begin = begin

    def answered(self, outcome: Outcome) -> None:
        if (attempt := self.attempts.get(outcome.attempt_id)) is not None:
            attempt.answer = outcome

    def closed(self, attempt_ids: Iterable[AttemptId]) -> None:
        for attempt_id in attempt_ids:
            self.attempts.pop(attempt_id, None)


def conclusion(attempt: OpenAttempt, *, is_proof: bool, now: datetime) -> Outcome | None:
    """What is to be written about an attempt whose process is dead; None if its lease has to run out.

    is_proof: no record of the file can be missing, so that a call that is not marked as begun was not made.
    """
    if attempt.answer is not None:
        return attempt.answer
    if attempt.begin is not None:
        return Outcome(
            id=attempt.id,
            attempt_id=attempt.attempt_id,
            number=attempt.begin.number,
            kind=OutcomeKind.UNKNOWN,
            started=attempt.begin.started,
            finished=now,
            error_class="process-ended",
            reason="the sender ended during the call, so it is not known whether SES took the message",
            left_out=attempt.begin.left_out,
        )
    if not is_proof:
        return None
    return Outcome(
        id=attempt.id,
        attempt_id=attempt.attempt_id,
        number=0,
        kind=OutcomeKind.RELEASED,
        finished=now,
    )


# Lines ----------------------------------------------------------------------------------------------------------------


def line(*record: Any) -> bytes:
    """The record as a line."""
    text = orjson.dumps(record, default=_plain)
    return b"%08x %b\n" % (crc32(text), text)


def _plain(value: object) -> str:
    """An id as asyncpg reads it is of a class of its own, which orjson does not take."""
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot stand in a journal")


def header_line(boot: str | None) -> bytes:
    """boot names the run of the machine: what an earlier run did not write to its disk is missing from the file."""
    return line("mailstreams attempt journal", VERSION, boot)


def claiming_line(pairs: Iterable[tuple[UUID, AttemptId]]) -> bytes:
    return line("claiming", [(id_, attempt_id) for id_, attempt_id in pairs])


def begun_line(begin: Begin) -> bytes:
    return line("begun", *_begin_values(begin))


def answered_line(outcome: Outcome) -> bytes:
    return line("answered", _outcome_values(outcome))


def closed_line(attempt_ids: Iterable[AttemptId]) -> bytes:
    return line("closed", list(attempt_ids))


def open_line(attempt: OpenAttempt) -> bytes:
    return line(
        "open",
        attempt.id,
        attempt.attempt_id,
        None if attempt.begin is None else _begin_values(attempt.begin),
        None if attempt.answer is None else _outcome_values(attempt.answer),
    )


def read_line(text: bytes) -> list[Any]:
    """The record of a line without its end; Unreadable if it is not whole."""
    checksum, _, record = text.partition(b" ")
    if checksum != b"%08x" % crc32(record):
        raise Unreadable("its checksum is wrong")
    found = orjson.loads(record)
    if not isinstance(found, list) or not found:
        raise Unreadable("it is not a record")
    return found


def read_header(text: bytes) -> str | None:
    """The run of the machine that a first line names; Unreadable if it is no header of this version."""
    match read_line(text):
        case ["mailstreams attempt journal", int() as version, boot] if version == VERSION:
            return boot if isinstance(boot, str) else None
    raise Unreadable("it is no header of this version")


def apply(record: list[Any], attempts: OpenAttempts) -> None:
    """Folds one record; Unreadable if it is of no kind that is known, or its values are not of their types."""
    try:
        match record:
            case ["claiming", list() as pairs]:
                attempts.claiming([(UUID(id_), AttemptId(UUID(a))) for id_, a in pairs])
            case ["begun", *values]:
                attempts.begun(_begin(values))
            case ["answered", dict() as values]:
                attempts.answered(_outcome(values))
            case ["closed", list() as ids]:
                attempts.closed([AttemptId(UUID(a)) for a in ids])
            case ["open", id_, attempt_id, begin, answer]:
                found = OpenAttempt(id=UUID(id_), attempt_id=AttemptId(UUID(attempt_id)))
                found.begin = None if begin is None else _begin(begin)
                found.answer = None if answer is None else _outcome(answer)
                attempts.attempts[found.attempt_id] = found
            case _:
                raise Unreadable("it is of a kind that is not known")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unreadable(f"its values are not what they should be: {error}") from error


def _begin_values(begin: Begin) -> tuple[Any, ...]:
    return (begin.attempt_id, begin.number, begin.started, begin.left_out)


def _begin(values: list[Any]) -> Begin:
    attempt_id, number, started, left_out = values
    return Begin(
        attempt_id=AttemptId(UUID(attempt_id)),
        number=int(number),
        started=datetime.fromisoformat(started),
        left_out=tuple(RecipientKey(key) for key in left_out),
    )


def _outcome_values(outcome: Outcome) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in _OUTCOME_FIELDS}


def _outcome(values: Mapping[str, Any]) -> Outcome:
    """Fields that a later version added or dropped are no reason to lose an answer."""
    known = {name: values[name] for name in _OUTCOME_FIELDS if name in values}
    started = known.get("started")
    return Outcome(
        **known
        | {
            "id": UUID(known["id"]),
            "attempt_id": AttemptId(UUID(known["attempt_id"])),
            "kind": OutcomeKind(known["kind"]),
            "started": None if started is None else datetime.fromisoformat(started),
            "finished": datetime.fromisoformat(known["finished"]),
            "left_out": tuple(RecipientKey(key) for key in known.get("left_out", ())),
        }
    )
