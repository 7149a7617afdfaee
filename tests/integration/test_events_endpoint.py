"""The endpoint over real sockets: bounds, time limits, TLS, and the calls it makes itself."""

import asyncio
import gzip
import io
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs

import aiohttp
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from prometheus_client import REGISTRY

import streams.adapters.sns as sns_adapter
import streams.events as events_stage
from streams import request_load
from streams.adapters.sns import CertificateFetcher, SnsCertificates, SnsConfirmer
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.sns import TopicArn
from streams.events import Events, EventsSettings
from streams.intake import Intake
from streams.runtime.http import HttpServer
from tests.events_rig import Publisher, Rig, eventually
from tests.sns_signing import (
    CERTIFICATE_URL,
    TOPIC,
    certificate,
    confirmation,
    delivery,
    notification,
    ses_event,
    signed,
    signing_key,
    timestamp,
)

DELIVERY = ses_event("Delivery", delivery())
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def fresh(**fields: object) -> bytes:
    """A genuine delivery of this moment."""
    return signed(notification(DELIVERY, Timestamp=timestamp(datetime.now(UTC))) | fields)


def current_certificate() -> bytes:
    return certificate(now=datetime.now(UTC))


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A local HTTP server; gives its base URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "http://127.0.0.1:{1}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def endpoint(rig: Rig, settings: EventsSettings | None = None) -> AsyncIterator[Events]:
    stage = Events(settings or EventsSettings(), rig.intake(), rig.publisher, rig.certificates)
    await stage.start()
    running = asyncio.create_task(stage.run())
    try:
        yield stage
    finally:
        await stage.stop()
        await running


@pytest.fixture
async def rig() -> Rig:
    made = Rig()
    made.certificates.pem = current_certificate()
    return made


@pytest.fixture
async def stage(rig: Rig) -> AsyncIterator[Events]:
    async with endpoint(rig) as started:
        yield started


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def post(
    http: aiohttp.ClientSession, stage: Events, body: object, **headers: str
) -> tuple[int, str]:
    url = f"http://{stage.address}/sns"
    data = io.BytesIO(body) if isinstance(body, bytes) else body
    async with http.post(url, data=data, headers=headers) as answer:
        return answer.status, (await answer.text()).strip()


def counted(reason: str) -> float:
    return REGISTRY.get_sample_value("mailstreams_events_requests_total", {"reason": reason}) or 0.0


@pytest.mark.parametrize(
    "content_type",
    ["text/plain; charset=UTF-8", "application/json", "TEXT/PLAIN;charset=utf-8", "a/b; charset=x"],
)
async def test_any_content_type_is_accepted(
    rig: Rig, stage: Events, http: aiohttp.ClientSession, content_type: str
) -> None:
    before = counted("accepted")
    assert await post(http, stage, fresh(), **{"Content-Type": content_type}) == (200, "accepted")
    assert len(rig.publisher.records) == 1
    assert counted("accepted") == before + 1


async def test_the_header_of_raw_delivery_is_named(
    stage: Events, http: aiohttp.ClientSession
) -> None:
    answer = await post(http, stage, json.dumps(DELIVERY), **{"x-amz-sns-rawdelivery": "True"})
    assert answer == (400, "raw-delivery")


async def test_a_body_that_says_it_is_too_large_is_not_read(
    stage: Events, http: aiohttp.ClientSession
) -> None:
    assert await post(http, stage, b"a" * (events_stage.MAX_BODY + 1)) == (413, "too-large")


async def test_the_largest_message_of_sns_fits_however_it_is_escaped(
    rig: Rig, stage: Events, http: aiohttp.ClientSession
) -> None:
    room = 256 * 1024 - len(json.dumps(DELIVERY)) - 20
    for pad in ("\x01" * room, "ü" * (room // 2), "😀" * (room // 4)):
        message = json.dumps(DELIVERY)[:-1] + ', "pad": "' + pad + '"}'
        assert len(message.encode()) <= 256 * 1024
        body = fresh(Message=message)
        assert len(body) > len(message.encode())
        answer = await post(http, stage, body)
        assert answer in ((200, "accepted"), (200, "unreadable"))
    # A control character in a JSON text is none that JSON allows, so that one is kept raw.
    assert (len(rig.publisher.records), len(rig.unreadable.kept)) == (2, 1)


async def flood(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"10000\r\n" + b"a" * 0x10000 + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0)


async def test_a_body_that_never_ends_is_refused(stage: Events) -> None:
    host, port = stage.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /sns HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    answer = asyncio.create_task(reader.readline())
    with pytest.raises(ConnectionError):
        await flood(writer)
    assert await answer == b"HTTP/1.1 413 Request Entity Too Large\r\n"
    writer.close()


async def test_a_body_that_comes_too_slowly_is_asked_for_again(
    stage: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_stage, "BODY_TIMEOUT_S", 0.1)
    host, port = stage.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /sns HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert (await reader.readline()).startswith(b"HTTP/1.1 503")
    writer.close()


async def test_a_body_that_is_badly_packed_is_malformed(
    stage: Events, http: aiohttp.ClientSession
) -> None:
    answer = await post(http, stage, b"not gzip at all", **{"Content-Encoding": "gzip"})
    assert answer == (400, "malformed")
    packed = await post(http, stage, gzip.compress(fresh()), **{"Content-Encoding": "gzip"})
    assert packed == (200, "accepted")


async def test_a_packed_body_is_bounded_by_what_it_holds(
    stage: Events, http: aiohttp.ClientSession
) -> None:
    bomb = gzip.compress(b"a" * (64 * 1024 * 1024))
    assert await post(http, stage, bomb, **{"Content-Encoding": "gzip"}) == (413, "too-large")


async def test_the_server_itself_unpacks_nothing(http: aiohttp.ClientSession) -> None:
    """Not even what nobody reads: that would hold up every other request."""
    packed = gzip.compress(b"a" * 1_000_000)

    async def length(request: web.BaseRequest) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    server = HttpServer(length, host="127.0.0.1", port=0)
    await server.start()
    try:
        url, packing = f"http://{server.address}/", {"Content-Encoding": "gzip"}
        async with http.post(url, data=packed, headers=packing) as answer:
            assert await answer.text() == str(len(packed))
    finally:
        await server.stop()


class Slow(Publisher):
    """Never acknowledges."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()

    async def publish(self, _records: object) -> None:
        self.entered.set()
        await asyncio.Event().wait()


async def test_an_answer_is_given_in_time_whatever_hangs(
    http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_stage, "ANSWER_TIMEOUT_S", 0.2)
    rig = Rig(publisher=Slow())
    rig.certificates.pem = current_certificate()
    async with endpoint(rig) as stage:
        assert await post(http, stage, fresh()) == (503, "overloaded")


async def test_above_the_bound_of_requests_sns_is_asked_to_come_again(
    http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_load, "MAX_IN_FLIGHT", 1)
    monkeypatch.setattr(events_stage, "ANSWER_TIMEOUT_S", 2.0)
    publisher = Slow()
    rig = Rig(publisher=publisher)
    rig.certificates.pem = current_certificate()
    async with endpoint(rig) as stage:
        first = asyncio.create_task(post(http, stage, fresh()))
        await publisher.entered.wait()
        assert await post(http, stage, fresh()) == (503, "overloaded")
        assert await first == (503, "overloaded")


async def test_above_the_bound_of_bodies_sns_is_asked_to_come_again(
    stage: Events, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_load, "MAX_BODIES", 100)
    assert await post(http, stage, fresh()) == (503, "overloaded")
    monkeypatch.setattr(request_load, "MAX_BODIES", 10_000)
    assert await post(http, stage, fresh()) == (200, "accepted")


class Broken(Intake):
    """Has a bug."""

    async def receive(self, body: bytes, **_: object) -> object:  # type: ignore[override]
        raise KeyError(body)


async def test_an_error_of_ours_is_503_and_quotes_nothing(
    rig: Rig, http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    intake = object.__new__(Broken)
    stage = Events(EventsSettings(), intake, rig.publisher, rig.certificates)
    await stage.start()
    try:
        assert await post(http, stage, b"user1@example.com") == (503, "overloaded")
    finally:
        await stage.stop()
    (record,) = [r for r in caplog.records if r.__dict__.get("action") == "events.failed"]
    assert record.__dict__["error"] == "KeyError"
    assert "user1" not in str(record.__dict__)


async def test_without_kafka_the_port_stays_closed() -> None:
    rig = Rig(publisher=Publisher(down=True))
    stage = Events(EventsSettings(), rig.intake(), rig.publisher, rig.certificates)
    with pytest.raises(Unavailable):
        await stage.start()
    await stage.stop()
    rig.publisher.down = False
    await stage.start()
    assert stage.address
    await stage.stop()
    await stage.stop()


async def test_readiness_follows_kafka(
    rig: Rig, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_stage, "CONNECTION_CHECK_S", 0.01)
    async with endpoint(rig) as stage:
        rig.publisher.down = True
        assert await post(http, stage, fresh()) == (503, "publish-failed")
        assert "kafka" in stage.health.missing()
        rig.publisher.down = False
        await eventually(lambda: not stage.health.missing())
        assert await post(http, stage, fresh()) == (200, "accepted")


async def test_stopping_answers_what_is_under_way_and_closes(
    rig: Rig, http: aiohttp.ClientSession
) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    class Waiting(Publisher):
        async def publish(self, _records: object) -> None:
            entered.set()
            await leave.wait()

    rig.publisher = Waiting()
    stage = Events(EventsSettings(), rig.intake(), rig.publisher, rig.certificates)
    await stage.start()
    answer = asyncio.create_task(post(http, stage, fresh()))
    await entered.wait()
    stopping = asyncio.create_task(stage.stop())
    await asyncio.sleep(0)
    leave.set()
    assert await answer == (200, "accepted")
    await stopping
    assert rig.publisher.stopped


async def test_refusals_are_told_at_most_once_a_second(
    stage: Events, http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        await post(http, stage, b"nonsense")
    told = [r for r in caplog.records if r.__dict__.get("reason") == "malformed"]
    assert 1 <= len(told) < 10


async def test_the_endpoint_speaks_tls(
    rig: Rig, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    pem, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    pem.write_bytes(current_certificate())
    key.write_bytes(
        signing_key("trusted").private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    trusting = ssl.create_default_context(cafile=str(pem))
    trusting.check_hostname = False
    settings = EventsSettings(tls_certificate=pem, tls_key=key)
    async with endpoint(rig, settings) as stage:
        url = f"https://{stage.address}/sns"
        async with http.post(url, data=fresh(), ssl=trusting) as answer:
            assert answer.status == 200


async def test_a_tls_key_that_cannot_be_used_is_named_at_start(rig: Rig, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    settings = EventsSettings(tls_certificate=nothing, tls_key=nothing)
    stage = Events(settings, rig.intake(), rig.publisher, rig.certificates)
    with pytest.raises(Misconfigured, match="MAILSTREAMS_EVENTS_TLS_CERTIFICATE"):
        await stage.start()


async def test_a_certificate_source_of_our_own_is_told_at_start(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    async with endpoint(rig, EventsSettings(certificate_source="http://127.0.0.1:1")):
        actions = [r.__dict__.get("action") for r in caplog.records]
    assert "events.certificate_source" in actions


# What the stage itself calls -----------------------------------------------------------------------------------------


async def test_a_certificate_is_fetched_by_the_path_of_its_url() -> None:
    paths: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        paths.append(request.path_qs)
        return web.Response(body=current_certificate())

    async with serving(serve) as url:
        certificates = SnsCertificates(CertificateFetcher(url + "/"))
        found = await certificates.get(CERTIFICATE_URL)
        await certificates.stop()
    assert found.valid_at(datetime.now(UTC))
    assert paths == [CERTIFICATE_URL.removeprefix("https://sns.eu-central-1.amazonaws.com")]


@pytest.mark.parametrize("status", [301, 302, 307, 404, 500])
async def test_only_a_plain_answer_serves_a_certificate(status: int) -> None:
    asked: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        asked.append(request.path)
        headers = {"Location": "/elsewhere"} if status < 400 else {}
        return web.Response(status=status, headers=headers, body=current_certificate())

    async with serving(serve) as url:
        fetcher = CertificateFetcher(url)
        with pytest.raises(Unavailable, match=str(status)):
            await fetcher.fetch(CERTIFICATE_URL)
        await fetcher.close()
    assert len(asked) == 1


async def test_a_certificate_without_end_is_not_read() -> None:
    async def serve(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b"a" * 65536)

    async with serving(serve) as url:
        fetcher = CertificateFetcher(url)
        with pytest.raises(Unavailable, match="more than a certificate"):
            await fetcher.fetch(CERTIFICATE_URL)
        await fetcher.close()


async def test_a_certificate_host_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sns_adapter, "FETCH_TIMEOUT_S", 0.1)

    async def serve(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(serve) as url:
        certificates = SnsCertificates(CertificateFetcher(url))
        with pytest.raises(Unavailable):
            await certificates.get(CERTIFICATE_URL)
        await certificates.stop()


async def test_a_certificate_host_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        fetcher = CertificateFetcher(f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(Unavailable):
            await fetcher.fetch(CERTIFICATE_URL)
    await fetcher.close()


CONFIRMED = (
    '<ConfirmSubscriptionResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/">'
    f"<ConfirmSubscriptionResult><SubscriptionArn>{TOPIC}:1</SubscriptionArn></ConfirmSubscriptionResult>"
    "<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></ConfirmSubscriptionResponse>"
)


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


def topic() -> TopicArn:
    parsed = TopicArn.parse(TOPIC)
    assert parsed is not None
    return parsed


@pytest.mark.usefixtures("credentials")
async def test_a_subscription_is_confirmed_by_a_signed_call_in_the_topics_region(
    rig: Rig, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, dict[str, list[str]]]] = []

    async def serve(request: web.Request) -> web.Response:
        calls.append((request.headers["Authorization"], parse_qs(await request.text())))
        return web.Response(text=CONFIRMED, content_type="text/xml")

    async with serving(serve) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SNS", url)
        rig.confirmer = SnsConfirmer()  # type: ignore[assignment]
        async with endpoint(rig) as stage:
            body = signed(confirmation(Timestamp=timestamp(datetime.now(UTC))))
            for _ in range(2):
                assert await post(http, stage, body) == (200, "accepted")
    authorization, call = calls[0]
    assert "/eu-central-1/sns/aws4_request" in authorization
    assert call["Action"] == ["ConfirmSubscription"]
    assert call["TopicArn"] == [TOPIC]
    assert call["Token"] == ["TOKEN-0123456789"]
    assert call["AuthenticateOnUnsubscribe"] == ["true"]
    assert len(calls) == 2


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("status", [400, 403, 500, 503])
async def test_a_call_that_fails_is_made_once_and_tells_no_token(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    calls: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        calls.append(request.path)
        return web.Response(status=status, text=f"<x>{await request.text()}</x>")

    monkeypatch.setattr(sns_adapter, "CONFIRM_TIMEOUT_S", 60.0)  # a busy machine
    async with serving(serve) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SNS", url)
        with pytest.raises(Unavailable) as raised:
            await SnsConfirmer().confirm(topic(), "SECRET-TOKEN")
    assert len(calls) == 1
    assert "SECRET" not in str(raised.value)


@pytest.mark.usefixtures("credentials")
async def test_a_call_without_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sns_adapter, "CONFIRM_TIMEOUT_S", 0.5)

    async def serve(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(serve) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SNS", url)
        with pytest.raises(Unavailable):
            await SnsConfirmer().confirm(topic(), "TOKEN")
