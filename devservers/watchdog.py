"""Runs one program and sees to it that nothing of it outlives its owner.

A script of its own (`python -I -S watchdog.py CONFIG -- PROGRAM ARGUMENT...`), standard library only,
one thread: the kernel's parent-death signal is tied to the parent's *thread*. The owner holds the other
end of a socket; its end (however the owner died) or a changed parent means stop. On Linux this process
adopts orphaned grandchildren, and should it be killed itself, the kernel kills the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
OWNER_CHECK_SECONDS = (
    1.0  # a forked copy of the owner may hold its socket open; its pid is watched too
)
LEFTOVER_GRACE_SECONDS = 2.0


def prctl(option: int, value: int) -> None:
    if LINUX and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl was refused")


def parents() -> dict[int, int]:
    """Every process id with its parent's."""
    if not LINUX:
        listing = subprocess.run(
            ["/bin/ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False
        )
        pairs = (line.split() for line in listing.stdout.splitlines())
        return {int(pair[0]): int(pair[1]) for pair in pairs if len(pair) == 2}
    found: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = Path("/proc", entry, "stat").read_text(errors="replace")
                state, parent = stat.rpartition(")")[2].split()[:2]
                if state not in ("Z", "X"):
                    found[int(entry)] = int(parent)
    return found


def descendants(root: int) -> list[int]:
    """The living processes below `root`, parents first."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    order = list(children.get(root, ()))
    for pid in order:
        order.extend(children.get(pid, ()))
    return order


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


class Watchdog:
    """Start, watch, stop: the whole life of one program."""

    def __init__(self, config: dict[str, Any], argv: list[str]) -> None:
        self.config, self.argv = config, argv
        self.channel = socket.socket(fileno=config["channel"])
        self.channel.set_inheritable(False)
        self.wake, wake_write = os.pipe()
        for end in (self.wake, wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self.asked_to_stop = self.abrupt = False
        self.child = -1
        self.status: int | None = None
        self.pending = b""

    def main(self) -> NoReturn:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self.on_terminate)
        for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            self.start()
        except OSError as error:
            self.tell(f"failed {error.strerror or error}")
            os._exit(127)
        self.tell(f"started {self.child}")
        self.watch()
        self.clear_leftovers()
        self.exit_like_child()

    def on_terminate(self, *_: object) -> None:
        self.asked_to_stop = True

    def tell(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self.channel.sendall(line.encode() + b"\n")

    # start

    def start(self) -> None:
        watchdog, (errors_read, errors_write) = os.getpid(), os.pipe()
        self.child = os.fork()
        if self.child == 0:
            try:
                self.become(watchdog)
            except OSError as error:
                os.write(errors_write, (error.strerror or str(error)).encode())
            finally:
                os._exit(127)
        os.close(errors_write)
        message = os.read(errors_read, 500)  # empty once exec has closed the other end
        os.close(errors_read)
        if message:
            os.waitpid(self.child, 0)
            raise OSError(message.decode())

    def become(self, watchdog: int) -> None:
        if self.config["own_group"]:
            os.setpgid(0, 0)
        account = self.config["account"]
        if account is not None:
            os.initgroups(account["name"], account["gid"])
            os.setgid(account["gid"])
            os.setuid(account["uid"])
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after setuid, which would clear it
        if os.getppid() != watchdog:
            os._exit(127)
        if self.config["cwd"] is not None:
            os.chdir(self.config["cwd"])
        for restored in (
            signal.SIGINT,
            signal.SIGQUIT,
            signal.SIGHUP,
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):
            signal.signal(restored, signal.SIG_DFL)
        os.execvp(self.argv[0], self.argv)  # noqa: S606

    # watch

    def watch(self) -> None:
        while not self.reap():
            channel = self.channel.fileno()
            ready, _, _ = select.select([channel, self.wake], [], [], OWNER_CHECK_SECONDS)
            self.drain_wake()
            owner_left = os.getppid() != self.config["owner"]
            if channel in ready:
                owner_left = not self.obey() or owner_left
            if owner_left or self.asked_to_stop:
                self.stop()
                return

    def drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wake, 512):
                pass

    def reap(self) -> bool:
        """Collect what has ended; whether the program itself has."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self.child:
                    self.status = status
        return self.status is not None

    def obey(self) -> bool:
        """Carry out the owner's commands; False at the end of the stream."""
        try:
            data = self.channel.recv(4096)
        except OSError:
            return False
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            scope, number = line.decode().split()
            if scope == "tree":
                self.signal_tree(int(number))
            else:
                send(self.child, int(number))
            self.tell("done")
        return bool(data)

    def signal_tree(self, number: int) -> None:
        """Parents first, and again until no process is new, since a parent may fork meanwhile."""
        self.abrupt = self.abrupt or number == signal.SIGKILL
        seen: set[int] = set()
        if self.status is None:
            send(self.child, number)
        while new := [pid for pid in descendants(os.getpid()) if pid not in seen]:
            for pid in new:
                if pid != self.child:
                    send(pid, number)
            seen.update(new)

    # stop

    def stop(self) -> None:
        self.signal_tree(signal.SIGCONT)
        send(self.child, self.config["stop_signal"])
        if not self.wait_for(self.reap, self.config["grace"]):
            self.signal_tree(signal.SIGKILL)
            self.wait_for(self.reap, 60.0)

    def wait_for(self, condition: Any, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            select.select([self.wake], [], [], min(left, 0.1))
            self.drain_wake()
        return True

    def clear_leftovers(self) -> None:
        def none_left() -> bool:
            self.reap()
            return not descendants(os.getpid())

        if not none_left() and not self.abrupt:
            self.signal_tree(signal.SIGTERM)
            self.wait_for(none_left, LEFTOVER_GRACE_SECONDS)
        while not none_left():
            self.signal_tree(signal.SIGKILL)
            self.wait_for(none_left, 1.0)
        if self.config["own_group"] and not LINUX:  # no adoption there: what stayed in the group
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child, signal.SIGKILL)

    def exit_like_child(self) -> NoReturn:
        code = os.waitstatus_to_exitcode(self.status or 0)
        if code < 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if -code not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)


if __name__ == "__main__":
    Watchdog(json.loads(sys.argv[1]), sys.argv[3:]).main()
