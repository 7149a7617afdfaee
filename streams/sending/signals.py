"""A wake-up between the duties of one process."""

import asyncio
from contextlib import suppress


class Signal:
    """set() wakes the one who waits, or the next one who comes to wait."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Returns when it is set, and takes it, or after so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        self._event.clear()
