"""A relay in polling mode on a database and topics of its own."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from streams.adapters.feed_index import make_feed_index
from streams.adapters.kafka_batches import KafkaBatches
from streams.adapters.postgres import Database
from streams.adapters.relay_poll_store import CONNECTIONS, PLANNER, RelayPollStore
from streams.domain.delivery_events import CONTENT_TYPE
from streams.relay_polling import PollingSettings, RelayPolling
from tests.integration.relay_setup import Setup


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingSetup(Setup):
    """The addresses of one test's relays; dsn for the rows, relay_dsn for the relay where it differs."""

    shards: int = 1
    interval_s: float = 0.02
    relay_dsn: str | None = None
    pooled: bool = False

    def polling(
        self, *, max_rows: int = 20_000, drain_s: float = 10.0, name: str = "relay poll"
    ) -> RelayPolling:
        """A relay as the command wires it."""
        store = RelayPollStore(
            Database(
                self.relay_dsn or self.dsn,
                pool_size=CONNECTIONS,
                timeout_s=15,
                name=name,
                server_settings=PLANNER,
            ),
            slot=self.slot,
            relay_id=uuid4(),
        )
        return RelayPolling(
            PollingSettings(shards=self.shards, interval_s=self.interval_s, drain_s=drain_s),
            sink=KafkaBatches(
                self.bootstrap_servers,
                topic_prefix=self.topics.prefix,
                kinds={self.topics.suppressions: "suppressions"},
                content_types={self.topics.delivery_events: CONTENT_TYPE},
                linger_s=0.002,
                max_rows=max_rows,
                max_bytes=32 * 1024 * 1024,
            ),
            store=store,
        )

    async def make_index(self) -> None:
        async with Database(self.dsn, pool_size=2, timeout_s=30, name="test") as database:
            await make_feed_index(database)

    async def rows_left(self) -> int:
        return int(await self.value("SELECT count(*) FROM outbox_feed"))

    async def is_empty(self) -> bool:
        return await self.rows_left() == 0

    def command(self) -> Sequence[str]:
        """The command line of this relay as a process of its own."""
        return [
            *(sys.executable, "-m", "tests.integration.polling_process"),
            *(self.relay_dsn or self.dsn, self.bootstrap_servers, self.topics.prefix, self.slot),
            *(str(self.shards),),
        ]
