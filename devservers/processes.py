"""Child processes that never outlive their owner, not even after `kill -9` of it.

Each runs below a watchdog process of its own (`watchdog.py`), which alone signals it: it has not been
reaped before the watchdog knows, so a recycled process id is never signalled.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from devservers.errors import PrerequisiteMissing, ProcessGone, StartFailed

DEVNULL = Path(os.devnull)
WATCHDOG = Path(__file__).with_name("watchdog.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The user that a child process becomes; only root can ask for one."""

    name: str
    uid: int
    gid: int


class Supervised:
    """A running program. Its end is the end of its whole process tree.

    Keep it: a handle that is garbage ends the program, as the owner's end does.
    """

    def __init__(
        self, name: str, watchdog: subprocess.Popen[bytes], channel: socket.socket
    ) -> None:
        self.name = name
        self._watchdog = watchdog
        self._channel = channel
        self._lock = threading.Lock()
        self._received = b""
        self.pid = self._read_started()

    def __enter__(self) -> Supervised:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        """Whether anything of the program is still there."""
        return self._watchdog.poll() is None

    @property
    def returncode(self) -> int | None:
        """The program's exit code, minus the signal's number if a signal ended it, None while alive."""
        return self._watchdog.poll()

    def signal(self, number: int, *, tree: bool = False) -> None:
        """Send a signal to the program, or to its whole tree; ProcessGone if it has ended."""
        if not self._command(f"{'tree' if tree else 'one'} {int(number)}"):
            raise ProcessGone(
                f"{self.name} has ended already, so start it again before signalling it."
            )

    def terminate(self) -> None:
        """SIGTERM; nothing happens if it has ended."""
        self._command(f"one {int(signal.SIGTERM)}")

    def kill(self) -> None:
        """SIGKILL to the whole tree; nothing happens if it has ended."""
        self._command(f"tree {int(signal.SIGKILL)}")

    def pause(self) -> None:
        """Freeze the whole tree (SIGSTOP)."""
        self.signal(signal.SIGSTOP, tree=True)

    def cont(self) -> None:
        """Let a frozen tree go on (SIGCONT)."""
        self.signal(signal.SIGCONT, tree=True)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until nothing is left of it, at most `timeout` seconds (TimeoutError); the exit code."""
        try:
            code = self._watchdog.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} is still running after {timeout:g} s") from None
        self._channel.close()
        return code

    def stop(self, grace: float | None = None) -> int:
        """End it by its stop signal, after `grace` seconds (default: as spawned) by SIGKILL; the exit code."""
        if grace is None:
            with self._lock:
                self._channel.close()  # the watchdog then does both
            return self.wait()
        self._command(f"tree {int(signal.SIGCONT)}")
        self.terminate()
        try:
            return self.wait(grace)
        except TimeoutError:
            self.kill()
            return self.wait()

    def _command(self, line: str) -> bool:
        with self._lock:
            try:
                self._channel.sendall(line.encode() + b"\n")
                return self._read_line() == "done"
            except OSError:
                return False

    def _read_line(self) -> str:
        while b"\n" not in self._received:
            data = self._channel.recv(4096)
            if not data:
                return ""
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line.decode()

    def _read_started(self) -> int:
        word, _, rest = self._read_line().partition(" ")
        if word == "started":
            return int(rest)
        self._channel.close()
        self._watchdog.wait()
        if word == "failed":
            raise PrerequisiteMissing(
                f"{self.name} could not be started ({rest}): check that its program is installed and may be run."
            )
        raise StartFailed(f"The watchdog of {self.name} ended at once; see the log of {self.name}.")


def spawn(
    argv: Sequence[str | Path],
    *,
    name: str,
    log_path: Path | None = None,
    stdin_path: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    account: Account | None = None,
    stop_signal: int = signal.SIGTERM,
    grace: float = 10.0,
    keep_open: Sequence[int] = (),
    foreground: bool = False,
) -> Supervised:
    """Start a program below a watchdog.

    Input is `stdin_path` or nothing. Output is appended to `log_path`, or goes where the caller's goes. When the owner ends, the program
    gets `stop_signal` and, `grace` seconds later, SIGKILL. `keep_open` are file descriptors (of locks)
    that it inherits. A `foreground` program shares the caller's terminal and process group.
    """
    ours, theirs = socket.socketpair()
    config = {
        "name": name,
        "owner": os.getpid(),
        "channel": theirs.fileno(),
        "account": None if account is None else asdict(account),
        "cwd": None if cwd is None else str(cwd),
        "stop_signal": int(stop_signal),
        "grace": grace,
        "own_group": not foreground,
    }
    command = [sys.executable, "-I", "-S", str(WATCHDOG), json.dumps(config), "--", *map(str, argv)]
    with ExitStack() as opened:
        opened.enter_context(theirs)
        output = None if log_path is None else opened.enter_context(log_path.open("ab"))
        stdin = None if foreground else opened.enter_context((stdin_path or DEVNULL).open("rb"))
        watchdog = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            env=None if env is None else dict(env),
            pass_fds=(theirs.fileno(), *keep_open),
            start_new_session=not foreground,
        )
    return Supervised(name, watchdog, ours)
