"""Strangers at the endpoint's port: slow ones, many of them, and those who do not speak HTTP. Credentials over real HTTP too."""

import asyncio
import gc
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
import uvloop
from cryptography.hazmat.primitives import serialization
from prometheus_client import REGISTRY

import streams.events as events_stage
from streams.events import Events, EventsSettings
from streams.runtime import connections
from streams.runtime import http as http_server
from tests.events_rig import Publisher, Rig, eventually
from tests.sns_signing import (
    TOPIC,
    certificate,
    delivery,
    notification,
    ses_event,
    signed,
    signing_key,
    timestamp,
)

DELIVERY = ses_event("Delivery", delivery())
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def fresh() -> bytes:
    return signed(notification(DELIVERY, Timestamp=timestamp(datetime.now(UTC))))


def made_rig() -> Rig:
    rig = Rig()
    rig.certificates.pem = certificate(now=datetime.now(UTC))
    return rig


@asynccontextmanager
async def endpoint(rig: Rig, settings: EventsSettings | None = None) -> AsyncIterator[Events]:
    stage = Events(settings or EventsSettings(), rig.intake(), rig.publisher, rig.certificates)
    await stage.start()
    try:
        yield stage
    finally:
        await stage.stop()


async def connect(stage: Events) -> Connection:
    host, port = stage.address.split(":")
    return await asyncio.open_connection(host, int(port))


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection is closed, however that happens."""
    async with asyncio.timeout(60):
        got = b""
        try:
            while chunk := await reader.read(65536):
                got += chunk
        except ConnectionError:
            pass
        return got


def status(answer: bytes) -> int:
    version, number = answer.split(b" ", maxsplit=2)[:2]
    assert version.startswith(b"HTTP/")
    return int(number)


async def post(stage: Events, body: bytes, **options: object) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"http://{stage.address}/sns", data=body, **options) as answer,  # type: ignore[arg-type]
    ):
        text = (await answer.text()).strip()
        return answer.status, text, answer.headers.get("WWW-Authenticate", "")


def closed(why: str) -> float:
    name = "mailstreams_events_connections_closed_total"
    return REGISTRY.get_sample_value(name, {"why": why}) or 0.0


def sample(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SWEEP_S", 0.02)
    monkeypatch.setattr(events_stage, "HEAD_TIMEOUT_S", 0.3)
    monkeypatch.setattr(events_stage, "IDLE_TIMEOUT_S", 0.3)


@pytest.mark.usefixtures("fast")
async def test_a_connection_without_a_request_is_closed() -> None:
    async with endpoint(made_rig()) as stage:
        before = closed("slow")
        reader, writer = await connect(stage)
        assert await ended(reader) == b""
        writer.close()
        assert closed("slow") == before + 1


async def drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"POST /sns HTTP/1.1\r\nHost: x\r\n")
    number = 0
    while not writer.is_closing():
        number += 1
        writer.write(b"X-%d: y\r\n" % number)
        await asyncio.sleep(0.02)


@pytest.mark.usefixtures("fast")
async def test_a_head_that_drips_in_is_not_waited_for() -> None:
    async with endpoint(made_rig()) as stage:
        reader, writer = await connect(stage)
        dripping = asyncio.create_task(drip(writer))
        assert await ended(reader) == b""
        dripping.cancel()
        writer.close()


@pytest.mark.usefixtures("fast")
async def test_who_waits_while_we_stand_still_is_heard_afterwards() -> None:
    async with endpoint(made_rig()) as stage:
        reader, writer = await connect(stage)
        await eventually(lambda: sample("mailstreams_events_connections") == 1)
        body = fresh()
        head = b"POST /sns HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        asyncio.get_running_loop().call_soon(time.sleep, 0.5)  # longer than a head may take
        writer.write(head + body)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.usefixtures("fast")
async def test_a_connection_that_is_silent_after_an_answer_is_closed() -> None:
    async with endpoint(made_rig()) as stage:
        before = closed("idle")
        reader, writer = await connect(stage)
        body = fresh()
        writer.write(b"POST /sns HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body)
        assert b"200 OK" in await ended(reader)
        writer.close()
        assert closed("idle") == before + 1


class Waiting(Publisher):
    """Acknowledges when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = 0
        self.leave = asyncio.Event()

    async def publish(self, _records: object) -> None:
        self.entered += 1
        await self.leave.wait()


@pytest.mark.usefixtures("fast")
async def test_a_request_at_work_is_not_bound_by_the_time_of_a_head() -> None:
    rig = made_rig()
    publisher = rig.publisher = Waiting()
    async with endpoint(rig) as stage:
        answer = asyncio.create_task(post(stage, fresh()))
        await eventually(lambda: publisher.entered == 1)
        reader, writer = await connect(stage)
        assert await ended(reader) == b""  # a silent one that came later is closed before
        writer.close()
        publisher.leave.set()
        assert (await answer)[0] == 200


async def test_at_the_bound_the_connection_that_waits_longest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events_stage, "MAX_CONNECTIONS", 10)
    async with endpoint(made_rig()) as stage:
        silent = [await connect(stage) for _ in range(10)]
        before = closed("displaced")
        assert (await post(stage, fresh()))[0] == 200
        assert await ended(silent[0][0]) == b""
        assert closed("displaced") == before + 1
        silent += [await connect(stage) for _ in range(20)]
        await eventually(lambda: closed("displaced") >= before + 20)
        assert sample("mailstreams_events_connections") <= 10
        assert (await post(stage, fresh()))[0] == 200
        for _, writer in silent:
            writer.close()


async def test_bodies_that_drip_in_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_stage, "MAX_CONNECTIONS", 5)
    async with endpoint(made_rig()) as stage:
        slow = [await connect(stage) for _ in range(5)]
        for _, writer in slow:
            writer.write(b"POST /sns HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await eventually(lambda: sample("mailstreams_events_in_flight") == 5)
        assert (await post(stage, fresh()))[0] == 200
        assert await ended(slow[0][0]) == b""
        for _, writer in slow:
            writer.close()
        await eventually(lambda: sample("mailstreams_events_in_flight") == 0)


@pytest.mark.usefixtures("fast")
async def test_a_body_may_take_longer_than_a_head() -> None:
    async with endpoint(made_rig()) as stage:
        reader, writer = await connect(stage)
        body = fresh()
        writer.write(b"POST /sns HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        begun = asyncio.get_running_loop().time()
        before = closed("slow")
        other, silent = await connect(stage)
        assert await ended(other) == b""  # the sweep has passed both of them
        await eventually(lambda: asyncio.get_running_loop().time() > begun + 0.5)
        writer.write(body)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert closed("slow") == before + 1
        for each in (writer, silent):
            each.close()


async def test_where_every_connection_is_at_work_a_new_one_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events_stage, "MAX_CONNECTIONS", 2)
    rig = made_rig()
    publisher = rig.publisher = Waiting()
    async with endpoint(rig) as stage:
        answers = [asyncio.create_task(post(stage, fresh())) for _ in range(2)]
        await eventually(lambda: publisher.entered == 2)
        before = closed("refused")
        reader, writer = await connect(stage)
        assert await ended(reader) == b""
        writer.close()
        assert closed("refused") == before + 1
        publisher.leave.set()
        assert [number for number, _, _ in await asyncio.gather(*answers)] == [200, 200]


GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03user1@example.com",
    b"POST /sns HTTP/9.9\r\n\r\n",
    b"POST /sns HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /sns HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"POST /sns HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /sns HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: user1@example.com\r\n\r\n",
    b"POST /sns HTTP/1.1\r\nHost : x\r\n\r\n",
    b"POST /sns HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n",
    b"POST /sns HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
    b"POST /sns HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
    b"POST /sns HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 100_000 + b"\r\n\r\n",
    b"POST /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
async def test_what_is_not_http_is_400_and_leaves_no_trace_of_itself(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rig = made_rig()
    async with endpoint(rig) as stage:
        before = sample("mailstreams_runtime_malformed_requests_total")
        reader, writer = await connect(stage)
        writer.write(garbage)
        assert status(await ended(reader)) == 400
        writer.close()
        assert sample("mailstreams_runtime_malformed_requests_total") == before + 1
    assert "Traceback" not in caplog.text
    assert "user1" not in caplog.text
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert not rig.publisher.records


@pytest.mark.parametrize("start", [b"CONNECT  ", b"CONNECT  HTTP/1.1", b"CONNECT  HTTP/1.0"])
async def test_a_request_without_a_target_is_answered(
    start: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with endpoint(made_rig()) as stage:
        reader, writer = await connect(stage)
        writer.write(start + b"\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
        assert 400 <= status(await ended(reader)) < 500
        writer.close()
    gc.collect()  # the failure of a task that nobody waits for is told when it goes
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


async def test_a_chunk_that_is_none_is_malformed() -> None:
    async with endpoint(made_rig()) as stage:
        reader, writer = await connect(stage)
        writer.write(b"POST /sns HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n")
        assert status(await ended(reader)) == 400
        writer.close()


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/sns", 405),
        ("HEAD", "/sns", 405),
        ("PUT", "/sns", 405),
        ("X-NEW", "/sns", 400),
        ("OPTIONS", "*", 404),
        ("POST", "/", 404),
        ("POST", "/sns/", 404),
        ("POST", "//sns", 404),
        ("GET", "/metrics", 404),
        ("POST", "/%00%ff%2e%2e/sns", 404),
        ("POST", "/sns%2F..%2Fsns", 404),
    ],
)
async def test_other_paths_and_methods_are_4xx(method: str, path: str, expected: int) -> None:
    async with endpoint(made_rig()) as stage:
        reader, writer = await connect(stage)
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}"
        writer.write(head.encode())
        assert status(await ended(reader)) == expected
        writer.close()


async def test_a_client_that_leaves_in_the_middle_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def malformed() -> float | None:
        return REGISTRY.get_sample_value(
            "mailstreams_events_requests_total", {"reason": "malformed"}
        )

    async with endpoint(made_rig()) as stage:
        before = malformed()
        _, writer = await connect(stage)
        writer.write(b"POST /sns HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()
        await eventually(lambda: malformed() != before)
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


async def silent_and_good(tls: bool, tmp_path: Path) -> tuple[bytes, int]:
    """What a connection without a request gets, and the status of a good request, on the loop that runs this."""
    settings, trusting = EventsSettings(), None
    if tls:
        pem, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
        pem.write_bytes(certificate(now=datetime.now(UTC)))
        key.write_bytes(
            signing_key("trusted").private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        settings = EventsSettings(tls_certificate=pem, tls_key=key)
        trusting = ssl.create_default_context(cafile=str(pem))
        trusting.check_hostname = False
    async with endpoint(made_rig(), settings) as stage:
        reader, writer = await connect(stage)
        got = await ended(reader)
        writer.close()
        url = f"{'https' if tls else 'http'}://{stage.address}/sns"
        async with (
            aiohttp.ClientSession() as http,
            http.post(url, data=fresh(), ssl=trusting or True) as answer,
        ):
            return got, answer.status


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_bounds_hold_on_every_loop_and_for_a_handshake_that_never_comes(
    loop: Callable[[], asyncio.AbstractEventLoop],
    tls: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "TLS_HANDSHAKE_S", 0.3)
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(silent_and_good(tls, tmp_path)) == (b"", 200)


# Credentials ---------------------------------------------------------------------------------------------------------

ASKING = EventsSettings(basic_auth=("sns:old", "sns:new"))


async def test_without_credentials_sns_is_asked_for_them_and_then_heard() -> None:
    rig = made_rig()
    async with endpoint(rig, ASKING) as stage:
        number, reason, challenge = await post(stage, fresh())
        assert (number, reason) == (401, "unauthorized")
        assert challenge.startswith("Basic realm=")
        wrong = {"Authorization": aiohttp.encode_basic_auth("sns", "wrong")}
        assert (await post(stage, fresh(), headers=wrong))[0] == 401
        assert not rig.publisher.records
        assert not rig.certificates.asked
        for password in ("old", "new"):
            answer = await post(
                stage,
                fresh(),
                headers={"Authorization": aiohttp.encode_basic_auth("sns", password)},
            )
            assert answer[:2] == (200, "accepted")


async def test_the_question_comes_before_the_body_is_read() -> None:
    async with endpoint(made_rig(), ASKING) as stage:
        reader, writer = await connect(stage)
        writer.write(b"POST /sns HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 401")
        writer.close()


RAW = {"x-amz-sns-rawdelivery": "true", "x-amz-sns-topic-arn": TOPIC, "x-amz-sns-message-id": "1-2"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (RAW, (200, "accepted")),
        ({**RAW, "x-amz-sns-topic-arn": TOPIC + "-2"}, (403, "unknown-topic")),
        ({"x-amz-sns-rawdelivery": "true"}, (403, "unknown-topic")),
        ({}, (400, "raw-delivery")),
    ],
)
async def test_raw_delivery_goes_by_its_headers_where_it_is_switched_on(
    headers: dict[str, str], expected: tuple[int, str]
) -> None:
    rig = made_rig()
    settings = EventsSettings(basic_auth=("sns:secret",), raw_delivery=True)
    async with endpoint(rig, settings) as stage:
        body = json.dumps(DELIVERY).encode()
        known = {"Authorization": aiohttp.encode_basic_auth("sns", "secret")}
        assert (await post(stage, body, headers={**headers, **known}))[:2] == expected
        assert (await post(stage, body, headers=headers))[0] == 401
        assert (await post(stage, fresh(), headers=known))[:2] == (200, "accepted")
    assert len(rig.publisher.records) == (1 + (expected[0] == 200))


# The alarm -----------------------------------------------------------------------------------------------------------


async def test_the_alarm_counts_refusals_until_something_is_accepted() -> None:
    async with endpoint(made_rig()) as stage:
        await post(stage, fresh())
        for count in range(1, 4):
            await post(stage, b"nonsense")
            assert sample("mailstreams_events_refused_since_accepted") == count
        await post(stage, fresh())
        assert sample("mailstreams_events_refused_since_accepted") == 0
