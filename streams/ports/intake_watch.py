"""What the stages of the intake need to say that they are watching."""

from typing import Protocol


class WatchLog(Protocol):
    """Where one process of the intake writes down that it has watched, and what went wrong."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def report(self, *, trouble: str | None, ended: bool) -> None:
        """It has watched until now. Unavailable if that cannot be written."""
