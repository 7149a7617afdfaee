"""JSON lines on standard error: a short constant sentence, a stable action, and ids. Addresses only as recipient keys."""

import json
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def describe(error: BaseException) -> str:
    """Kind and text of an error, without what a server says about the row at hand: that may be an address or a content."""
    primary = getattr(error, "message", None) if hasattr(error, "sqlstate") else None
    text = primary if isinstance(primary, str) else str(error)
    state = getattr(error, "sqlstate", None)
    return f"{type(error).__name__}: {text.partition(chr(10) + 'DETAIL:')[0]}" + (
        f" ({state})" if state else ""
    )


def describe_with_frames(error: BaseException) -> str:
    """The same for an error and its causes, first cause first, each with its frames."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    own = "".join(traceback.format_tb(error.__traceback__)) + describe(error)
    return own if cause is None else f"{describe_with_frames(cause)}\nled to\n{own}"


def places(error: BaseException) -> list[str]:
    """File and line of the last three frames: where it happened, without the error's text, which may quote what a stranger sent."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames]


class Seldom:
    """Lets one line of a kind through every so many seconds, and counts the others: for what strangers can cause."""

    def __init__(
        self, every_s: float = 1.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._every_s = every_s
        self._clock = clock
        self._next: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def left_out(self, kind: str) -> int | None:
        """None: not now. Else how many lines of this kind were left out since the last one. Kinds come from a closed set."""
        now = self._clock()
        if now < self._next.get(kind, now):
            self._left_out[kind] += 1
            return None
        self._next[kind] = now + self._every_s
        return self._left_out.pop(kind, 0)


class JsonLines(logging.Formatter):
    """One JSON object a record: time, level, logger, message, then whatever was given as `extra`."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self._stage = stage

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "stage": self._stage,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        # Lines of libraries have no action of ours.
        line.setdefault("action", f"library.{record.name.partition('.')[0]}")
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = describe_with_frames(record.exc_info[1])
        return json.dumps(line, default=str, ensure_ascii=False)


def configure(stage: str, level: str, stream: TextIO = sys.stderr) -> None:
    """Sends every logger of the process to the stream. Called once, by the command."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(stage))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # aiokafka reports each lost connection several times over; our own loops report the outage once.
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    # An outage of PostgreSQL is told by our own loops too.
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)
    for library in ("botocore", "aiobotocore", "boto3"):
        logging.getLogger(library).setLevel(logging.WARNING)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
