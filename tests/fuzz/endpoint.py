"""The endpoint that is fuzzed: the real stage on real sockets, with ports that count, and a watch on every connection it opens."""

import logging
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

import streams.events as events_stage
from streams.adapters.sns import CertificateFetcher, SnsCertificates
from streams.domain.records import NewRecord, Record
from streams.domain.sns import TopicArn
from streams.events import Events, EventsSettings
from streams.intake import Intake, IntakeSettings
from streams.runtime import connections
from tests.sns_signing import CERTIFICATE_URL, SALT, TOPIC, certificate

CERTIFICATE_PATH = CERTIFICATE_URL.removeprefix("https://sns.eu-central-1.amazonaws.com")


@dataclass
class Effects:
    """What accepted inputs have caused, counted, and what should never happen."""

    events: int = 0
    kept: int = 0
    confirmations: int = 0
    fetched: set[str] = field(default_factory=set)
    strange_connections: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def publish(self, records: Sequence[NewRecord]) -> None:
        self.events += len(records)

    async def put(self, record: Record, *, reason: str) -> None:
        assert record.value is not None, reason
        self.kept += 1

    async def confirm(self, topic: TopicArn, token: str) -> None:
        assert (topic.text, token) == (TOPIC, "TOKEN-0123456789")
        self.confirmations += 1

    async def serve_certificate(self, request: web.Request) -> web.Response:
        self.fetched.add(request.raw_path)
        if request.raw_path != CERTIFICATE_PATH:
            return web.Response(status=404)
        return web.Response(body=certificate(now=datetime.now(UTC)))


class _Errors(logging.Handler):
    """Keeps every line that tells of an error of ours."""

    def __init__(self, effects: Effects) -> None:
        super().__init__(logging.ERROR)
        self._effects = effects

    def emit(self, record: logging.LogRecord) -> None:
        action = record.__dict__.get("action")
        if action != "events.unsubscribed" and len(self._effects.errors) < 100:
            at = record.__dict__.get("at") or record.exc_text or ""
            error = record.__dict__.get("error") or record.exc_info
            self._effects.errors.append(f"{record.getMessage()} {action} {error} {at}")


class _Watch:
    """Tells of each connection and look-up of a name that is not to one of these ports of this machine. An audit hook cannot
    be taken away again, so that there is one for the process, and it does nothing while nobody watches."""

    def __init__(self) -> None:
        self.effects: Effects | None = None
        self.ports: frozenset[int] = frozenset()
        self.hooked = False

    def begin(self, effects: Effects, ports: frozenset[int]) -> None:
        self.effects, self.ports = effects, ports
        if not self.hooked:
            sys.addaudithook(self._seen)
            self.hooked = True

    def end(self) -> None:
        self.effects = None

    def _seen(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.effects is None or event not in ("socket.connect", "socket.getaddrinfo"):
            return
        address = arguments[1] if event == "socket.connect" else arguments[:2]
        if address[0] != "127.0.0.1" or address[1] not in self.ports:
            self.effects.strange_connections.append(f"{event} {address}")


_WATCH = _Watch()


@contextmanager
def _short_times() -> Iterator[None]:
    changed = (
        (events_stage, "BODY_TIMEOUT_S", 1.0),
        (events_stage, "HEAD_TIMEOUT_S", 1.0),
        (events_stage, "IDLE_TIMEOUT_S", 0.5),
        (connections, "SWEEP_S", 0.1),
    )
    before = [(module, name, getattr(module, name)) for module, name, _ in changed]
    for module, name, value in changed:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


@asynccontextmanager
async def running(effects: Effects) -> AsyncIterator[int]:
    """The port of the endpoint. Its times are short, so that unfinished requests end soon."""
    app = web.Application()
    app.router.add_get("/{path:.*}", effects.serve_certificate)
    source = web.AppRunner(app, access_log=None)
    await source.setup()
    await web.TCPSite(source, "127.0.0.1", 0).start()
    source_port = source.addresses[0][1]
    certificates = SnsCertificates(CertificateFetcher(f"http://127.0.0.1:{source_port}"))
    settings = IntakeSettings(
        topics=frozenset((TOPIC,)),
        signature_versions=frozenset("12"),
        max_age=timedelta(hours=2),
        salt=SALT,
        events_topic="mail.delivery-events",
    )
    intake = Intake(settings, effects, effects, certificates, effects)
    handler = _Errors(effects)
    logging.getLogger().addHandler(handler)
    with _short_times():
        stage = Events(EventsSettings(), intake, effects, certificates)
        await stage.start()
        port = int(stage.address.rpartition(":")[2])
        _WATCH.begin(effects, frozenset((port, source_port)))
        try:
            yield port
        finally:
            _WATCH.end()
            await stage.stop()
            await source.cleanup()
            logging.getLogger().removeHandler(handler)
