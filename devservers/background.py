"""`up` and `down`: a supervisor in a session of its own, found again by its state file and its lock."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from devservers.errors import AlreadyRunning, DevServersError, StartFailed
from devservers.places import start_log
from devservers.rundirs import try_lock
from devservers.settings import ServerSettings
from devservers.state import STATE, State, Status, forget, read_state
from devservers.supervisor import LOCK, Processes, Supervisor, no_processes

REPOSITORY = Path(__file__).resolve().parent.parent
STATE_DIRECTORY = REPOSITORY / ".mailstreams"
DOWN_SECONDS, KILL_SECONDS = 40.0, 10.0


def up(state_directory: Path, options: Sequence[str]) -> tuple[State, bool]:
    """Start a detached supervisor with these options of `supervise` and wait until all is ready.

    The state, and whether it was running already.
    """
    running = running_state(state_directory)
    if running is not None:
        return running, True
    state_directory.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "devservers", "supervise", "--state-dir", str(state_directory)]
    log = start_log(state_directory / "supervisor.log")
    with log.open("ab") as output, os.fdopen(reading) as answer:
        supervisor = subprocess.Popen(
            [*command, "--answer", str(writing), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=REPOSITORY,
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        try:
            why = answer.read()  # until it has closed its end: ready, or ended
        except BaseException:
            supervisor.terminate()
            raise
    state = running_state(state_directory)
    if state is None or why:
        supervisor.wait()
        raise StartFailed(why.strip() or f"The supervisor ended: see {log}.")
    supervisor.returncode = 0  # it goes on without us
    return state, False


def running_state(state_directory: Path) -> State | None:
    """The state of a supervisor that is ready; None if none runs. AlreadyRunning while in between."""
    if not is_held(state_directory):
        return None
    state = read_state(state_directory / STATE)
    if state is None or state.status is not Status.READY or not state.signal(0):
        raise AlreadyRunning(
            "The servers are starting or stopping just now: try again in a moment."
        )
    return state


def down(state_directory: Path) -> bool:
    """End the supervisor and all it started, and wait for it; False if nothing ran."""
    path, state = state_directory / STATE, None
    if not is_held(state_directory):
        forget(state_directory)
        return False
    for number, seconds in ((signal.SIGTERM, DOWN_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        deadline = time.monotonic() + seconds
        signalled = False
        while time.monotonic() < deadline:
            state = read_state(path) or state  # one that is just starting has none yet
            signalled = signalled or (state is not None and state.signal(number))
            if not is_held(state_directory) and (state is None or not state.signal(0)):
                forget(state_directory)
                return True
            time.sleep(0.05)
    raise StartFailed(
        f"Something still holds {state_directory / LOCK}: see which process has it open, and end it."
    )


def is_held(state_directory: Path) -> bool:
    """Whether a supervisor, or any process that it started, is alive."""
    if not (state_directory / LOCK).exists():
        return False
    lock = try_lock(state_directory / LOCK)
    if lock is None:
        return True
    os.close(lock)
    return False


def supervise(
    state_directory: Path, settings: ServerSettings, processes: str | None, answer: int | None
) -> None:
    """The detached process itself. `answer` is where it says why it failed, and closes when ready."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    def ready(_state: State) -> None:
        if answer is not None:
            os.close(answer)

    supervisor = Supervisor(state_directory, settings, load_processes(processes), announce=ready)
    signal.signal(signal.SIGTERM, lambda *_: supervisor.request_stop())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        supervisor.run()
    except DevServersError as error:
        if answer is None:
            raise
        os.write(answer, f"{error}\n".encode())


def load_processes(name: str | None) -> Processes:
    """`module:function`, which gets the servers and returns the processes to run."""
    if name is None:
        return no_processes
    module, _, function = name.partition(":")
    found: Processes = getattr(importlib.import_module(module), function)
    return found
