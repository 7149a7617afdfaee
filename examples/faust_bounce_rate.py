"""Bounce rate of each sending domain, minute by minute, as an application of Faust (extra `faust`):

    python examples/faust_bounce_rate.py worker -l warn

Prints a line whenever a rate changes. BROKERS, TOPIC, PARTITIONS and APP in the environment say where. Any number of workers
may run. A rate is permanent bounces among accepted messages, both counted in the minute in which they happened.
"""

import os
import sys
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory

import faust

from streams.subscribers.faust_models import DeliveryEvent, read

MINUTE = timedelta(minutes=1)
KEPT = timedelta(hours=6)
REMEMBERED = 100_000


class Outcome(faust.Record, include_metadata=False, serializer="json"):
    """What of an event counts."""

    id: str
    at: float
    bounced: bool


def outcome_of(event: DeliveryEvent) -> Outcome | None:
    """Other events do not count, nor does mail to the provider's mailbox simulator."""
    data = event.data
    if data.sender_domain is None or (data.raw or {}).get("mailbox_simulator"):
        return None
    bounced = (
        event.kind == "bounced" and data.bounce is not None and data.bounce.type == "permanent"
    )
    if not bounced and event.kind != "accepted":
        return None
    return Outcome(id=event.id, at=event.time.timestamp(), bounced=bounced)


class Seen:
    """The latest ids, in the memory of this worker: Faust does not write counts and positions in one step, so a crash may
    still count some events twice. A rate that has to be exact belongs into a table of yours, keyed by event id."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def is_new(self, event_id: str) -> bool:
        if event_id in self._ids:
            return False
        self._ids[event_id] = None
        if len(self._ids) > REMEMBERED:
            del self._ids[next(iter(self._ids))]
        return True


def application(datadir: str) -> faust.App:
    partitions = int(os.environ.get("PARTITIONS", "12"))
    app = faust.App(
        os.environ.get("APP", "bounce-rate"),
        broker="kafka://" + os.environ.get("BROKERS", "localhost:9092"),
        consumer_auto_offset_reset="earliest",
        topic_partitions=partitions,
        topic_allow_declare=True,
        store="memory://",
        datadir=datadir,
        web_enabled=False,
    )
    events = app.topic(os.environ.get("TOPIC", "mail.delivery-events"), value_serializer="raw")
    # Events are keyed by recipient. Counting by domain needs all of a domain in one place: a topic of its own, by domain.
    by_domain = app.topic(
        f"{app.conf.id}-by-domain",
        key_type=str,
        value_type=Outcome,
        partitions=partitions,
        internal=True,
    )
    accepted, bounced = (
        app.Table(name, default=int, partitions=partitions)
        .tumbling(MINUTE, expires=KEPT)
        .relative_to_field(Outcome.at)  # type: ignore[arg-type] # the class has a descriptor there
        for name in ("accepted", "bounced")
    )
    seen = Seen()

    @app.agent(events)
    async def sort_by_domain(stream: faust.StreamT[bytes]) -> None:
        async for value in stream:
            event = read(value)
            outcome = None if event is None else outcome_of(event)
            if event is not None and outcome is not None:
                await by_domain.send(key=event.data.sender_domain, value=outcome)

    @app.agent(by_domain)
    async def count(stream: faust.StreamT[Outcome]) -> None:
        async for domain, outcome in stream.items():
            if not seen.is_new(outcome.id):
                continue
            table = bounced if outcome.bounced else accepted
            table[domain] += 1
            report(outcome.at, domain, bounced[domain].value(), accepted[domain].value())

    return app


def report(at: float, domain: str, bounced: int, accepted: int) -> None:
    minute = datetime.fromtimestamp(at - at % MINUTE.total_seconds(), UTC)
    rate = f"{bounced / accepted:.1%}" if accepted else "unknown"
    line = f"{minute:%H:%M} {domain} {bounced} of {accepted} bounced: {rate}"
    print(line, file=sys.__stdout__, flush=True)  # Faust makes log lines of sys.stdout


if __name__ == "__main__":
    with TemporaryDirectory() as unused:  # Faust wants one; the counts are in memory and in Kafka
        application(unused).main()
