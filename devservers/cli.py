"""The command line: `run -- COMMAND`, `up`, `down`, `status`, `supervise`."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from devservers import background
from devservers.background import STATE_DIRECTORY
from devservers.errors import DevServersError
from devservers.processes import Supervised, spawn
from devservers.run import running
from devservers.settings import ServerSettings
from devservers.state import ENVIRONMENT, State


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
    commands = whole.add_subparsers(required=True, metavar="run|up|down|status|supervise")
    run = commands.add_parser("run", help="start the servers, run a command, stop the servers")
    _add_server_options(run)
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    run.set_defaults(act=run_command)
    start = commands.add_parser(
        "up", help="start the servers in the background and leave them running"
    )
    supervise_ = commands.add_parser("supervise", help="the same in the foreground")
    for command in (start, supervise_):
        _add_server_options(command)
        command.add_argument(
            "--processes", metavar="MODULE:FUNCTION", help="further processes to run"
        )
    supervise_.add_argument("--answer", type=int, help=argparse.SUPPRESS)
    supervise_.set_defaults(act=supervise_command)
    start.set_defaults(act=up_command)
    end = commands.add_parser("down", help="end what `up` started, and wait for it")
    end.set_defaults(act=down_command)
    status = commands.add_parser("status", help="say what runs; exit code 3 if nothing does")
    status.set_defaults(act=status_command)
    for command in (start, supervise_, end, status):
        command.add_argument("--state-dir", type=_absolute, default=STATE_DIRECTORY, metavar="DIR")
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


def up_command(options: argparse.Namespace) -> int:
    """`up`: prints the addresses once both are ready."""
    passed = [f"--postgres-port={options.postgres_port}", f"--kafka-port={options.kafka_port}"]
    passed += ["--postgres-only"] * options.postgres_only + ["--kafka-only"] * options.kafka_only
    passed += [] if options.processes is None else ["--processes", options.processes]
    state, before = background.up(options.state_dir, passed)
    print("The servers are running already:" if before else "The servers are running:")
    _print_addresses(state, options.state_dir)
    return 0


def supervise_command(options: argparse.Namespace) -> int:
    """`supervise`: what `up` runs in the background."""
    settings = settings_from(options)
    background.supervise(options.state_dir, settings, options.processes, options.answer)
    return 0


def down_command(options: argparse.Namespace) -> int:
    """`down`: fine too if nothing runs."""
    ended = background.down(options.state_dir)
    print("The servers have ended." if ended else "No servers are running.")
    return 0


def status_command(options: argparse.Namespace) -> int:
    """`status`: addresses, or exit code 3."""
    state = background.running_state(options.state_dir)
    if state is None:
        print("No servers are running.")
        return 3
    print("The servers are running:")
    _print_addresses(state, options.state_dir)
    return 0


def _print_addresses(state: State, directory: Path) -> None:
    for name, value in state.environment.items():
        print(f"  export {name}={shlex.quote(value)}")
    for name, address in state.addresses.items():
        print(f"  {name}: {address}")
    here = Path(os.path.relpath(directory)) if directory.is_relative_to(Path.cwd()) else directory
    print(f"  logs: {here / 'supervisor.log'}, {here / 'logs'}")
    print("The whole environment, for commands of your own:")
    print(f"  . {shlex.quote(str(here / ENVIRONMENT))}")


def _absolute(text: str) -> Path:
    return Path(text).absolute()


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
