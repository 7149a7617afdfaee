"""`python -m streams.simulator`: the simulator as a process of its own."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from streams.simulator.refusals import RefusedError
from streams.simulator.server import run
from streams.simulator.settings import (
    BadSettingError,
    EventTimes,
    Legacy,
    SignatureVersions,
    SimulatorSettings,
)
from streams.simulator.strict import BadDocumentError

_NOT_LOGGED = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, message, and the fields given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _NOT_LOGGED}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def parser() -> argparse.ArgumentParser:
    """Every option names a setting; what is not given keeps its default."""
    options = argparse.ArgumentParser(
        prog="python -m streams.simulator",
        description="A simulator of Amazon SES v2, SNS and SQS.",
        argument_default=argparse.SUPPRESS,
    )
    add = options.add_argument
    add("--host", help="address to listen on")
    add("--port", type=int, help="0: any free one")
    add("--ready-file", type=Path, help="gets the URL as JSON once the socket listens")
    add("--region")
    add("--account-id")
    add("--access-key")
    add("--secret-key")
    add("--configuration-set", dest="configuration_sets", action="append")
    add("--verified-identity", dest="verified_identities", action="append")
    add(
        "--verify-identities",
        action="store_true",
        help="senders must be created identities",
    )
    add("--rate", type=float, help="recipients a second")
    add("--burst-s", type=float, help="seconds of the rate that a full bucket holds")
    add("--daily-quota", type=float, help="recipients in 24 hours, -1: no limit")
    add("--other-calls-per-s", type=float, help="limit of all SES calls but SendEmail")
    add("--topic-name")
    add("--signature-version", type=SignatureVersions, help="1, 2 or mixed")
    add("--key-bits", type=int, help="size of the signing key")
    add("--signing-processes", type=int, help="0: sign in a thread of the server")
    add("--subscribe", action="append", help="endpoint to subscribe, until it confirms")
    add("--delivery-timeout-s", type=float)
    add("--retry-time-scale", type=float, help="factor on the delays of SNS retries")
    add("--concurrent-deliveries", type=int)
    add("--seed")
    add("--rules-file", type=Path, help='JSON: {"rules": [...]}')
    add("--script-file", type=Path, help="JSON: what to set up at start, as the control API has it")
    for name in ("send", "outcome", "feedback", "late"):
        add(f"--{name}-ms", type=int, nargs=2, metavar=("FROM", "TO"), help="delay of events")
    add("--duplicate-share", type=float, help="share of events delivered twice")
    add("--reorder-share", type=float, help="share of messages with events out of order")
    add("--late-share", type=float, help="share of events that come later by --late-ms")
    add("--late-age-s", type=float, help="age of the envelope of a late event")
    add("--early-share", type=float, help="share of messages with events before the answer")
    add("--merge-recipients", action="store_true", help="equal recipients share records")
    add("--legacy", type=Legacy, help="notifications of identities: off, beside or instead")
    add("--legacy-headers", action="store_true", help="such notifications carry the headers")
    add("--unknown-fields", action="store_true", help="records have members that nobody knows")
    return options


def settings_from(arguments: Sequence[str]) -> SimulatorSettings:
    given = vars(parser().parse_args(arguments))
    names = [field.name for field in fields(EventTimes) if field.name in given]
    times = {name: _time(given.pop(name)) for name in names}
    for name in ("configuration_sets", "verified_identities", "subscribe"):
        if name in given:
            given[name] = tuple(given[name])
    return replace(SimulatorSettings(**given), event_times=EventTimes(**times))


def _time(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM; `arguments` None: those of the command line."""
    try:
        settings = settings_from(sys.argv[1:] if arguments is None else arguments)
    except BadSettingError as error:
        raise SystemExit(f"The simulator cannot start: {error}") from error
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(run(settings))
    except (BadDocumentError, RefusedError, OSError) as error:
        raise SystemExit(f"The simulator cannot start: {error}") from error


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    """uvloop where it is available."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


if __name__ == "__main__":
    main()
