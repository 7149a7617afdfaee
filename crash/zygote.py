"""A process that has imported everything once and forks a worker for each start: a start costs milliseconds.

Speaks lines of JSON over a Unix socket. In: {"start": name, "argv": [...], "environment": {...}, "log": path, "trap": path, ...}
(worker: the module that runs it, else crash.worker), {"signal": name, "number": n}. Out: {"started": name, "pid": n}, {"ended": name, "code": n}. It is the workers' parent, so
that no signal can reach a process id that was given again; they end with it.
"""

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, Final, NoReturn

_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG


class Zygote:
    """Serves one controller; ends when it goes."""

    def __init__(self, path: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(1)
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._names: dict[int, str] = {}
        self._controller = self._server

    def serve(self) -> None:
        """Until the controller closes its end."""
        self._controller, _ = self._server.accept()
        waiting = b""
        while True:
            ready, _, _ = select.select([self._controller.fileno(), self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._reap()
            if self._controller.fileno() in ready:
                data = self._controller.recv(65536)
                if not data:
                    break
                *lines, waiting = (waiting + data).split(b"\n")
                for line in lines:
                    self._do(json.loads(line))
        for pid in list(self._names):
            os.kill(pid, signal.SIGKILL)
        while self._names:
            self._reap(block=True)

    def _do(self, order: dict[str, Any]) -> None:
        if "start" in order:
            self._start(order)
        else:
            for pid, name in self._names.items():
                if name == order["signal"]:
                    os.kill(pid, order["number"])

    def _start(self, order: dict[str, Any]) -> None:
        pid = os.fork()
        if pid == 0:
            self._become(order)
        self._names[pid] = order["start"]
        self._tell(started=order["start"], pid=pid)

    def _become(self, order: dict[str, Any]) -> NoReturn:
        """The child: exactly the command that a person would start, with the harness's eyes in it."""
        code = 70
        try:
            self._libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for opened in (self._controller.fileno(), self._server.fileno(), self._wake):
                os.close(opened)
            output = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.environ.clear()
            os.environ.update(order["environment"])
            code = importlib.import_module(order.get("worker", "crash.worker")).run(order)
        except BaseException:  # noqa: BLE001 nothing above may go on in the child
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self, *, block: bool = False) -> None:
        while self._names:
            pid, status = os.waitpid(-1, 0 if block else os.WNOHANG)
            if pid == 0:
                return
            name = self._names.pop(pid)
            if not block:
                self._tell(ended=name, pid=pid, code=os.waitstatus_to_exitcode(status))

    def _tell(self, **fields: Any) -> None:
        self._controller.sendall(json.dumps(fields).encode() + b"\n")


def import_everything() -> None:
    """What any stage imports when it is built."""
    from crash import worker

    worker.import_stages()


if __name__ == "__main__":
    zygote = Zygote(Path(sys.argv[1]))
    import_everything()
    gc.collect()
    gc.freeze()
    zygote.serve()
