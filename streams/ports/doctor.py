"""What the doctor asks. Every method only reads; it raises Unavailable without an answer, Misconfigured when it is refused."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from streams.domain.diagnosis_kafka import Cluster, Heartbeats
from streams.domain.diagnosis_polling import Polling
from streams.domain.diagnosis_postgres import Database, Server, Session
from streams.domain.diagnosis_replication import Place, Replication
from streams.domain.diagnosis_ses import Account, ConfigurationSet, Destination, Refusal
from streams.domain.diagnosis_slot import Publication, Slot, Surroundings, Working


class PostgresFacts(Protocol):
    """One connection."""

    async def session(self) -> Session: ...
    async def server(self, slot: str) -> tuple[Server, Surroundings, Place]: ...
    async def database(self) -> Database: ...
    async def publication(self, slot: str) -> Publication: ...
    async def slot(self, name: str) -> Slot | None: ...
    async def polling(self, slot: str) -> Polling: ...
    async def working(self, slot: str) -> Working: ...


class KafkaFacts(Protocol):
    """The topics of these names, as far as they exist, and the newest heartbeat of each partition of one that does."""

    async def cluster(self, names: Iterable[str], /) -> Cluster: ...
    async def heartbeats(self, topic: str, partitions: int, /) -> Heartbeats: ...


class SesFacts(Protocol):
    """One account in one region."""

    def region(self) -> str: ...
    async def credentials(self) -> None: ...
    async def account(self) -> Account | Refusal: ...
    async def configuration_set(self, name: str) -> ConfigurationSet | Refusal: ...
    async def destinations(self, name: str) -> Sequence[Destination] | Refusal: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the facts come from. replication is told what an ordinary connection says; ses: None if it is not to be asked."""

    postgres: Callable[[], AbstractAsyncContextManager[PostgresFacts]]
    replication: Callable[[Place | None], Awaitable[Replication]]
    kafka: KafkaFacts
    ses: SesFacts | None
