"""The command line: `run -- COMMAND`, `up`, `down`, `status`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from devservers.errors import DevServersError
from devservers.processes import Supervised, spawn
from devservers.servers import running
from devservers.settings import ServerSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: the command's own for `run`, 2 if the servers are the trouble."""
    options = parser().parse_args(argv)
    try:
        code: int = options.act(options)
    except DevServersError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return code


def parser() -> argparse.ArgumentParser:
    """The arguments of every sub-command."""
    whole = argparse.ArgumentParser(prog="python -m devservers", description=__doc__)
    commands = whole.add_subparsers(required=True, metavar="run|up|down|status")
    run = commands.add_parser("run", help="start the servers, run a command, stop the servers")
    _add_server_options(run)
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    run.set_defaults(act=run_command)
    return whole


def _add_server_options(command: argparse.ArgumentParser) -> None:
    only = command.add_mutually_exclusive_group()
    only.add_argument("--postgres-only", action="store_true", help="leave Kafka out")
    only.add_argument("--kafka-only", action="store_true", help="leave PostgreSQL out")
    command.add_argument("--postgres-port", type=int, default=0, metavar="N")
    command.add_argument("--kafka-port", type=int, default=0, metavar="N")


def settings_from(options: argparse.Namespace) -> ServerSettings:
    """What the options say."""
    return ServerSettings(
        postgres=not options.kafka_only,
        kafka=not options.postgres_only,
        postgres_port=options.postgres_port,
        kafka_port=options.kafka_port,
    )


def run_command(options: argparse.Namespace) -> int:
    """`run`: the command gets our terminal and the servers' addresses."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise DevServersError("There is no command: write it after --, as in `run -- pytest`.")
    signal.signal(signal.SIGTERM, _exit_on_signal)
    signal.signal(signal.SIGHUP, _exit_on_signal)
    with running(settings_from(options)) as servers:
        environment = os.environ | servers.environment()
        with spawn(command, name=command[0], env=environment, foreground=True) as process:
            return _wait(process)


def _wait(process: Supervised) -> int:
    """The command's exit code as a shell would give it. Ctrl-C is the command's to handle."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, previous)
    return code if code >= 0 else 128 - code


def _exit_on_signal(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
