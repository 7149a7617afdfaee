"""JSON lines on standard error: a short constant sentence, a stable action, and ids. Addresses only as recipient keys."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


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
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
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
