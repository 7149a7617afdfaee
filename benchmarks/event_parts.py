"""What the parts of the events stage cost alone, on the same notifications and the same machine as the whole."""

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, Final

import uvloop
from aiohttp import web

from streams.adapters.kafka_publisher import KafkaPublisher
from streams.domain.delivery_events import DeliveryEvent, encode
from streams.domain.records import NewRecord
from streams.domain.ses_events import read_notice
from streams.domain.sns import Envelope, is_genuine, read_envelope
from streams.domain.sns_certificates import read_certificate
from streams.runtime.http import HttpServer

_REPEATS: Final = 5
_IN_FLIGHT: Final = 64


def decision_parts(bodies: Sequence[bytes], certificate: bytes, salt: bytes) -> dict[str, float]:
    """Microseconds of processor time a message: of the envelope's reading, the signature check, the event's reading and writing."""
    key = read_certificate(certificate).key
    now = datetime.now(UTC)
    envelopes = [e for e in map(read_envelope, bodies) if isinstance(e, Envelope)]
    assert len(envelopes) == len(bodies)  # noqa: S101 all of the corpus is well-formed
    events = [e for v in envelopes for e in read_notice(v.message, salt=salt, received=now).events]
    return {
        "envelope": _cost(lambda: [read_envelope(b) for b in bodies], len(bodies)),
        "signature": _cost(lambda: [is_genuine(v, key) for v in envelopes], len(bodies)),
        "reading": _cost(
            lambda: [read_notice(v.message, salt=salt, received=now) for v in envelopes],
            len(bodies),
        ),
        "writing": _cost(lambda: [encode(e) for e in events], len(bodies)),
    }


def events_of(bodies: Sequence[bytes], salt: bytes) -> list[DeliveryEvent]:
    """The events of all of them."""
    now = datetime.now(UTC)
    envelopes = [e for e in map(read_envelope, bodies) if isinstance(e, Envelope)]
    return [e for v in envelopes for e in read_notice(v.message, salt=salt, received=now).events]


def publish_part(bootstrap_servers: str, topic: str, events: Sequence[DeliveryEvent]) -> float:
    """Microseconds of processor time an event, published one a call with as many calls at once as connections."""
    records = [
        NewRecord(topic=topic, key=e.recipient_key.encode(), value=encode(e)) for e in events
    ]

    async def publish() -> float:
        publisher = KafkaPublisher(bootstrap_servers, client_id="benchmark")
        await publisher.start()
        left = iter(records)

        async def one_after_the_other() -> None:
            for record in left:
                await publisher.publish([record])

        try:
            await publisher.publish(records[:1])
            started = time.process_time()
            await asyncio.gather(*(one_after_the_other() for _ in range(_IN_FLIGHT)))
            return (time.process_time() - started) / len(records) * 1e6
        finally:
            await publisher.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(publish())


@contextmanager
def bare_http() -> Iterator[tuple[int, Callable[[], float]]]:
    """A process with the HTTP server of the stage whose handler only reads the body: its port, and its processor time so far."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    port = ours.recv()

    def cpu_s() -> float:
        ours.send("cpu")
        return float(ours.recv())

    try:
        yield port, cpu_s
    finally:
        ours.send("stop")
        process.join(10)


def _serve(channel: Connection) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_served(channel))


async def _served(channel: Connection) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        await request.read()
        return web.Response(text="accepted\n")

    server = HttpServer(handler, host="127.0.0.1", port=0)
    await server.start()
    channel.send(int(server.address.rpartition(":")[2]))
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, channel.recv) == "cpu":
        channel.send(time.process_time())
    await server.stop()


def _cost(work: Callable[[], Any], count: int) -> float:
    taken = []
    for _ in range(_REPEATS):
        started = time.thread_time()
        work()
        taken.append((time.thread_time() - started) / count * 1e6)
    return median(taken)
