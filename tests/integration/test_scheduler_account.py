"""GetAccount over HTTP: what is read, and what a server that misbehaves leads to."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest
from aiohttp import web

from streams.adapters import ses_account
from streams.adapters.ses_account import SesAccount
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.sending_account import SendingAccount
from streams.ports.scheduler import Schedule
from streams.runtime.http import HttpServer
from streams.scheduling.account_poll import AccountPoll

UNREADABLE: list[str | bytes] = [
    "null", "[]", "[1]", '"text"', "3", "true", '{"SendQuota": []}', '{"SendQuota": "fast"}', '{"SendQuota": 14}',
    "[" * 100_000, b"\xff\xfe",
]  # fmt: skip


@dataclass
class FakeSes:
    """Answers GetAccount with what is set here."""

    body: Any = None
    raw: str | bytes | None = None
    status: int = 200
    delay_s: float = 0.0
    asked: int = 0
    headers: dict[str, str] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.Response:
        assert "Credential=" in request.headers["Authorization"]
        self.asked += 1
        await asyncio.sleep(self.delay_s)
        if self.raw is not None:
            return web.Response(
                body=self.raw,
                status=self.status,
                headers={"Content-Type": "application/json", **self.headers},
            )
        return web.json_response(self.body, status=self.status, headers=self.headers)


@pytest.fixture
async def ses(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeSes]:
    fake = FakeSes()
    app = web.Application()
    app.router.add_get("/v2/email/account", fake.answer)
    server = HttpServer(app, host="127.0.0.1", port=0)
    await server.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_SESV2", f"http://{server.address}")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    yield fake
    await server.stop()


@pytest.fixture
async def account() -> AsyncIterator[SesAccount]:
    reader = SesAccount()
    yield reader
    await reader.stop()


async def test_the_account_is_read(ses: FakeSes, account: SesAccount) -> None:
    ses.body = {
        "SendQuota": {"Max24HourSend": 50000.0, "MaxSendRate": 14.0, "SentLast24Hours": 1.0},
        "SendingEnabled": True,
        "EnforcementStatus": "HEALTHY",
    }
    assert account.region == "eu-central-1"
    for _ in range(2):
        assert await account.read() == SendingAccount(
            max_send_rate=14.0, sending_enabled=True, enforcement_status="HEALTHY"
        )


async def test_what_the_answer_does_not_say_is_not_known(ses: FakeSes, account: SesAccount) -> None:
    ses.body = {}
    assert await account.read() == SendingAccount(
        max_send_rate=None, sending_enabled=None, enforcement_status=None
    )


@pytest.mark.parametrize("status", [400, 403, 429, 500, 503])
async def test_a_refusal_is_unavailable_and_not_repeated(
    ses: FakeSes, account: SesAccount, status: int
) -> None:
    ses.status = status
    ses.body = {"message": "no"}
    ses.headers = {"x-amzn-ErrorType": "TooManyRequestsException"}
    with pytest.raises(Unavailable, match="GetAccount is refused with"):
        await account.read()
    assert ses.asked == 1


async def test_an_answer_of_another_shape_is_unavailable(ses: FakeSes, account: SesAccount) -> None:
    for status, raw in itertools.product([200, 400, 503], UNREADABLE):
        ses.status, ses.raw = status, raw
        with pytest.raises(Unavailable, match=r"GetAccount (cannot be read|is refused with)"):
            await account.read()
    ses.raw, ses.status, ses.body = None, 200, {"SendQuota": {"MaxSendRate": 14.0}}
    assert (await account.read()).max_send_rate == 14.0


@pytest.mark.parametrize(
    "raw", ["null", "[]", '{"SendQuota": []}'], ids=["null", "a list", "a quota that is a list"]
)
async def test_an_answer_that_cannot_be_read_is_one_clear_line_and_the_rate_stays(
    ses: FakeSes, account: SesAccount, raw: str, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = MemorySchedule()
    poll = AccountPoll(cast(Schedule, schedule), account, factor=1.0)
    ses.body = {"SendQuota": {"MaxSendRate": 14.0}, "SendingEnabled": True}
    await poll.read_account()
    ses.raw = raw
    await poll.read_account()
    [line] = caplog.records
    assert line.levelname == "WARNING"
    assert line.getMessage() == "SES does not tell the sending rate, the last one stays"
    assert line.__dict__["action"] == "account.unreachable"
    assert "check what answers at the endpoint" in line.__dict__["error"]
    assert schedule.rates == [14.0]


class MemorySchedule:
    """The duty is always ours."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    async def take_duty(self, _: str, __: timedelta) -> bool:
        return True

    async def set_rate(self, _: str, rate: float) -> None:
        self.rates.append(rate)

    async def resume_account(self, _: str, **__: str) -> bool:
        return False


async def test_a_server_that_does_not_answer_is_unavailable(
    ses: FakeSes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ses_account, "READ_TIMEOUT_S", 0.2)
    ses.delay_s = 2.0
    account = SesAccount()
    with pytest.raises(Unavailable, match="GetAccount fails"):
        await account.read()
    await account.stop()
    assert ses.asked == 1


async def test_without_credentials_the_account_is_unavailable(
    ses: FakeSes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    reader = SesAccount()
    with pytest.raises(Unavailable, match="NoCredentialsError"):
        await reader.read()
    await reader.stop()


async def test_without_a_region_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(Misconfigured, match="AWS_REGION"):
        _ = SesAccount().region
