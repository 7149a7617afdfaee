"""Attachments from a directory, https and S3, and what becomes of messages whose files are wrong or away."""

import asyncio
import base64
import hashlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest
from aiohttp import web

import devservers
from streams.adapters.attachment_files import AttachmentFiles
from streams.adapters.postgres import Database
from streams.domain.attachments import Attachment
from streams.domain.errors import BadMessage, Unavailable
from streams.domain.topics import Topics
from streams.enqueue import NewEmail, enqueue
from tests.integration.sender_rig import Rig, rig_on, running, until
from tests.integration.test_sender_ses_api import certificate

DATA = b"%PDF " + os.urandom(1000)


def reference(url: str, data: bytes = DATA, **changes: Any) -> Attachment:
    values: dict[str, Any] = {
        "url": url,
        "name": "a.pdf",
        "type": "application/pdf",
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
    }
    return Attachment(**(values | changes))


@asynccontextmanager
async def files_from(*places: str, largest: int = 10_000) -> AsyncIterator[AttachmentFiles]:
    made = AttachmentFiles(places, largest=largest)
    try:
        yield made
    finally:
        await made.stop()


class Server:
    """Answers every path by what `answers` says, else with the file."""

    def __init__(self) -> None:
        self.answers: dict[str, web.Response] = {}
        self.asked: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if request.path == "/mail/hangs":
            await asyncio.sleep(600)
        if request.path == "/mail/endless":
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b"x" * 65536)
        return self.answers.get(request.path) or web.Response(body=DATA)


@pytest.fixture
def server() -> Server:
    return Server()


@asynccontextmanager
async def serving(server: Server, context: Any = None) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_get("/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def test_file_over_https_is_fetched_once_and_checked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, trusted = certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    refused = {
        "/mail/gone": (web.Response(status=404), BadMessage),
        "/mail/moved": (web.Response(status=302, headers={"Location": "/mail/a"}), BadMessage),
        "/mail/denied": (web.Response(status=403), Unavailable),
        "/mail/busy": (web.Response(status=503), Unavailable),
        "/mail/shorter": (web.Response(body=DATA[:-1]), BadMessage),
        "/mail/longer": (web.Response(body=DATA + b"x"), BadMessage),
        "/mail/other": (web.Response(body=DATA[::-1]), BadMessage),
    }
    server.answers = {path: response for path, (response, _) in refused.items()}
    async with serving(server, context) as port:
        place = f"https://localhost:{port}/mail/"
        async with files_from(place) as files:
            for _ in range(2):
                assert await files.fetch(reference(f"{place}a?v=1"), within_s=30) == DATA
            assert server.asked == ["/mail/a"]
            for path, (_, error) in refused.items():
                with pytest.raises(error):
                    await files.fetch(reference(f"https://localhost:{port}{path}"), within_s=30)
            assert server.asked.count("/mail/a") == 1
            with pytest.raises(BadMessage):
                await files.fetch(reference(f"{place}endless"), within_s=30)
            with pytest.raises(Unavailable, match="did not come within"):
                await files.fetch(reference(f"{place}hangs"), within_s=0.2)
            asked = len(server.asked)
            with pytest.raises(BadMessage, match="at most 10000"):
                await files.fetch(reference(f"{place}b", size=10_001), within_s=30)
            with pytest.raises(BadMessage, match="MAILSTREAMS_ATTACHMENT_PLACES"):
                await files.fetch(reference(f"https://localhost:{port}/a"), within_s=30)
            assert len(server.asked) == asked


async def test_server_that_is_not_trusted_is_not_believed(server: Server, tmp_path: Path) -> None:
    context, _ = certificate(tmp_path, "localhost")
    async with serving(server, context) as port, files_from(f"https://localhost:{port}/") as files:
        with pytest.raises(Unavailable, match="Certificate"):
            await files.fetch(reference(f"https://localhost:{port}/a"), within_s=30)


async def test_object_of_s3_is_fetched(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def error(status: int, code: str) -> web.Response:
        text = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
        return web.Response(status=status, text=text, content_type="application/xml")

    server.answers = {
        "/bucket/out/gone.pdf": error(404, "NoSuchKey"),
        "/bucket/out/denied.pdf": error(403, "AccessDenied"),
        "/bucket/out/longer.pdf": web.Response(body=DATA + b"x"),
    }
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    async with serving(server) as port, files_from("s3://bucket/out") as files:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{port}")
        assert await files.fetch(reference("s3://bucket/out/a%20b.pdf"), within_s=30) == DATA
        assert server.asked == ["/bucket/out/a b.pdf"]
        for name, kind in (("gone", BadMessage), ("denied", Unavailable), ("longer", BadMessage)):
            with pytest.raises(kind):
                await files.fetch(reference(f"s3://bucket/out/{name}.pdf"), within_s=30)


async def test_file_of_the_directory_is_read_and_no_link_leads_out_of_it(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "a.pdf").write_bytes(DATA)
    (outside / "secret").write_bytes(DATA)
    (inside / "link").symlink_to(outside / "secret")
    (inside / "folder").symlink_to(outside)
    (inside / "own").symlink_to(inside / "a.pdf")
    os.mkfifo(inside / "pipe")
    async with files_from(f"file://{inside}/") as files:
        for name in ("a.pdf", "own"):
            assert await files.fetch(reference(f"file://{inside}/{name}"), within_s=30) == DATA
        for name in ("link", "folder/secret", "pipe", "none", ""):
            with pytest.raises(BadMessage):
                await files.fetch(reference(f"file://{inside}/{name}"), within_s=30)


@pytest.fixture
async def rig(
    servers: devservers.Servers, database_dsn: str, database: Database, topics: Topics
) -> AsyncIterator[Rig]:
    async with rig_on(servers.kafka.bootstrap_servers, database_dsn, database, topics) as made:
        yield made


@pytest.mark.servers
@pytest.mark.parametrize(
    "change",
    [{"url": "ftp://h/x"}, {"url": None}, {"name": "a/b"}, {"sha256": "A" * 64}, {"size": 0}, {"size": "3"}, {"more": 1}],
)  # fmt: skip
async def test_reference_that_is_wrong_is_refused_by_the_insert(
    change: dict[str, Any], database: Database
) -> None:
    given = {"url": "file:///a", "name": "a.pdf", "sha256": "0" * 64, "size": 3} | change
    async with database.connection() as connection:
        for attachments in ([given], given, [7]):
            with pytest.raises(asyncpg.CheckViolationError, match="attachments_are"):
                await connection.fetchval(
                    "SELECT enqueue_email('user1@example.com', 'shop@example.com', 'Hello', 'Hi', attachments => $1)",
                    json.dumps(attachments),
                )


@pytest.mark.servers
async def test_application_enqueues_a_message_with_a_file(database: Database) -> None:
    given = [{"url": "s3://bucket/a.pdf", "name": "a.pdf", "sha256": "0" * 64, "size": 3}]
    email = NewEmail(
        recipient="user1@example.com",
        sender="shop@example.com",
        subject="Hello",
        text="Hi",
        attachments=given,
    )
    async with database.connection() as connection:
        made = await enqueue(cast(Any, connection), email)
        kept = await connection.fetchval("SELECT attachments FROM email_outbox WHERE id = $1", made)
    assert json.loads(kept) == given


@pytest.mark.servers
async def test_messages_go_out_with_their_files_or_end_with_a_reason(
    rig: Rig, tmp_path: Path
) -> None:
    (tmp_path / "a.pdf").write_bytes(DATA)
    (tmp_path / "other.pdf").write_bytes(DATA[::-1])
    digest = hashlib.sha256(DATA).hexdigest()

    def row(name: str, **changes: Any) -> str:
        given = {"url": f"file://{tmp_path}/{name}", "name": "Rechnung für Sie.pdf"}
        return json.dumps([given | {"sha256": digest, "size": len(DATA)} | changes])

    class Away(AttachmentFiles):
        away = 2

        async def fetch(self, attachment: Attachment, *, within_s: float) -> bytes:
            if attachment.url.endswith("a.pdf") and self.away > 0:
                self.away -= 1
                raise Unavailable("the disk is away")
            return await super().fetch(attachment, within_s=within_s)

    good = (await rig.fill(1, attachments=row("a.pdf")))[0]
    bad = {
        "replaced": (await rig.fill(1, attachments=row("other.pdf")))[0],
        "is gone": (await rig.fill(1, attachments=row("none.pdf")))[0],
        "MAILSTREAMS_ATTACHMENT_PLACES": (
            await rig.fill(1, attachments=row("x", url="file:///etc/passwd"))
        )[0],
    }
    plain = (await rig.fill(1))[0]
    files = Away([f"file://{tmp_path}/"], largest=10_000)
    sender = rig.sender(attachments=files)
    async with running(sender):

        async def ended() -> bool:
            async with rig.database.connection() as connection:
                await connection.execute("UPDATE email_due SET due = now() WHERE due > now()")
            return await rig.states() == {"submitted": 2, "failed": 3}

        await until(ended, 90)
    async with rig.database.connection() as connection:
        reasons = {
            r["id"]: r["reason"]
            for r in await connection.fetch("SELECT id, reason FROM email_outbox")
        }
        tries = await connection.fetch(
            "SELECT outcome, error_class, started FROM email_attempt WHERE outbox_id = $1 ORDER BY number",
            good,
        )
    for told, id_ in bad.items():
        assert told in reasons[id_]
        assert str(tmp_path) not in reasons[id_]
    assert [(t["outcome"], t["error_class"]) for t in tries] == [
        ("retry", "attachment-unavailable"),
        ("retry", "attachment-unavailable"),
        ("accepted", None),
    ]
    assert [t["started"] is None for t in tries] == [True, True, False]
    attached = {
        next(t["Value"] for t in call["EmailTags"] if t["Name"] == "outbox"): call["Content"][
            "Simple"
        ].get("Attachments")
        for call in rig.ses.calls
    }
    assert attached.keys() == {str(good), str(plain)}
    assert attached[str(plain)] is None
    (file,) = attached[str(good)]
    assert base64.b64decode(file["RawContent"]) == DATA
    assert file["FileName"] == "Rechnung für Sie.pdf"


@pytest.mark.servers
async def test_without_places_a_message_with_files_fails_and_says_what_to_set(rig: Rig) -> None:
    given = [{"url": "file:///srv/a.pdf", "name": "a.pdf", "sha256": "0" * 64, "size": 3}]
    await rig.fill(1, attachments=json.dumps(given))
    async with running(rig.sender()):
        await rig.all_in("failed", 1, 90)
    async with rig.database.connection() as connection:
        reason = await connection.fetchval("SELECT reason FROM email_outbox")
    assert "MAILSTREAMS_ATTACHMENT_PLACES" in reason
    assert not rig.ses.calls
