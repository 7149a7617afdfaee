"""The attempt journal: a local file that outlives its process, so that the next one knows which calls were never begun.

Appended with one write(2) a record and no fsync: it survives the death of the process, not of the machine. Whoever holds
the lock knows that nobody else writes, and that the former owner is dead.
"""

import fcntl
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from streams.domain.attempts import AttemptId, Outcome, OutcomeKind
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.journal_records import (
    Begin,
    OpenAttempts,
    Unreadable,
    answered_line,
    apply,
    begun_line,
    claiming_line,
    closed_line,
    conclusion,
    header_line,
    open_line,
    read_header,
    read_line,
)
from streams.runtime import metrics

log = logging.getLogger(__name__)

# A file that has grown to so many bytes is written anew with what is open, which is some hundred bytes a call.
LIMIT: Final = 4 * 1024 * 1024
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str | None:
    """Names this run of the machine; None where that cannot be told, and then nothing is proven."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return None


class AttemptJournalFile:
    """One owner at a time. A record that cannot be written is taken back, so that the file always ends in a whole line."""

    def __init__(
        self,
        path: Path,
        *,
        limit: int = LIMIT,
        boot: Callable[[], str | None] = boot_id,
    ) -> None:
        self._path = path
        self._limit = limit
        self._boot = boot
        self._file: int | None = None
        self._size = 0
        self._rewrite_at = limit
        self._open = OpenAttempts()

    def open(self) -> list[Outcome]:
        """What is to be written about the attempts that the former owner left open, before anything is claimed.

        Unavailable while another process holds the file; Misconfigured if it cannot be used, or is no journal.
        """
        if self._file is not None:
            return []
        self._file = _locked(self._path)
        try:
            outcomes = self._conclude(is_proof=self._read())
            self._rewrite()
        except BaseException:
            self.close()
            raise
        return outcomes

    def _conclude(self, *, is_proof: bool) -> list[Outcome]:
        now = datetime.now(UTC)
        left = {
            attempt.attempt_id: conclusion(attempt, is_proof=is_proof, now=now)
            for attempt in self._open.attempts.values()
        }
        outcomes = [outcome for outcome in left.values() if outcome is not None]
        # They must not stand in the new file, which is proof again.
        self._open.closed([id_ for id_, outcome in left.items() if outcome is None])
        if left:
            log.warning(
                "the former process left attempts open",
                extra={
                    "action": "journal.replayed",
                    "attempts": len(left),
                    "never_called": sum(o.kind is OutcomeKind.RELEASED for o in outcomes),
                    "left_to_leases": len(left) - len(outcomes),
                },
            )
        return outcomes

    def claiming(self, pairs: Sequence[tuple[UUID, AttemptId]]) -> None:
        """These rows are about to be claimed under these attempts; Unavailable if that cannot be noted."""
        self._make_room()
        self._append(claiming_line(pairs))
        self._open.claiming(pairs)

    def begun(self, begin: Begin) -> None:
        """The first byte of the call may leave now; Unavailable if that cannot be noted: then it must not."""
        self._append(begun_line(begin))
        self._open.begun(begin)

    def answered(self, outcome: Outcome) -> None:
        """The call has ended so. Never fails: what is not noted is asked of the events instead."""
        if outcome.attempt_id in self._open.attempts:
            self._open.answered(outcome)
            self._try(answered_line(outcome))

    def closed(self, attempt_ids: Iterable[AttemptId]) -> None:
        """PostgreSQL knows all about these. Never fails: they would be written once more, which changes nothing."""
        ids = [a for a in attempt_ids if a in self._open.attempts]
        if ids:
            self._open.closed(ids)
            self._try(closed_line(ids))

    def close(self) -> None:
        """Gives the file up; what is open stays in it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._open = OpenAttempts()

    # The file ---------------------------------------------------------------------------------------------------------

    def _read(self) -> bool:
        """Folds the file; whether it is proof of what was not begun."""
        text = self._path.read_bytes()
        if not text.strip(b"\0"):  # new, or what a crash of the machine left of it
            return False
        # A last line without its end was never done with: what it announces had not begun.
        first, *lines = text.split(b"\n")[:-1] or [b""]
        try:
            boot = read_header(first)
        except ValueError as error:
            raise Misconfigured(self._foreign()) from error
        bad = sum(not self._fold(text) for text in lines)
        if bad:
            log.error(
                "lines of the attempt journal cannot be read, so that it proves no call as never made",
                extra={"action": "journal.unreadable", "path": str(self._path), "lines": bad},
            )
        return not bad and boot is not None and boot == self._boot()

    def _fold(self, text: bytes) -> bool:
        try:
            apply(read_line(text), self._open)
        except (Unreadable, ValueError):
            return False
        return True

    def _foreign(self) -> str:
        return (
            f"MAILSTREAMS_SENDER_JOURNAL names {self._path}, which is no attempt journal of this version: "
            "name another file, or move this one away if no sender of another version still needs it"
        )

    def _make_room(self) -> None:
        if self._size < self._rewrite_at:
            return
        try:
            self._rewrite()
        except Unavailable as error:
            self._rewrite_at = self._size + self._limit
            log.error(
                "attempt journal cannot be written anew and grows",
                extra={"action": "journal.not_rewritten", "error": str(error)},
            )

    def _rewrite(self) -> None:
        """A new file with what is open takes the place of the old one; it is locked before it can be found."""
        lines = [header_line(self._boot()), *map(open_line, self._open.attempts.values())]
        text = b"".join(lines)
        beside = self._path.with_name(f"{self._path.name}.new")
        made = None
        try:
            made = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
            fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write(made, text)
            os.replace(beside, self._path)
        except OSError as error:
            if made is not None:
                os.close(made)
            raise Unavailable(self._failure(error)) from error
        if self._file is not None:
            os.close(self._file)
        self._file, self._size = made, len(text)
        self._rewrite_at = len(text) + self._limit

    def _append(self, text: bytes) -> None:
        if self._file is None:
            raise Unavailable("attempt journal: it is not open")
        try:
            _write(self._file, text)
        except OSError as error:
            metrics.SENDER_JOURNAL_FAILURES.inc()
            self._take_back()
            raise Unavailable(self._failure(error)) from error
        self._size += len(text)

    def _take_back(self) -> None:
        """A record that is there in part must not be mistaken, nor swallow the next one."""
        try:
            if self._file is not None:
                os.ftruncate(self._file, self._size)
        except OSError as error:
            log.error(
                "attempt journal has a broken line that cannot be taken back",
                extra={"action": "journal.broken", "error": error.strerror},
            )

    def _try(self, text: bytes) -> None:
        try:
            self._append(text)
        except Unavailable as error:
            log.error(
                "record of the attempt journal is missing",
                extra={"action": "journal.not_written", "error": str(error)},
            )

    def _failure(self, error: OSError) -> str:
        return (
            f"attempt journal: {self._path} cannot be written ({error.strerror}): no call begins until it can, "
            "make room or name another file in MAILSTREAMS_SENDER_JOURNAL"
        )


def _write(file: int, text: bytes) -> None:
    written = os.write(file, text)
    if written != len(text):
        raise OSError(28, "only a part of it was written, the file system is full")


def _locked(path: Path) -> int:
    """The file, locked for us alone; the one that has the path, also where another took its place meanwhile."""
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise Misconfigured(
                f"MAILSTREAMS_SENDER_JOURNAL names {path}, which cannot be opened for writing ({error.strerror}): "
                "it has to be a file of this instance alone on a local disk"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(path).st_ino == os.fstat(file).st_ino:
                return file
        except BlockingIOError as error:
            os.close(file)
            raise Unavailable(
                f"attempt journal: another process holds {path}: give every sender instance a file of its own in "
                "MAILSTREAMS_SENDER_JOURNAL, or end the process that holds it (a stopped one holds it too)"
            ) from error
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(file)
            raise
        os.close(file)
