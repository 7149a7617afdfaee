"""The controller's ends of the zygote and of the proxy: lines of JSON over Unix sockets."""

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from devservers.processes import Supervised, spawn

_PATIENCE_S: Final = 180.0


class NotWorking(Exception):
    """The harness or the system does not do what was waited for; the text says what."""


class Peer:
    """A Python module of ours as a process, and the socket to it."""

    def __init__(self, module: str, directory: Path) -> None:
        self._module = module
        self._directory = directory
        self._process: Supervised | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def start(self) -> None:
        name = self._module.rsplit(".", 1)[-1]
        path = self._directory / f"{name}.socket"
        path.unlink(missing_ok=True)
        self._process = spawn(
            [sys.executable, "-m", self._module, str(path)],
            name=name,
            log_path=self._directory / f"{name}.log",
            stop_signal=signal.SIGKILL,
            grace=1.0,
        )
        deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        while True:
            try:
                self._reader, self._writer = await asyncio.open_unix_connection(str(path))
            except OSError as error:
                if not self._process.alive or asyncio.get_running_loop().time() > deadline:
                    raise NotWorking(
                        f"{name} did not start; see {path.with_suffix('.log')}"
                    ) from error
                await asyncio.sleep(0.05)
            else:
                return

    def tell(self, **fields: Any) -> None:
        if self._writer is None:
            raise NotWorking(f"{self._module} is not started")
        self._writer.write(json.dumps(fields).encode() + b"\n")

    async def next(self) -> dict[str, Any] | None:
        """The next line; None once it has ended."""
        if self._reader is None:
            raise NotWorking(f"{self._module} is not started")
        line = await self._reader.readline()
        found: dict[str, Any] | None = json.loads(line) if line else None
        return found

    async def stop(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.stop, 5.0)


class Proxies(Peer):
    """Links, and their cuts. Any number may be asked for at once: each waits for its own answer."""

    def __init__(self, directory: Path) -> None:
        super().__init__("crash.proxy", directory)
        self._turn = asyncio.Lock()

    async def link(self, name: str, port: int, targets: Sequence[int]) -> None:
        await self._ask(link=name, port=port, to=list(targets))

    async def cut(self, name: str, how: str, *, seconds: float, share: float) -> None:
        await self._ask(cut=name, how=how, seconds=seconds, share=share)

    async def heal(self) -> None:
        await self._ask(heal=True)

    async def _ask(self, **fields: Any) -> None:
        async with self._turn:
            self.tell(**fields)
            if await self.next() is None:
                raise NotWorking("the proxy has ended")


class Workers(Peer):
    """The processes of one run, by name. on_end: called with the name and the exit code."""

    def __init__(self, directory: Path) -> None:
        super().__init__("crash.zygote", directory)
        self._ended: dict[str, asyncio.Event] = {}
        self._pids: dict[str, int] = {}
        self._listening: asyncio.Task[None] | None = None
        self.codes: dict[str, int] = {}
        self.on_end: Callable[[str, int], None] = lambda _, __: None

    async def start(self) -> None:
        await super().start()
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while (line := await self.next()) is not None:
            if "started" in line:
                self._pids[line["started"]] = line["pid"]
            else:
                name = line["ended"]
                self._pids.pop(name, None)
                self.codes[name] = line["code"]
                self.on_end(name, line["code"])
                self._ended[name].set()
        for event in self._ended.values():
            event.set()

    def run(
        self, name: str, argv: Sequence[str], environment: Mapping[str, str], log: Path, **more: Any
    ) -> None:
        """Forks a worker; it must not be running."""
        self._ended[name] = asyncio.Event()
        self.tell(start=name, argv=list(argv), environment=dict(environment), log=str(log), **more)

    def alive(self, name: str) -> bool:
        return name in self._ended and not self._ended[name].is_set()

    def signal(self, name: str, number: int) -> None:
        """Nothing happens if it has ended."""
        self.tell(signal=name, number=int(number))

    async def ended(self, name: str, timeout_s: float) -> bool:
        """Waits for its end; whether it came."""
        try:
            await asyncio.wait_for(self._ended[name].wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        await super().stop()
        if self._listening is not None:
            await asyncio.gather(self._listening, return_exceptions=True)
