"""The attempt journal: what the next process concludes, and that nothing is proven by a file that may lack something."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from asyncpg.pgproto import pgproto

from streams.adapters.attempt_journal import AttemptJournalFile
from streams.domain.addresses import RecipientKey
from streams.domain.attempts import AttemptId, Outcome, OutcomeKind
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.journal_records import Begin, header_line

NOW = datetime(2026, 1, 1, 12, 0, 0, 250000, tzinfo=UTC)
ROWS = [UUID(int=n) for n in range(1, 5)]
ATTEMPTS = [AttemptId(UUID(int=n)) for n in range(101, 105)]
PAIRS = list(zip(ROWS, ATTEMPTS, strict=True))
BOOT = "run-1"


def journal_at(path: Path, *, boot: str | None = BOOT, limit: int = 1 << 20) -> AttemptJournalFile:
    return AttemptJournalFile(path, limit=limit, boot=lambda: boot)


def begin(n: int) -> Begin:
    return Begin(
        attempt_id=ATTEMPTS[n], number=n + 1, started=NOW, left_out=(RecipientKey("0" * 32),)
    )


def answer(n: int) -> Outcome:
    return Outcome(
        id=ROWS[n],
        attempt_id=ATTEMPTS[n],
        number=n + 1,
        kind=OutcomeKind.ACCEPTED,
        started=NOW,
        finished=NOW,
        provider_message_id="m-1",
        left_out=(RecipientKey("0" * 32),),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def journal(path: Path) -> Iterator[AttemptJournalFile]:
    made = journal_at(path)
    assert made.open() == []
    yield made
    made.close()


def reopened(path: Path, *, boot: str | None = BOOT) -> dict[AttemptId, Outcome]:
    """What the next process is told."""
    following = journal_at(path, boot=boot)
    try:
        return {outcome.attempt_id: outcome for outcome in following.open()}
    finally:
        following.close()


def test_each_attempt_is_concluded_by_how_far_it_came(
    path: Path, journal: AttemptJournalFile
) -> None:
    journal.claiming(PAIRS)
    for n in (1, 2, 3):
        journal.begun(begin(n))
    for n in (2, 3):
        journal.answered(answer(n))
    journal.closed([ATTEMPTS[3]])
    journal.close()
    found = reopened(path)
    assert {a: o.kind for a, o in found.items()} == {
        ATTEMPTS[0]: OutcomeKind.RELEASED,
        ATTEMPTS[1]: OutcomeKind.UNKNOWN,
        ATTEMPTS[2]: OutcomeKind.ACCEPTED,
    }
    assert found[ATTEMPTS[0]].id == ROWS[0]
    assert found[ATTEMPTS[2]] == answer(2)
    unknown = found[ATTEMPTS[1]]
    assert (unknown.id, unknown.number, unknown.started) == (ROWS[1], 2, NOW)
    assert unknown.left_out == ("0" * 32,)
    assert unknown.error_class == "process-ended"


def test_what_is_left_open_is_told_again_until_it_is_closed(
    path: Path, journal: AttemptJournalFile
) -> None:
    journal.claiming(PAIRS)
    journal.begun(begin(1))
    journal.answered(answer(1))
    journal.close()
    first = reopened(path)
    assert len(first) == 4
    again = {attempt: outcome.kind for attempt, outcome in reopened(path).items()}
    assert again == {attempt: outcome.kind for attempt, outcome in first.items()}
    third = journal_at(path)
    third.open()
    third.closed(ATTEMPTS)
    third.close()
    assert reopened(path) == {}


@pytest.mark.parametrize("boot", ["run-2", None])
def test_after_a_restart_of_the_machine_nothing_is_proven_not_called(
    path: Path, journal: AttemptJournalFile, boot: str | None
) -> None:
    """What was written last may be missing then."""
    journal.claiming(PAIRS[:3])
    journal.begun(begin(1))
    journal.begun(begin(2))
    journal.answered(answer(2))
    journal.close()
    found = reopened(path, boot=boot)
    assert {a: o.kind for a, o in found.items()} == {
        ATTEMPTS[1]: OutcomeKind.UNKNOWN,
        ATTEMPTS[2]: OutcomeKind.ACCEPTED,
    }
    assert ATTEMPTS[0] not in reopened(path, boot=boot)


def test_a_last_line_without_its_end_had_not_happened(
    path: Path, journal: AttemptJournalFile
) -> None:
    journal.claiming(PAIRS[:1])
    whole = path.stat().st_size
    journal.begun(begin(0))
    journal.close()
    os.truncate(path, whole + 20)
    assert reopened(path)[ATTEMPTS[0]].kind is OutcomeKind.RELEASED


@pytest.mark.parametrize("garbage", [b"garbage\n", b"\0\0\0\n", b"00000000 []\n", b"\xff\xfe\n"])
def test_a_line_that_cannot_be_read_takes_the_proof_away(
    path: Path, journal: AttemptJournalFile, garbage: bytes
) -> None:
    journal.claiming(PAIRS[:2])
    journal.close()
    with path.open("ab") as file:
        file.write(garbage)
    assert reopened(path) == {}


@pytest.mark.parametrize(
    "content", [b"# a file of somebody\n", b"text without an end", b'{"a": 1}\n']
)
def test_a_file_of_somebody_else_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(Misconfigured, match="MAILSTREAMS_SENDER_JOURNAL"):
        journal_at(path).open()
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"\0" * 4096])
def test_an_empty_file_is_a_new_journal(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert reopened(path) == {}
    assert path.read_bytes() == header_line(BOOT)


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot be opened for writing"):
        journal_at(tmp_path / "missing" / "journal").open()


def test_a_file_that_is_held_is_refused(path: Path, journal: AttemptJournalFile) -> None:
    with pytest.raises(Unavailable, match="another process holds"):
        journal_at(path).open()


def test_a_file_is_held_also_after_it_was_written_anew(path: Path) -> None:
    small = journal_at(path, limit=1)
    small.open()
    before = path.stat().st_ino
    small.claiming(PAIRS)
    small.claiming([])
    assert path.stat().st_ino != before
    with pytest.raises(Unavailable, match="another process holds"):
        journal_at(path).open()
    small.close()
    assert len(reopened(path)) == 4


def test_the_size_is_bounded_and_what_is_open_is_kept(path: Path) -> None:
    small = journal_at(path, limit=5000)
    small.open()
    small.claiming(PAIRS[:1])
    small.begun(begin(0))
    largest = 0
    for n in range(1000):
        attempt = AttemptId(UUID(int=10_000 + n))
        small.claiming([(UUID(int=n + 1), attempt)])
        small.closed([attempt])
        largest = max(largest, path.stat().st_size)
    small.close()
    assert largest < 6000
    assert {a: o.kind for a, o in reopened(path).items()} == {ATTEMPTS[0]: OutcomeKind.UNKNOWN}


def test_a_call_does_not_begin_where_its_mark_cannot_be_written(
    path: Path, journal: AttemptJournalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.claiming(PAIRS[:2])
    write = os.write

    def full(file: int, text: bytes) -> int:
        """A part of it fits."""
        return write(file, text[:10])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(Unavailable, match="full"):
        journal.begun(begin(0))
    with pytest.raises(Unavailable, match="full"):
        journal.claiming(PAIRS[2:])
    journal.closed([ATTEMPTS[1]])
    monkeypatch.undo()
    journal.close()
    found = reopened(path)
    assert found.keys() == set(ATTEMPTS[:2])
    assert {o.kind for o in found.values()} == {OutcomeKind.RELEASED}


def test_what_cannot_be_written_is_told_with_its_cause(
    journal: AttemptJournalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int, __: bytes) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    journal.claiming(PAIRS[:1])
    monkeypatch.setattr(os, "write", broken)
    with pytest.raises(Unavailable, match=os.strerror(errno.EIO)):
        journal.begun(begin(0))
    journal.answered(answer(0))


def test_who_is_killed_leaves_all_that_it_wrote(path: Path) -> None:
    """A process of its own, killed by itself right after a mark."""
    text = f"""
import os, signal
from tests.unit.test_sender_journal import PAIRS, Path, begin, journal_at
journal = journal_at(Path({str(path)!r}))
journal.open()
journal.claiming(PAIRS)
journal.begun(begin(1))
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", text], check=False)
    assert ended.returncode == -9
    kinds = {attempt: outcome.kind for attempt, outcome in reopened(path).items()}
    assert kinds.pop(ATTEMPTS[1]) is OutcomeKind.UNKNOWN
    assert set(kinds.values()) == {OutcomeKind.RELEASED}
    assert len(kinds) == 3


def test_ids_as_the_database_driver_reads_them_are_noted(
    journal: AttemptJournalFile, path: Path
) -> None:
    row, attempt = pgproto.UUID(str(ROWS[0])), pgproto.UUID(str(ATTEMPTS[0]))
    journal.claiming([(row, AttemptId(attempt))])
    journal.begun(Begin(attempt_id=AttemptId(attempt), number=1, started=NOW))
    journal.close()
    (left,) = journal_at(path).open()
    assert (left.id, left.attempt_id, left.kind) == (ROWS[0], ATTEMPTS[0], OutcomeKind.UNKNOWN)
