"""Stage events: takes what Amazon SNS posts to POST /sns and answers so that SNS repeats exactly what we could not keep."""

import asyncio
import logging
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import hdrs, web

from streams.domain.basic_auth import CHALLENGE, is_authorized, parse_credentials
from streams.domain.content_encoding import unpacked
from streams.domain.errors import BadMessage, Misconfigured
from streams.domain.sns import (
    MESSAGE_ID_HEADER,
    RAW_DELIVERY_HEADER,
    TOPIC_HEADER,
    Reason,
)
from streams.intake import Intake, Verdict
from streams.intake_watch import IntakeWatch
from streams.ports.events import SigningCertificates
from streams.ports.kafka_writing import EventPublisher
from streams.queue_intake import QueueIntake
from streams.refusals import Refusals, unforeseen
from streams.request_load import RequestLoad, RequestShare
from streams.runtime import metrics
from streams.runtime.connections import Connections
from streams.runtime.http import HttpServer
from streams.runtime.lifecycle import Health, run_loop
from streams.runtime.settings import Settings

log = logging.getLogger(__name__)

PATH = "/sns"
# 256 KiB as SNS counts them, where every byte is escaped to six, and the envelope around.
MAX_BODY = 1600 * 1024
BODY_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 14.0
MAX_CONNECTIONS = 2048
HEAD_TIMEOUT_S = 10.0
# Longer than the proxies that may stand before us: they must not send into a connection that we close.
IDLE_TIMEOUT_S = 125.0
CONNECTION_CHECK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsSettings:
    """Where the endpoint listens and whom it listens to.

    basic_auth: pairs "user:password" of which a request has to have one; none: nobody is asked. raw_delivery: events without
    an envelope are taken too, for which basic_auth is all that proves them. certificate_source is only told at start: with
    it no event is proven genuine.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    certificate_source: str | None = None
    basic_auth: tuple[str, ...] = ()
    raw_delivery: bool = False

    def __post_init__(self) -> None:
        if self.raw_delivery and not self.basic_auth:
            raise Misconfigured(
                "MAILSTREAMS_EVENTS_RAW_DELIVERY needs MAILSTREAMS_EVENTS_BASIC_AUTH: "
                "raw messages have no signature, so that anybody could forge them"
            )

    @classmethod
    def of(cls, settings: Settings) -> "EventsSettings":
        return cls(
            host=settings.events_host,
            port=settings.events_port,
            tls_certificate=settings.events_tls_certificate,
            tls_key=settings.events_tls_key,
            certificate_source=settings.sns_certificate_source,
            basic_auth=parse_credentials(settings.events_basic_auth.get_secret_value()),
            raw_delivery=settings.events_raw_delivery,
        )


class Events:
    """The endpoint, and the queues where there are some. It owns the publisher and the certificates: it starts the one and
    stops both.

    Every request is answered within 14 s; SNS gives up after 15 s.
    """

    name = "events"

    def __init__(
        self,
        settings: EventsSettings,
        intake: Intake,
        publisher: EventPublisher,
        certificates: SigningCertificates,
        queues: QueueIntake | None = None,
        *,
        watch: IntakeWatch | None = None,
    ) -> None:
        self.health = Health(stage=self.name)
        self._settings = settings
        self._intake = intake
        self._publisher = publisher
        self._certificates = certificates
        self._queues = queues
        self._stopping = asyncio.Event()
        self._server: HttpServer | None = None
        self._connections = Connections(
            limit=MAX_CONNECTIONS, head_timeout_s=HEAD_TIMEOUT_S, idle_timeout_s=IDLE_TIMEOUT_S
        )
        self._load = RequestLoad()
        self._watch = watch
        self._refusals = Refusals(watch)
        self.health.not_ready("endpoint", "it does not listen yet")
        # Each series is there from the start, so that a rate sees its first step.
        self._requests = {r: metrics.EVENTS_REQUESTS.labels(reason=r) for r in Reason}

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
        server = HttpServer(
            self._routed,
            host=self._settings.host,
            port=self._settings.port,
            tls=tls,
            lingering_s=1.0,
            connections=self._connections,
        )
        await server.start()
        self._server = server
        self.health.ready("endpoint")
        log.info(
            "endpoint listens", extra={"action": "events.listening", "address": server.address}
        )

    async def run(self) -> None:
        """Watches the connection to Kafka and reads the queues; the requests come by themselves."""
        duties = [run_loop(self._check, name="kafka", health=self.health, stopping=self._stopping)]
        if self._queues is not None:
            duties.append(self._queues.run(self.health, self._stopping))
        if self._watch is not None:
            duties.append(
                run_loop(
                    self._watch.report, name="watch", health=self.health, stopping=self._stopping
                )
            )
        await asyncio.gather(*duties)

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
        if self._queues is not None:
            await self._queues.stop()
        if self._watch is not None:
            await self._watch.stop()
        await self._certificates.stop()
        await self._publisher.stop()

    async def _routed(self, request: web.BaseRequest) -> web.Response:
        if request.path != PATH:
            raise web.HTTPNotFound
        if request.method != hdrs.METH_POST:
            raise web.HTTPMethodNotAllowed(request.method, [hdrs.METH_POST])
        if hdrs.EXPECT in request.headers:
            _continue(request)
        return await self._post(request)

    async def _post(self, request: web.BaseRequest) -> web.Response:
        started = time.perf_counter()
        metrics.EVENTS_IN_FLIGHT.inc()
        try:
            verdict = await self._guarded(request)
        finally:
            metrics.EVENTS_IN_FLIGHT.dec()
            self._connections.done(request.protocol)
        reason = verdict.reason
        self._requests[reason].inc()
        self._refusals.tell(verdict)
        if reason is Reason.PUBLISH_FAILED:
            self.health.not_ready("kafka", f"an event could not be published: {verdict.detail}")
        answer = web.Response(body=_TEXTS[reason], status=reason.status, headers=_PLAIN_TEXT)
        if reason is Reason.UNAUTHORIZED:
            answer.headers[hdrs.WWW_AUTHENTICATE] = CHALLENGE
        if not request.content.is_eof():
            answer.force_close()
        metrics.EVENTS_ANSWER_SECONDS.observe(time.perf_counter() - started)
        return answer

    async def _guarded(self, request: web.BaseRequest) -> Verdict:
        """Whatever happens, SNS gets an answer in time, and never one that makes it forget an event that we failed to keep."""
        started = asyncio.get_running_loop().time()
        is_whole = request.content.is_eof()
        if not is_whole:
            self._connections.reading(request.protocol)
        until = started + (ANSWER_TIMEOUT_S if is_whole else BODY_TIMEOUT_S)
        try:
            async with asyncio.timeout_at(until) as deadline:
                with self._load.share() as share:
                    if self._is_unauthorized(request):
                        return _UNAUTHORIZED
                    body = await self._body(request, share)
                    if isinstance(body, bytes):
                        body = _plain(request, body, share)
                    if isinstance(body, Verdict):
                        return body
                    self._connections.working(request.protocol)
                    if not share.admitted():
                        return _OVERLOADED
                    if not is_whole:
                        deadline.reschedule(started + ANSWER_TIMEOUT_S)
                    return await self._handled(request, body)
        except TimeoutError:
            return Verdict(reason=Reason.OVERLOADED, detail="it was not done in time")
        except Exception as error:  # noqa: BLE001 nobody foresaw it, and the event must come again
            return unforeseen(error, duty="request")

    def _is_unauthorized(self, request: web.BaseRequest) -> bool:
        """SNS sends its credentials only after it was asked for them by an answer 401."""
        accepted = self._settings.basic_auth
        return bool(accepted) and not is_authorized(
            request.headers.get(hdrs.AUTHORIZATION), accepted
        )

    async def _body(self, request: web.BaseRequest, share: RequestShare) -> bytes | Verdict:
        """The body, read only as far as it is allowed to be."""
        if (request.content_length or 0) > MAX_BODY:
            return _TOO_LARGE
        chunks: list[bytes] = []
        try:
            if request.content.is_eof():  # as a rule it came with the head
                whole = request.content.read_nowait()
                if share.grown(len(whole)) > MAX_BODY:
                    return _TOO_LARGE
                return whole if share.fits() else _OVERLOADED
            async for chunk in request.content.iter_any():
                chunks.append(chunk)
                if share.grown(len(chunk)) > MAX_BODY:
                    return _TOO_LARGE
                if not share.fits():
                    return _OVERLOADED
        except web.RequestPayloadError:
            return Verdict(reason=Reason.MALFORMED, detail="the body is broken off or badly packed")
        except ConnectionError:  # nobody hears the answer
            return Verdict(reason=Reason.MALFORMED, detail="the connection broke off")
        return b"".join(chunks)

    async def _handled(self, request: web.BaseRequest, body: bytes) -> Verdict:
        now = datetime.now(UTC)
        raw = request.headers.get(RAW_DELIVERY_HEADER, "").strip().lower() == "true"
        if raw and self._settings.raw_delivery:
            return await self._intake.receive_raw(
                body,
                topic=request.headers.get(TOPIC_HEADER, ""),
                message_id=request.headers.get(MESSAGE_ID_HEADER, ""),
                now=now,
            )
        return await self._intake.receive(body, now=now, raw_delivery=raw)

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


def _plain(request: web.BaseRequest, body: bytes, share: RequestShare) -> bytes | Verdict:
    """The body as it was before somebody on the way packed it; SNS itself does not."""
    if hdrs.CONTENT_ENCODING not in request.headers:
        return body
    encoding = ",".join(request.headers.getall(hdrs.CONTENT_ENCODING))
    try:
        plain = unpacked(body, encoding, limit=MAX_BODY)
    except BadMessage as error:
        return Verdict(reason=Reason.MALFORMED, detail=str(error))
    share.grown(len(plain))
    if len(plain) > MAX_BODY:
        return _TOO_LARGE
    return plain if share.fits() else _OVERLOADED


def _continue(request: web.BaseRequest) -> None:
    """Lets the client go on that waits for leave to send the body."""
    if request.headers[hdrs.EXPECT].lower() != "100-continue":
        raise web.HTTPExpectationFailed
    if request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


_TEXTS = {reason: f"{reason}\n".encode() for reason in Reason}
_PLAIN_TEXT = {hdrs.CONTENT_TYPE: "text/plain; charset=utf-8"}
_TOO_LARGE = Verdict(reason=Reason.TOO_LARGE, detail="the body has more than 1,600 KiB")
_UNAUTHORIZED = Verdict(reason=Reason.UNAUTHORIZED, detail="no credentials that we know")
_OVERLOADED = Verdict(reason=Reason.OVERLOADED, detail="too many requests are under way")


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
