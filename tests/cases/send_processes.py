"""Senders as processes of their own, which can be killed."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from streams.runtime.settings import Settings
from tests.cases.send_scene import Place

ENDS_WITHIN_S: Final = 60.0


@dataclass(slots=True, kw_only=True)
class SenderProcess:
    """A sender that can be killed. port: by which its calls come in."""

    number: int
    instance: int
    port: int
    log: Path
    process: asyncio.subprocess.Process
    is_ended_by_us: bool = False

    @classmethod
    async def start(
        cls, of: Place, *, number: int, instance: int, port: int, gate: int
    ) -> "SenderProcess":
        """One that takes another's place is the same instance, and reads the journal of its calls."""
        log = of.scene.directory / f"sender-{of.number}-{number}.log"
        journal = of.scene.directory / f"sender-{of.number}-{instance}.journal"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.cases.sender_process", str(gate)),
                *sorted(of.scene.outside),
                env=os.environ
                | environment(of.settings)
                | {"MAILSTREAMS_SENDER_JOURNAL": str(journal)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        return cls(number=number, instance=instance, port=port, log=log, process=process)

    @property
    def lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()

    async def is_ready(self) -> bool:
        assert self.process.returncode is None, "\n".join(self.lines[-20:])
        for line in self.lines:
            with contextlib.suppress(ValueError):
                if address := json.loads(line).get("address"):
                    return await _answers_200(f"http://{address}/health/ready")
        return False

    def signal(self, number: int) -> None:
        self.is_ended_by_us = True
        os.kill(self.process.pid, number)

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.terminate()
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
            raise


async def _answers_200(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


def environment(settings: Settings) -> Mapping[str, str]:
    """The variables that make a process have these settings."""
    found: dict[str, str] = {}
    for name, value in settings.model_dump(exclude_unset=True).items():
        if value is None:
            continue
        plain: Any = value.get_secret_value() if hasattr(value, "get_secret_value") else value
        text = ",".join(plain) if isinstance(plain, tuple) else str(plain)
        found[f"MAILSTREAMS_{name.upper()}"] = text
    return found
