"""What is wrong between us and SES is told with what to change; nothing is lost, and all goes out once it is mended.

One sender lives through it all, since nothing of it may need a start. Pauses and retries are hurried by hand.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web

import devservers
from streams.adapters.postgres import Database
from streams.domain.topics import Topics
from streams.sender import Sender
from streams.simulator.refusals import RefusedError
from streams.simulator.sigv4 import SignatureVerifier, SignedRequest, ses_scope
from tests.integration.sender_rig import REGION, Rig, accept, refusing, rig_on, running, until
from tests.integration.test_sender_ses_api import certificate, pump

pytestmark = pytest.mark.servers
# Of one alone it would not be clear whether the message or the way is wrong: its attempts would count.
MESSAGES = 3


@pytest.fixture
async def rig(  # noqa: PLR0917 fixtures
    servers: devservers.Servers,
    database_dsn: str,
    database: Database,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> AsyncIterator[Rig]:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    async with rig_on(
        servers.kafka.bootstrap_servers, database_dsn, database, topics, patch=monkeypatch
    ) as made:
        # In a file, so that they can be replaced while the sender runs.
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        yield made


def write_credentials(folder: Path, key: str) -> None:
    (folder / "credentials").write_text(
        f"[default]\naws_access_key_id = {key}\naws_secret_access_key = example\n"
    )


class Aws:
    """Authenticates as AWS does, for one key, in one region, by one clock; then SES accepts."""

    def __init__(self) -> None:
        self.key, self.region, self.clock_s = "AKIDEXAMPLE", REGION, 0.0
        self.expired: set[str] = set()

    async def answer(self, request: web.Request, number: int) -> web.StreamResponse:
        now = time.time() + self.clock_s
        signed = SignedRequest(
            method=request.method,
            path=request.path,
            query="",
            headers={name.lower(): value for name, value in request.headers.items()},
            body=await request.read(),
        )
        verifier = SignatureVerifier(access_key=self.key, secret_key="example")
        try:
            if any(key in request.headers["Authorization"] for key in self.expired):
                said = "The security token included in the request is expired"
                raise RefusedError(code="ExpiredTokenException", status=403, message=said)
            verifier.verify(signed, ses_scope(self.region), now)
        except RefusedError as refused:
            refuse = refusing(refused.status, refused.code, refused.message)
            response = await refuse(request, number)
            response.headers["Date"] = formatdate(now, usegmt=True)
            return response
        return await accept(request, number)


class Mail:
    """A few messages after the others, through one trouble each time."""

    def __init__(self, rig: Rig, sender: Sender) -> None:
        self._rig = rig
        self._sender = sender
        self._sent = 0

    async def waits(self, *told: str) -> None:
        """Messages are written; they stay pending with a wake-up, and readiness says this."""
        await self._rig.fill(MESSAGES)
        self._sent += MESSAGES
        await self.tells(*told)
        await until(self._sleeps_with_a_wake_up, 60)

    async def tells(self, *told: str) -> None:
        """Readiness says this."""

        def is_told() -> bool:
            why = self._sender.health.missing().get("ses", "")
            return all(part in why for part in told)

        try:
            await until(is_told, 60)
        except AssertionError:
            raise AssertionError(f"{told} is not in {self._sender.health.missing()}") from None

    async def hurry(self) -> None:
        async with self._rig.database.connection() as connection:
            await connection.execute("DELETE FROM pause")
            await connection.execute("UPDATE email_due SET due = now() WHERE due > now()")

    async def _sleeps_with_a_wake_up(self) -> bool:
        async with self._rig.database.connection() as connection:
            rows = await connection.fetchval(
                "SELECT count(*) FROM email_outbox o JOIN email_due d ON d.id = o.id WHERE o.state = 'pending'"
            )
        return bool(rows == MESSAGES)

    async def goes_out(self) -> None:
        """Without another start; what had to be waited for is hurried."""

        async def is_out() -> bool:
            await self.hurry()
            return (await self._rig.states())["submitted"] == self._sent

        await until(is_out, 90)
        await until(lambda: "ses" not in self._sender.health.missing(), 60)


async def test_what_aws_refuses_is_told_and_goes_out_once_it_is_mended(
    rig: Rig, tmp_path: Path
) -> None:
    aws = Aws()
    rig.ses.answer = aws.answer
    sender = rig.sender()
    async with running(sender):
        mail = Mail(rig, sender)
        await mail.waits("no AWS credentials were found", "none are set")
        write_credentials(tmp_path, "AKIDEXAMPLE")
        await mail.goes_out()

        aws.expired.add("AKIDEXAMPLE")
        await mail.waits("credentials have expired: renew them", "ExpiredTokenException")
        aws.key = "AKIDSECOND"
        write_credentials(tmp_path, "AKIDSECOND")
        await mail.goes_out()

        aws.key = "AKIDTHIRD"
        await mail.waits("AWS does not know the credentials", "UnrecognizedClientException")
        aws.key = "AKIDSECOND"
        await mail.goes_out()

        aws.region = "us-east-1"
        await mail.waits("another region", "AWS_REGION", "not 'eu-central-1'")
        aws.region = REGION
        await mail.goes_out()

        for clock_s, told in ((900.0, "s behind"), (-900.0, "s ahead")):
            aws.clock_s = clock_s
            await mail.waits("set the clock of this machine, it is ", told, "SignatureDoesNotMatch")
            aws.clock_s = 0.0
            await mail.goes_out()

        said = "Email address is not verified. The following identities failed the check in region EU-CENTRAL-1: "
        rig.ses.answer = refusing(400, "MessageRejected", said + "shop@example.com")
        await mail.waits("is not verified in this region: verify it in SES", "EU-CENTRAL-1")
        assert "shop@example.com" not in sender.health.missing()["ses"]
        rig.ses.answer = aws.answer
        await mail.goes_out()

        await rig.ses.stop()
        await mail.waits("SES could not be reached, nothing was sent", "onnect")
        await rig.ses.start()
        await mail.goes_out()
    assert not rig.sent_twice()
    assert (await rig.states()).keys() == {"submitted"}


class Way:
    """A proxy and a TLS endpoint before the stub, each of which can be broken."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.refuses = True
        self.url, self.proxy = "", ""
        self._port = port
        self._context = context
        self._tls_port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Way"]:
        tls = await asyncio.start_server(self._terminate, "127.0.0.1", 0, ssl=self._context)
        proxy = await asyncio.start_server(self._tunnel, "127.0.0.1", 0)
        self._tls_port = tls.sockets[0].getsockname()[1]
        self.url = f"https://localhost:{self._tls_port}"
        self.proxy = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            tls.close()
            proxy.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._note()
        await reader.readuntil(b"\r\n\r\n")
        if self.refuses:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await self._carry(reader, writer, self._tls_port)

    async def _terminate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._note()
        await self._carry(reader, writer, self._port)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        onward, back = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(pump(reader, back), pump(onward, writer))
        except OSError:
            writer.close()
            back.close()

    def _note(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)


async def test_proxy_and_certificate_that_are_wrong_are_told_and_it_goes_out_once_they_are_right(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_credentials(tmp_path, "AKIDEXAMPLE")
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
    _, good = certificate(tmp_path / "good", "localhost")
    context, _ = certificate(tmp_path / "bad", "localhost")
    async with Way(rig.ses.port, context).open() as way:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(good))
        monkeypatch.setenv("HTTPS_PROXY", way.proxy)
        monkeypatch.setenv("AWS_ENDPOINT_URL_SESV2", way.url)
        sender = rig.sender()
        async with running(sender):
            mail = Mail(rig, sender)
            await mail.waits("proxy before SES let nothing through: check HTTPS_PROXY", "403")
            way.refuses = False
            await mail.hurry()
            await mail.tells("TLS connection to SES could not be made", "self-signed certificate")
            context.load_cert_chain(good)
            await mail.goes_out()
    assert not rig.sent_twice()
    assert (await rig.states()).keys() == {"submitted"}
