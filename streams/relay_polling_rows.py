"""From rows of the feed to batches: what can never be a record is set aside first, what has no topic yet is waited for."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from streams.domain.errors import Unavailable
from streams.domain.feed_rows import FeedRow, Refusal, sift
from streams.ports.relay import RecordSink
from streams.ports.relay_polling import PollingStore
from streams.runtime import metrics
from streams.runtime.lifecycle import Health, wait_or_stop

log = logging.getLogger(__name__)

_ASK_AGAIN_S: Final = 1.0


class Rows:
    """The way of rows into the sink. refused: rows that Kafka refused, with its reason, until they are removed."""

    def __init__(
        self, sink: RecordSink, store: PollingStore, *, health: Health, stopping: asyncio.Event
    ) -> None:
        self.refused: dict[bytes | None, str] = {}
        self._sink = sink
        self._store = store
        self._health = health
        self._stopping = stopping

    async def accept(
        self, rows: Sequence[FeedRow], known: set[bytes | None], check: Callable[[], None]
    ) -> None:
        """Puts the rows into batches. known grows by their topics; check raises once nothing may be written any more."""
        largest = max((len(row[5] or b"") for row in rows), default=0)
        aggregates = {row[2] for row in rows}
        if (
            self.refused
            or largest > self._sink.largest_record
            or not aggregates <= known
            or not all(row[3] for row in rows)
        ):
            rows, aside = sift(
                rows, largest=self._sink.largest_record, refused_ids=self.refused.keys()
            )
            for row, reason in aside:
                await self._set_aside(row, reason)
            await self._wait_for_topics({row[2] for row in rows}, known, check)
        check()
        if rows:
            self._sink.append(rows)

    async def _wait_for_topics(
        self, aggregates: set[bytes | None], known: set[bytes | None], check: Callable[[], None]
    ) -> None:
        """Returns when each has a topic; nothing passes the rows meanwhile."""
        names = [name for name in aggregates - known if name is not None]
        while True:
            try:
                await self._sink.know_topics(names)
            except Unavailable as error:
                if await wait_or_stop(self._stopping, _ASK_AGAIN_S):
                    raise
                check()
                self._health.not_ready("topic", str(error))
                self._health.beat("stream")
                log.warning(
                    "a row waits for its topic",
                    extra={"action": "relay.topic_waits", "error": str(error)},
                )
            else:
                known |= aggregates
                self._health.ready("topic")
                return

    async def _set_aside(self, row: FeedRow, reason: Refusal) -> None:
        await self._store.set_aside(row, reason, self.refused.get(row[1]))
        metrics.RELAY_REFUSED.labels(reason=reason.value).inc()
        log.error(
            "a row of the feed can never be a record and was set aside in relay_refused",
            extra={
                "action": "relay.row_refused",
                "id": str(row[1], "ascii") if row[1] else None,
                "reason": reason.value,
            },
        )
