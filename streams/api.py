"""Stage api: takes e-mails over HTTP, and answers 202 once their rows are committed."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from streams.accepting.endpoint import Endpoint
from streams.accepting.keys import Keys
from streams.accepting.openapi import document
from streams.accepting.posting import Posting
from streams.accepting.reading import Reading
from streams.accepting.routes import Router, routes
from streams.accepting.suppressing import Suppressing
from streams.accepting.turns import Turns
from streams.accepting.writer import Writer
from streams.domain.attachments import Places
from streams.domain.errors import Misconfigured
from streams.ports.accepting import AcceptStore
from streams.runtime import metrics
from streams.runtime.connections import Connections
from streams.runtime.http import HttpServer
from streams.runtime.lifecycle import Health, run_loop
from streams.runtime.settings import Settings

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 2048
HEAD_TIMEOUT_S: Final = 10.0
# Longer than the proxies that may stand before us: they must not send into a connection that we close.
IDLE_TIMEOUT_S: Final = 125.0
PURGE_S: Final = 5.0
# Of the time for an answer so much is waited for what is under way.
STOPPING_SHARE: Final = 0.65
# Half of the pool writes, the rest reads.
SHARE_OF_WRITERS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Where it listens and what it bounds. connections: of the pool; answer_s: the longest that an answer takes."""

    host: str = "127.0.0.1"
    port: int = 0
    salt: bytes
    connections: int = 8
    answer_s: float = 8.0
    largest_body: int = 10 * 1024 * 1024
    most_waiting: int = 1000
    attachment_places: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> "ApiSettings":
        return cls(
            host=settings.api_host,
            port=settings.api_port,
            salt=settings.salt(),
            connections=settings.postgres_pool_size,
            answer_s=settings.api_timeout_s,
            largest_body=settings.api_max_body_bytes,
            most_waiting=settings.api_max_waiting,
            attachment_places=settings.attachment_places,
        )


class Api:
    """Stateless but for keys that it remembers for seconds: any number of them may run."""

    name = "api"

    def __init__(self, settings: ApiSettings, store: AcceptStore) -> None:
        self.health = Health(stage=self.name)
        self.health.not_ready("endpoint", "it does not listen yet")
        self._settings = settings
        self._store = store
        self._stopping = asyncio.Event()
        self._server: HttpServer | None = None
        writers = max(settings.connections // SHARE_OF_WRITERS, 1)
        turns = Turns(at_once=max(settings.connections - writers, 1), most=settings.most_waiting)
        self._turns = turns
        self._writer = Writer(store, most=settings.most_waiting, statements=writers)
        self._connections = Connections(
            limit=MAX_CONNECTIONS,
            head_timeout_s=HEAD_TIMEOUT_S,
            idle_timeout_s=IDLE_TIMEOUT_S,
            open_now=metrics.API_CONNECTIONS,
            closed=metrics.API_CONNECTIONS_CLOSED,
        )
        self.routes = routes(
            Posting(
                store,
                self._writer,
                turns,
                salt=settings.salt,
                places=Places(settings.attachment_places),
            ),
            Reading(store, turns, salt=settings.salt),
            Suppressing(store, turns, salt=settings.salt),
        )
        self._endpoint = Endpoint(
            Router(self.routes),
            Keys(store, turns),
            self._connections,
            largest=settings.largest_body,
            answer_s=settings.answer_s,
            document=document(self.routes),
        )

    @property
    def address(self) -> str:
        """host:port as bound; only between start() and stop()."""
        if self._server is None:
            raise Misconfigured("the endpoint is not started")
        return self._server.address

    async def start(self) -> None:
        """Unavailable when PostgreSQL does not answer: the port stays closed until it does."""
        self._stopping.clear()
        await self._store.start()
        self._writer.open()
        self._turns.open()
        server = HttpServer(
            self._endpoint.handle,
            host=self._settings.host,
            port=self._settings.port,
            lingering_s=1.0,
            connections=self._connections,
        )
        await server.start()
        self._server = server
        self.health.ready("endpoint")
        log.info("endpoint listens", extra={"action": "api.listening", "address": server.address})

    async def run(self) -> None:
        """Forgets old answers, and notices by it that PostgreSQL is away; the requests come by themselves."""
        await run_loop(self._purge, name="postgres", health=self.health, stopping=self._stopping)

    async def _purge(self) -> float:
        gone = await self._store.purge()
        return 0.0 if gone else PURGE_S

    async def stop(self) -> None:
        """Refuses what is new or waits, answers what is being written, closes."""
        self._stopping.set()
        self.health.not_ready("endpoint", "it does not listen any more")
        server, self._server = self._server, None
        within_s = self._settings.answer_s * STOPPING_SHARE
        closing = [self._writer.close(within_s=within_s), self._turns.close(within_s=within_s)]
        if server is not None:
            closing.append(server.stop())
        await asyncio.gather(*closing)
        await self._store.stop()
