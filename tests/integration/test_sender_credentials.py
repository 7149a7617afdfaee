"""Credentials from where botocore finds them: renewed ahead of their end, while calls go on and nothing waits."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from streams.adapters import aws_credentials
from streams.adapters.aws_credentials import AwsCredentials

Answer = Callable[[web.Request], Awaitable[web.Response]]
ROLE = "arn:aws:iam::111122223333:role/mailstreams"


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
        "AWS_ENDPOINT_URL", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def of_container(number: int, *, for_s: float) -> web.Response:
    return web.json_response(
        {
            "AccessKeyId": f"AKID{number}",
            "SecretAccessKey": "example",
            "Token": f"token-{number}",
            "Expiration": (datetime.now(UTC) + timedelta(seconds=for_s)).isoformat(),
        }
    )


async def until_key(credentials: AwsCredentials, key: str) -> None:
    deadline = time.monotonic() + 60
    while (found := await credentials.get()) is None or found.access_key != key:
        assert time.monotonic() < deadline, credentials.trouble
        credentials._reread_at = 0.0
        await asyncio.sleep(0.01)


async def test_renewal_ahead_of_the_end_holds_up_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    renewing, go_on = False, asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        if renewing:
            await go_on.wait()
        # Within the time in which botocore insists on new ones.
        return of_container(2 if renewing else 1, for_s=300)

    async with serving(answer) as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/credentials")
        credentials = AwsCredentials()
        await until_key(credentials, "AKID1")
        renewing = True
        credentials._reread_at = 0.0
        for _ in range(100):
            found = await credentials.get()
            assert found is not None
            assert (found.access_key, found.token) == ("AKID1", "token-1")
        assert credentials._reading is not None
        go_on.set()
        await until_key(credentials, "AKID2")


async def test_failing_renewal_leaves_the_last_ones_in_use_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number = 1

    async def answer(_: web.Request) -> web.Response:
        return of_container(number, for_s=300) if number else web.Response(status=500)

    async with serving(answer) as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/credentials")
        monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0.0)
        credentials = AwsCredentials()
        await until_key(credentials, "AKID1")
        number = 0
        credentials._reread_at = 0.0
        deadline = time.monotonic() + 60
        while not credentials.trouble:
            found = await credentials.get()
            assert found is not None
            assert found.access_key == "AKID1"
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert "CredentialRetrievalError" in credentials.trouble
        number = 9
        await until_key(credentials, "AKID9")
        assert credentials.trouble == ""


async def test_source_that_hangs_costs_a_call_a_bounded_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(600)
        raise AssertionError

    monkeypatch.setattr(aws_credentials, "LONGEST_WAIT_S", 0.2)
    async with serving(hang) as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/credentials")
        credentials = AwsCredentials()
        found = await asyncio.gather(*(credentials.get() for _ in range(50)))
    assert set(found) == {None}
    assert credentials.trouble == "where they come from does not answer"


def of_sts(action: str) -> web.Response:
    end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = (
        f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>'
        f"<AccessKeyId>AKIDROLE</AccessKeyId><SecretAccessKey>example</SecretAccessKey>"
        f"<SessionToken>token</SessionToken><Expiration>{end}</Expiration></Credentials>"
        f"</{action}Result></{action}Response>"
    )
    return web.Response(text=text, content_type="text/xml")


@pytest.mark.parametrize("action", ["AssumeRole", "AssumeRoleWithWebIdentity"])
async def test_roles_are_assumed(
    action: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(await request.post())
        return of_sts(action)

    async with serving(answer) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        if action == "AssumeRole":
            (tmp_path / "config").write_text(
                f"[default]\nrole_arn = {ROLE}\nsource_profile = own\nregion = eu-central-1\n"
            )
            (tmp_path / "credentials").write_text(
                "[own]\naws_access_key_id = AKIDOWN\naws_secret_access_key = example\n"
            )
        else:
            (tmp_path / "token").write_text("a token")
            monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
            monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        await until_key(AwsCredentials(), "AKIDROLE")
    assert [(a["Action"], a["RoleArn"]) for a in asked] == [(action, ROLE)]


async def test_role_that_is_refused_is_told_with_its_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def answer(_: web.Request) -> web.Response:
        text = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
        return web.Response(status=403, text=text, content_type="text/xml")

    async with serving(answer) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        (tmp_path / "token").write_text("a token")
        monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        credentials = AwsCredentials()
        deadline = time.monotonic() + 60
        while credentials.trouble != "the role is refused with AccessDenied":
            assert await credentials.get() is None
            assert time.monotonic() < deadline, credentials.trouble
            await asyncio.sleep(0.01)


async def test_file_that_was_replaced_is_read_once_aws_refused_what_stood_in_it(
    tmp_path: Path,
) -> None:
    def write(key: str) -> None:
        (tmp_path / "credentials").write_text(
            f"[default]\naws_access_key_id = {key}\naws_secret_access_key = example\n"
        )

    credentials = AwsCredentials()
    assert await credentials.get() is None
    assert credentials.trouble == "none are set"
    write("AKIDFIRST")
    await until_key(credentials, "AKIDFIRST")
    write("AKIDSECOND")
    credentials.forget()
    await until_key(credentials, "AKIDSECOND")


async def test_half_of_a_pair_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    credentials = AwsCredentials()
    assert await credentials.get() is None
    assert "AWS_SECRET_ACCESS_KEY" in credentials.trouble
