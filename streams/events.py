"""Stage events: takes what Amazon SNS posts to POST /sns and answers so that SNS repeats exactly what we could not keep."""

import asyncio
import logging
import ssl
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from streams.domain.errors import Misconfigured
from streams.domain.sns import RAW_DELIVERY_HEADER, Reason
from streams.intake import Intake, Verdict
from streams.ports.events import SigningCertificates
from streams.ports.kafka_writing import EventPublisher
from streams.runtime import metrics
from streams.runtime.http import HttpServer
from streams.runtime.lifecycle import Health, run_loop
from streams.runtime.settings import Settings

log = logging.getLogger(__name__)

MAX_BODY = 512 * 1024
MAX_BODIES = 64 * 1024 * 1024
BODY_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 14.0
MAX_IN_FLIGHT = 1024
CONNECTION_CHECK_S = 2.0
LOG_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsSettings:
    """Where the endpoint listens. certificate_source is only told at start: with it no event is proven genuine."""

    host: str = "127.0.0.1"
    port: int = 0
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    certificate_source: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> "EventsSettings":
        return cls(
            host=settings.events_host,
            port=settings.events_port,
            tls_certificate=settings.events_tls_certificate,
            tls_key=settings.events_tls_key,
            certificate_source=settings.sns_certificate_source,
        )


class Events:
    """The endpoint. It owns the publisher and the certificates: it starts the one and stops both.

    Every request is answered within 14 s; SNS gives up after 15 s.
    """

    name = "events"

    def __init__(
        self,
        settings: EventsSettings,
        intake: Intake,
        publisher: EventPublisher,
        certificates: SigningCertificates,
    ) -> None:
        self.health = Health(stage=self.name)
        self._settings = settings
        self._intake = intake
        self._publisher = publisher
        self._certificates = certificates
        self._stopping = asyncio.Event()
        self._server: HttpServer | None = None
        self._load = _Load()
        self._refusals = _RefusalLog()
        self.health.not_ready("endpoint", "it does not listen yet")
        # Each series is there from the start, so that a rate sees its first step.
        for reason in Reason:
            metrics.EVENTS_REQUESTS.labels(reason=reason)

    @property
    def address(self) -> str:
        """host:port as bound; only between start() and stop()."""
        if self._server is None:
            raise Misconfigured("the endpoint is not started")
        return self._server.address

    async def start(self) -> None:
        """Unavailable when Kafka does not answer: the port stays closed until it does."""
        self._stopping.clear()
        self._warn_of_certificate_source()
        tls = _tls(self._settings)
        await self._publisher.start()
        app = web.Application()
        app.add_routes([web.post("/sns", self._post)])
        server = HttpServer(
            app, host=self._settings.host, port=self._settings.port, tls=tls, lingering_s=1.0
        )
        await server.start()
        self._server = server
        self.health.ready("endpoint")
        log.info(
            "endpoint listens", extra={"action": "events.listening", "address": server.address}
        )

    async def run(self) -> None:
        """Watches the connection to Kafka; the requests come by themselves."""
        await run_loop(self._check, name="kafka", health=self.health, stopping=self._stopping)

    async def _check(self) -> float:
        await self._publisher.start()
        if self._stopping.is_set():  # stop() came while it connected
            await self._publisher.stop()
        return CONNECTION_CHECK_S

    async def stop(self) -> None:
        """Refuses new connections, answers what is under way, closes."""
        self._stopping.set()
        self.health.not_ready("endpoint", "it does not listen any more")
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        await self._certificates.stop()
        await self._publisher.stop()

    async def _post(self, request: web.Request) -> web.Response:
        started = time.perf_counter()
        with metrics.EVENTS_IN_FLIGHT.track_inprogress():
            verdict = await self._guarded(request)
        reason = verdict.reason
        metrics.EVENTS_REQUESTS.labels(reason=reason).inc()
        if reason is Reason.ACCEPTED:
            metrics.EVENTS_LAST_ACCEPTED.set_to_current_time()
        else:
            self._refusals.tell(verdict)
        if reason is Reason.PUBLISH_FAILED:
            self.health.not_ready("kafka", "an event could not be published")
        answer = web.Response(text=f"{reason}\n", status=reason.status)
        if not request.content.is_eof():
            answer.force_close()
        metrics.EVENTS_ANSWER_SECONDS.observe(time.perf_counter() - started)
        return answer

    async def _guarded(self, request: web.Request) -> Verdict:
        """Whatever happens, SNS gets an answer in time, and never one that makes it forget an event that we failed to keep."""
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(started + BODY_TIMEOUT_S) as deadline:
                with self._load.share() as share:
                    body = await self._body(request, share)
                    if isinstance(body, Verdict):
                        return body
                    if not share.admitted():
                        return _OVERLOADED
                    deadline.reschedule(started + ANSWER_TIMEOUT_S)
                    return await self._handled(request, body)
        except TimeoutError:
            return Verdict(reason=Reason.OVERLOADED, detail="it was not done in time")
        except ConnectionError:
            raise  # the peer has gone; aiohttp ends the connection
        except Exception as error:  # noqa: BLE001 nobody foresaw it, and the event must come again
            return self._unforeseen(error)

    async def _body(self, request: web.Request, share: "_Share") -> bytes | Verdict:
        """The body, read only as far as it is allowed to be."""
        if (request.content_length or 0) > MAX_BODY:
            return _TOO_LARGE
        chunks: list[bytes] = []
        try:
            async for chunk in request.content.iter_any():
                chunks.append(chunk)
                if share.grown(len(chunk)) > MAX_BODY:
                    return _TOO_LARGE
                if not share.fits():
                    return _OVERLOADED
        except web.RequestPayloadError:
            return Verdict(reason=Reason.MALFORMED, detail="the body is broken off or badly packed")
        return b"".join(chunks)

    async def _handled(self, request: web.Request, body: bytes) -> Verdict:
        raw = request.headers.get(RAW_DELIVERY_HEADER, "").strip().lower() == "true"
        return await self._intake.receive(body, now=datetime.now(UTC), raw_delivery=raw)

    def _unforeseen(self, error: Exception) -> Verdict:
        """Where it happened is told, the error's text not: it may quote the body."""
        metrics.DUTY_FAILURES.labels(
            stage=self.name, duty="request", kind=type(error).__name__
        ).inc()
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        log.error(
            "request failed",
            extra={
                "action": "events.failed",
                "error": type(error).__name__,
                "at": [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames],
            },
        )
        return Verdict(reason=Reason.OVERLOADED, detail="an error nobody foresaw")

    def _warn_of_certificate_source(self) -> None:
        if self._settings.certificate_source is not None:
            log.warning(
                "signing certificates come from a source of our own instead of Amazon: "
                "whoever controls it can forge events; unset MAILSTREAMS_SNS_CERTIFICATE_SOURCE in production",
                extra={
                    "action": "events.certificate_source",
                    "source": self._settings.certificate_source,
                },
            )


_TOO_LARGE = Verdict(reason=Reason.TOO_LARGE, detail="the body has more than 512 KiB")
_OVERLOADED = Verdict(reason=Reason.OVERLOADED, detail="too many requests are under way")


class _Load:
    """What all requests hold together: at most 64 MiB of bodies, and 1,024 whole bodies that are worked on."""

    def __init__(self) -> None:
        self.size = 0
        self.requests = 0

    def share(self) -> "_Share":
        return _Share(self)


class _Share:
    """What one request holds, given back at its end."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._size = 0
        self._admitted = False

    def __enter__(self) -> "_Share":
        return self

    def __exit__(self, *_: object) -> None:
        self._load.size -= self._size
        self._load.requests -= self._admitted

    def grown(self, size: int) -> int:
        self._size += size
        self._load.size += size
        return self._size

    def fits(self) -> bool:
        return self._load.size <= MAX_BODIES

    def admitted(self) -> bool:
        self._admitted = self._load.requests < MAX_IN_FLIGHT
        self._load.requests += self._admitted
        return self._admitted


class _RefusalLog:
    """Tells of requests that were not simply accepted: of each reason one a second, so that strangers cannot fill the disk."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next: dict[Reason, float] = {}
        self._left_out: Counter[Reason] = Counter()

    def tell(self, verdict: Verdict) -> None:
        reason = verdict.reason
        now = self._clock()
        if now < self._next.get(reason, now):
            self._left_out[reason] += 1
            return
        self._next[reason] = now + LOG_EVERY_S
        log.warning(
            "request was not simply accepted",
            extra={
                "action": "events.refused",
                "reason": reason,
                "detail": verdict.detail,
                "topic": verdict.topic,
                "sns_message_id": verdict.message_id,
                "left_out": self._left_out.pop(reason, 0),
            },
        )


def _tls(settings: EventsSettings) -> ssl.SSLContext | None:
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise Misconfigured(
            f"MAILSTREAMS_EVENTS_TLS_CERTIFICATE and MAILSTREAMS_EVENTS_TLS_KEY cannot be used: {error}"
        ) from error
    return context
