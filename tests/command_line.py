"""The command `mailstreams`, seen as from a terminal: its exit code and what it wrote.

In this process it costs milliseconds; what belongs to a process (its start, its exit code for the shell, its streams) is seen of
a real one, which takes a second of a busy machine.
"""

import contextlib
import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from unittest import mock

from streams import cli
from streams.runtime import logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How it ended, by the names of subprocess.CompletedProcess."""

    returncode: int
    stdout: str
    stderr: str


def as_process(*arguments: str, environment: Mapping[str, str]) -> Done:
    """A process of its own. Of the variables MAILSTREAMS_* it sees those that are given, and no other."""
    done = subprocess.run(
        [sys.executable, "-m", "streams", *arguments],
        env=_environment(environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Done(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)


def mailstreams(*arguments: str, environment: Mapping[str, str]) -> Done:
    """The same in this process. Blocks until the command has ended; an error that would be a traceback is raised."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as errors,
        mock.patch.dict(os.environ, _environment(environment), clear=True),
        mock.patch.object(sys, "argv", ["mailstreams", *arguments]),
        mock.patch.object(logs, "configure", partial(logs.configure, stream=errors)),
        _logging_as_before(),
        ThreadPoolExecutor(1) as thread,  # the command brings a loop, and this thread may have one
    ):
        code = thread.submit(_exit_code).result()
    return Done(returncode=code, stdout=out.getvalue(), stderr=errors.getvalue())


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MAILSTREAMS_")}
    return kept | dict(given)


def _exit_code() -> int:
    try:
        cli.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


@contextlib.contextmanager
def _logging_as_before() -> Iterator[None]:
    """Handlers and levels of the process are the command's to set while it runs."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {logger.name: logger.level for logger in _loggers()}
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for logger in _loggers():
            logger.setLevel(levels.get(logger.name, logging.NOTSET))


def _loggers() -> list[logging.Logger]:
    known = list(logging.Logger.manager.loggerDict.values())
    return [logger for logger in known if isinstance(logger, logging.Logger)]
