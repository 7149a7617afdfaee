"""The call of SES against servers that misbehave: what is proven, and what is unknown."""

import asyncio
import gzip
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from streams.adapters import ses
from streams.adapters.ses import SesApi
from streams.domain.errors import Misconfigured
from streams.domain.ses_answers import Answer, Fault, FaultKind, Missed, SignedCall

BODY = json.dumps({"Destination": {"ToAddresses": ["user1@example.com"]}}).encode()
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CA_BUNDLE", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")


@asynccontextmanager
async def serving(talk: Talk) -> AsyncIterator[str]:
    """A server that treats each connection as told; its URL."""
    done: list[asyncio.Task[None]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        done.append(task)
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()
        for task in done:
            task.cancel()
        await asyncio.gather(*done, return_exceptions=True)
        await server.wait_closed()


@asynccontextmanager
async def api(
    url: str, monkeypatch: pytest.MonkeyPatch, *, read_timeout_s: float = 5.0
) -> AsyncIterator[SesApi]:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SESV2", url)
    made = SesApi(max_in_flight=4, connect_timeout_s=0.5, read_timeout_s=read_timeout_s)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def call(
    made: SesApi, *, late_s: float = 60.0, within_s: float = 6.0
) -> Answer | Fault | Missed:
    """The call's end. It begins exactly where a byte may have left."""
    signed = await made.sign(BODY)
    assert isinstance(signed, SignedCall)
    begun: list[None] = []
    seen = await made.send(
        signed,
        latest=time.monotonic() + late_s,
        within_s=within_s,
        on_begin=lambda: begun.append(None),
    )
    written = isinstance(seen, Answer) or (isinstance(seen, Fault) and seen.written)
    assert len(begun) == written
    return seen


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


def response(
    body: bytes, status: bytes = b"200 OK", length: int | None = None, more: bytes = b""
) -> bytes:
    size = len(body) if length is None else length
    return b"HTTP/1.1 " + status + b"\r\n" + more + b"Content-Length: %d\r\n\r\n" % size + body


def answering(data: bytes, *, delay_s: float = 0.0, close: bool = False) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            await asyncio.sleep(delay_s)
            writer.write(data)
            await writer.drain()
            if close:
                return

    return talk


async def reset_after_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.transport.abort()


async def reset_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await read_request(reader)
    await asyncio.sleep(60)


UNKNOWN = [
    ("reset after the request", reset_after_request, FaultKind.BROKEN),
    ("reset at once", reset_at_once, FaultKind.BROKEN),
    ("no answer", silent, FaultKind.TIMEOUT),
    ("body cut off", answering(response(b'{"Mess', length=100), close=True), FaultKind.BROKEN),
    ("head cut off", answering(b"HTTP/1.1 200 O", close=True), FaultKind.BROKEN),
    ("not HTTP", answering(b"hello\r\n\r\n", close=True), FaultKind.BROKEN),
    ("endless", answering(response(b"x" * 2_000_000)), FaultKind.BROKEN),
]


@pytest.mark.parametrize(("talk", "kind"), [pytest.param(t, k, id=n) for n, t, k in UNKNOWN])
async def test_fault_after_the_first_byte_is_written(
    talk: Talk, kind: FaultKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(talk) as url, api(url, monkeypatch, read_timeout_s=0.5) as made:
        assert await call(made) == Fault(kind=kind, written=True)


async def test_total_time_is_bounded_and_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(silent) as url, api(url, monkeypatch) as made:
        began = time.monotonic()
        assert await call(made, within_s=0.4) == Fault(kind=FaultKind.TIMEOUT, written=True)
        assert time.monotonic() - began < 3


async def test_refused_connection_wrote_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(silent) as url:
        pass
    async with api(url, monkeypatch) as made:
        assert await call(made) == Fault(kind=FaultKind.UNREACHABLE, written=False)


async def test_name_that_does_not_resolve_wrote_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with api("http://ses.invalid:1", monkeypatch) as made:
        found = await call(made)
    assert isinstance(found, Fault)
    assert not found.written


async def test_failed_tls_handshake_wrote_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = answering(b"not TLS at all", close=True)
    async with serving(talk) as url, api(url.replace("http:", "https:"), monkeypatch) as made:
        found = await call(made)
    assert isinstance(found, Fault)
    assert not found.written


async def test_tls_handshake_that_hangs_wrote_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with serving(hang) as url, api(url.replace("http:", "https:"), monkeypatch) as made:
        found = await call(made)
    assert found == Fault(kind=FaultKind.CONNECT_TIMEOUT, written=False)


async def test_no_free_connection_wrote_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(silent) as url, api(url, monkeypatch) as made:
        busy = [asyncio.create_task(call(made)) for _ in range(4)]
        await asyncio.sleep(0)
        found = await call(made)
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)
    assert found == Fault(kind=FaultKind.CONNECT_TIMEOUT, written=False)


async def test_answers_are_read_whole_and_the_connection_serves_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = 0
    answer = answering(response(b'{"MessageId":"m-1"}'))

    async def counting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await answer(reader, writer)

    async with serving(counting) as url, api(url, monkeypatch) as made:
        for _ in range(3):
            assert await call(made) == Answer(status=200, message_id="m-1")
    assert connections == 1


async def test_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await read_request(reader))
        writer.write(b"HTTP/1.1 307 T\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with serving(redirect) as url, api(url, monkeypatch) as made:
        assert await call(made) == Answer(status=307)
    assert len(asked) == 1


async def test_call_that_is_too_late_is_not_written_and_keeps_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[bytes] = []
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            requests.append(await read_request(reader))
            writer.write(response(b'{"MessageId":"m-1"}'))

    async with serving(talk) as url, api(url, monkeypatch) as made:
        for _ in range(3):
            assert await call(made, late_s=-1.0) == Missed()
        assert requests == []
        assert await call(made) == Answer(status=200, message_id="m-1")
    assert connections == 1


async def test_no_byte_leaves_before_the_beginning_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the note takes, and on a connection that is kept too: nothing but a connection shows before."""
    arrived: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1):
            arrived.append(data)
            arrived.append(await read_request(reader))
            writer.write(response(b'{"MessageId":"m-1"}'))

    class NotesAreFull(OSError):
        pass

    def refuse() -> None:
        raise NotesAreFull

    async with serving(talk) as url, api(url, monkeypatch) as made:
        signed = await made.sign(BODY)
        assert isinstance(signed, SignedCall)
        for _ in range(2):
            with pytest.raises(NotesAreFull):
                await made.send(signed, latest=time.monotonic() + 60, within_s=6.0, on_begin=refuse)
            assert arrived == []
            assert await call(made) == Answer(status=200, message_id="m-1")
            arrived.clear()


async def test_connection_that_ended_while_it_was_idle_is_not_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of the connection waits in the socket, unseen by the event loop: it would make an unknown outcome."""
    answered = 0

    def talk_and_close(listener: socket.socket) -> None:
        nonlocal answered
        while True:
            try:
                taken, _ = listener.accept()
            except OSError:
                return
            with taken:
                data = b""
                while BODY not in data and (more := taken.recv(65536)):
                    data += more
                taken.sendall(response(b'{"MessageId":"m-1"}'))
                answered += 1

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=talk_and_close, args=(listener,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with api(url, monkeypatch) as made:
            for _ in range(5):
                assert await call(made) == Answer(status=200, message_id="m-1")
                wait_until(lambda: the_server_has_closed(made))
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    assert answered == 5


def wait_until(condition: Callable[[], bool]) -> None:
    """Blocks the event loop, so that it does not see what the condition waits for."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def the_server_has_closed(made: SesApi) -> bool:
    assert made._session is not None
    connector = made._session.connector
    assert connector is not None
    kept = [proto for conns in connector._conns.values() for proto, _ in conns]
    if not kept:
        return True
    transport = kept[0].transport
    assert transport is not None
    readable = select.poll()
    readable.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(readable.poll(0))


async def test_answer_that_nobody_asked_for_is_not_taken_for_the_next_call_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server may tell an idle connection that it gives up on it."""
    unasked = asyncio.Event()
    release = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(response(b'{"MessageId":"m-1"}'))
        await writer.drain()
        await release.wait()
        if not unasked.is_set():
            writer.write(response(b'{"message":"idle"}', status=b"400 Bad Request"))
            await writer.drain()
            unasked.set()
        await reader.read()

    async with serving(talk) as url, api(url, monkeypatch) as made:
        assert await call(made) == Answer(status=200, message_id="m-1")
        release.set()
        await unasked.wait()
        assert await call(made) == Answer(status=200, message_id="m-1")


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        pytest.param(
            response(gzip.compress(b'{"MessageId":"m-1"}'), more=b"Content-Encoding: gzip\r\n"),
            Answer(status=200, message_id="m-1"),
            id="compressed",
        ),
        pytest.param(
            response(
                gzip.compress(b'{"MessageId":"m-1"}')[:-4], more=b"Content-Encoding: gzip\r\n"
            ),
            Fault(kind=FaultKind.BROKEN, written=True),
            id="compressed and cut off",
        ),
        pytest.param(
            response(gzip.compress(b"x" * 9_000_000), more=b"Content-Encoding: gzip\r\n"),
            Fault(kind=FaultKind.BROKEN, written=True),
            id="compressed and endless",
        ),
        pytest.param(
            response(b"??", more=b"Content-Encoding: br\r\n"),
            Fault(kind=FaultKind.BROKEN, written=True),
            id="an encoding we did not ask for",
        ),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"
            + response(b'{"MessageId":"m-1"}'),
            Answer(status=200, message_id="m-1"),
            id="interim answers before it",
        ),
        pytest.param(
            b'HTTP/1.1 400 Bad\r\nx-amzn-ErrorType: MessageRejected\r\n\r\n{"message":"no"}',
            Answer(status=400, code="MessageRejected", message="no"),
            id="ended by the connection, whole",
        ),
        pytest.param(
            b'HTTP/1.1 400 Bad\r\nx-amzn-ErrorType: MessageRejected\r\n\r\n{"mess',
            Fault(kind=FaultKind.BROKEN, written=True),
            id="ended by the connection, cut off",
        ),
        pytest.param(
            b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n13\r\n{"MessageId":"m-1"}\r\n',
            Fault(kind=FaultKind.BROKEN, written=True),
            id="chunked, cut off before its end",
        ),
    ],
)
async def test_answer_counts_only_as_a_whole(
    data: bytes, seen: Answer | Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(answering(data, close=True)) as url, api(url, monkeypatch) as made:
        assert await call(made) == seen


async def test_call_cancelled_in_the_middle_of_its_writing_leaves_no_whole_request_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    got = bytearray()
    ended, begun = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await begun.wait()
        while data := await reader.read(65536):
            got.extend(data)
        ended.set()

    body = b"x" * 30_000_000
    async with serving(slow) as url, api(url, monkeypatch) as made:
        signed = await made.sign(body)
        assert isinstance(signed, SignedCall)
        sending = asyncio.create_task(
            made.send(signed, latest=time.monotonic() + 60, within_s=60, on_begin=begun.set)
        )
        await asyncio.wait_for(begun.wait(), 60)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asyncio.wait_for(ended.wait(), 60)
        assert len(got) < len(body)


async def test_call_whose_time_runs_out_with_its_last_byte_leaves_the_next_one_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its connection is back by then, and the next call's."""
    back, asked, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
    calls = connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls, connections
        connections += 1
        while True:
            await read_request(reader)
            calls += 1
            if calls == 2:
                asked.set()
                await gone.wait()
            writer.write(response(b'{"MessageId":"m-1"}'))

    read = ses._read

    async def late(answer: Any) -> bytes | None:
        found = await read(answer)
        if not asked.is_set():
            back.set()
            await asked.wait()
            raise TimeoutError
        return found

    monkeypatch.setattr(ses, "_read", late)
    async with serving(talk) as url, api(url, monkeypatch, read_timeout_s=60.0) as made:
        first = asyncio.create_task(call(made, within_s=60.0))
        await asyncio.wait_for(back.wait(), 60)
        second = asyncio.create_task(call(made, within_s=60.0))
        assert await first == Fault(kind=FaultKind.TIMEOUT, written=True)
        gone.set()
        assert await second == Answer(status=200, message_id="m-1")
    assert connections == 1


async def test_cookies_of_a_server_are_not_sent_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen.append(await read_request(reader))
            writer.write(response(b'{"MessageId":"m-1"}', more=b"Set-Cookie: a=b\r\n"))

    async with serving(talk) as url, api(url, monkeypatch) as made:
        await call(made)
        await call(made)
    assert len(seen) == 2
    assert b"cookie" not in seen[1].lower()
    assert b"accept-encoding: identity" in seen[1].lower()


# Proxies and trust ----------------------------------------------------------------------------------------------------


async def test_proxy_of_the_environment_carries_the_call_and_its_password_goes_to_it_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    heads: list[bytes] = []
    inside: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inside.append(await read_request(reader))
        writer.write(response(b'{"MessageId":"m-1"}'))
        await writer.drain()

    context, bundle = certificate(tmp_path, "localhost")
    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        onward, back = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, back), pump(onward, writer))

    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    async with server, serving(tunnel) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.replace("//", "//user:p%40ss@"))
        async with api(f"https://localhost:{port}", monkeypatch) as made:
            assert await call(made) == Answer(status=200, message_id="m-1")
    assert heads[0].startswith(f"CONNECT localhost:{port} ".encode())
    assert b"Proxy-Authorization: Basic dXNlcjpwQHNz" in heads[0]
    assert b"Proxy-Authorization" not in inside[0]


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@pytest.mark.parametrize("status", [b"407 Proxy Authentication Required", b"403 Forbidden"])
async def test_proxy_that_refuses_wrote_nothing_and_is_named(
    status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response(b"<html>", status=status))
        await writer.drain()

    async with serving(refuse) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        async with api("https://ses.invalid", monkeypatch) as made:
            found = await call(made)
    assert found == Fault(kind=FaultKind.PROXY, written=False)
    assert isinstance(found, Fault)
    assert found.detail == f"it answered {status[:3].decode()}"


async def test_proxy_that_is_away_wrote_nothing_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(silent) as proxy:
        pass
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    async with api("https://ses.invalid", monkeypatch) as made:
        assert await call(made) == Fault(kind=FaultKind.PROXY, written=False)


async def test_no_proxy_is_used_for_what_no_proxy_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    talk = answering(response(b'{"MessageId":"m-1"}'))
    async with serving(talk) as url, api(url, monkeypatch) as made:
        assert await call(made) == Answer(status=200, message_id="m-1")


async def test_bundle_of_certificates_that_cannot_be_read_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none.pem"))
    made = SesApi(max_in_flight=1, connect_timeout_s=1.0, read_timeout_s=1.0)
    with pytest.raises(Misconfigured, match="AWS_CA_BUNDLE"):
        await made.start()


async def test_request_is_what_was_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(response(b'{"MessageId":"m-1"}'))

    async with serving(talk) as url, api(url, monkeypatch) as made:
        assert made.region == "eu-central-1"
        await call(made)
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v2/email/outbound-emails HTTP/1.1\r\n")
    assert b"SignedHeaders=content-type;host;x-amz-date" in head
    assert f"host: {url.removeprefix('http://')}".encode() in head.lower()
    assert body == BODY


async def test_without_credentials_nothing_is_called_and_new_ones_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    async with serving(silent) as url, api(url, monkeypatch) as made:
        assert await made.sign(BODY) == Fault(kind=FaultKind.NO_CREDENTIALS, written=False)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDSECOND")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
        signed = await made.sign(BODY)
        assert isinstance(signed, SignedCall)
        assert "AKIDSECOND" in signed.headers["Authorization"]
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDTHIRD")
        made.forget_credentials()
        signed = await made.sign(BODY)
        assert isinstance(signed, SignedCall)
        assert "AKIDTHIRD" in signed.headers["Authorization"]


async def test_missing_region_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    made = SesApi(max_in_flight=1, connect_timeout_s=1.0, read_timeout_s=1.0)
    with pytest.raises(Misconfigured, match="AWS_REGION"):
        await made.start()


async def test_untrusted_certificate_is_a_tls_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    context, _ = certificate(tmp_path, "ses.example.com")

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with server, api(f"https://127.0.0.1:{port}", monkeypatch) as made:
        found = await call(made)
    assert found == Fault(kind=FaultKind.TLS, written=False)
    assert isinstance(found, Fault)
    assert "self-signed" in found.detail


def certificate(folder: Path, host: str) -> tuple[ssl.SSLContext, Path]:
    """A server's context with a certificate that is its own issuer, and where it lies."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "ses.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context, path
