"""Writing to Kafka, as several stages need it."""

from collections.abc import Sequence
from typing import Protocol

from streams.domain.records import NewRecord, Record


class EventPublisher(Protocol):
    """Writes records so that they count only when every in-sync replica has them."""

    async def start(self) -> None:
        """Connects, if it is not connected; Unavailable when no broker answers."""

    async def publish(self, records: Sequence[NewRecord]) -> None:
        """Returns when all of them are acknowledged; Unavailable when one may not be."""

    async def stop(self) -> None: ...


class SetAside(Protocol):
    """Keeps what cannot be read, encrypted."""

    async def put(self, record: Record, *, reason: str) -> None:
        """Returns when it is acknowledged; Unavailable otherwise."""


class UnreadableRecords(SetAside, Protocol):
    """A SetAside with a connection of its own."""

    async def stop(self) -> None: ...
