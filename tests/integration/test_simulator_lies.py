"""Faults before and after acceptance, and answers that are held back."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import orjson
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from streams.simulator.server import Simulator
from tests.simulator_rig import Control, quick_settings, simple_mail, until


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Posts signed SendEmail calls over HTTP, one connection a call."""

    simulator: Simulator
    session: aiohttp.ClientSession
    control: Control

    async def send(self, attempt: str = "att-1") -> tuple[int, bytes]:
        tags = [{"Name": "attempt", "Value": attempt}]
        body = orjson.dumps(simple_mail(EmailTags=tags))
        url = self.simulator.url + "/v2/email/outbound-emails"
        request = AWSRequest(method="POST", url=url, data=body)
        SigV4Auth(Credentials("test", "test"), "ses", "eu-central-1").add_auth(request)
        headers = dict(request.headers.items())
        async with self.session.post(url, data=body, headers=headers) as response:
            return response.status, await response.read()

    @property
    def answers(self) -> list[str]:
        return [acceptance.answer for acceptance in self.simulator.ledger.acceptances]


@asynccontextmanager
async def caller() -> AsyncIterator[Caller]:
    async with (
        Simulator(quick_settings()) as simulator,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
    ):
        yield Caller(simulator=simulator, session=session, control=Control(session, simulator.url))


async def test_held_answers_are_accepted_at_once_and_answered_on_release() -> None:
    async with caller() as it:
        await it.control.post("hold", answers=True)
        calls = [asyncio.create_task(it.send(f"att-{n}")) for n in range(5)]
        await until(lambda: it.answers == ["held"] * 5)
        state = await it.control.quiet()
        assert state["held"] == 5
        assert state["accepted"] == 5
        assert state["events"]["published"] == 10
        assert not any(call.done() for call in calls)
        await it.control.post("hold", answers=False)
        results = await asyncio.gather(*calls)
        assert {status for status, _ in results} == {200}
        told = {orjson.loads(body)["MessageId"] for _, body in results}
        assert told == {a.message_id for a in it.simulator.ledger.acceptances}
        assert it.answers == ["sent"] * 5
        assert (await it.control.get("state"))["held"] == 0


async def test_a_caller_that_leaves_is_no_longer_held_but_stays_accepted() -> None:
    async with caller() as it:
        await it.control.post("hold", answers=True)
        calls = [asyncio.create_task(it.send(f"att-{n}")) for n in range(2)]
        await until(lambda: it.answers == ["held"] * 2)
        calls[0].cancel()
        await asyncio.wait(calls, timeout=0.01)
        await until(lambda: sorted(it.answers) == ["held", "lost"])
        state = await it.control.get("state")
        assert (state["held"], state["accepted"]) == (1, 2)
        await it.control.post("hold", answers=False)
        assert (await calls[1])[0] == 200


async def test_refused_calls_are_not_held() -> None:
    async with caller() as it:
        await it.control.post("hold", answers=True)
        await it.control.post("account", sending_enabled=False)
        status, _ = await it.send()
        assert status == 400
        assert (await it.control.get("state"))["held"] == 0


@pytest.mark.parametrize("lie", ["close", "reset"])
@pytest.mark.parametrize(("when", "accepted"), [("before", []), ("after", ["lost"])])
async def test_a_connection_can_end_without_an_answer(
    lie: str, when: str, accepted: list[str]
) -> None:
    async with caller() as it:
        await it.control.post("faults", faults=[{"when": when, "lie": lie, "next": 1}])
        with pytest.raises(aiohttp.ClientError) as caught:
            await it.send()
        assert isinstance(caught.value, aiohttp.ClientOSError) is (lie == "reset")
        assert it.answers == accepted
        assert (await it.send())[0] == 200
        assert (await it.control.get("state"))["faults"] == {f"{when} {lie}": 1}


async def test_an_error_before_acceptance_refuses_and_after_it_does_not() -> None:
    async with caller() as it:
        error = {"lie": "error", "status": 503, "code": "ServiceUnavailable", "next": 1}
        faults = [{"when": "before", **error}, {"when": "after", **error}]
        await it.control.post("faults", faults=faults)
        before, after = await it.send("att-1"), await it.send("att-2")
        assert before == after == (503, b'{"message":"Injected fault."}')
        (acceptance,) = it.simulator.ledger.acceptances
        assert acceptance.submission.tags == (("attempt", "att-2"),)
        assert acceptance.answer == "spoilt"


@pytest.mark.parametrize(
    ("lie", "body"), [("broken-body", b'{"MessageId": "'), ("no-message-id", b"{}")]
)
async def test_an_accepted_call_can_get_a_useless_answer(lie: str, body: bytes) -> None:
    async with caller() as it:
        await it.control.post("faults", faults=[{"when": "after", "lie": lie, "next": 1}])
        assert await it.send() == (200, body)
        assert it.answers == ["spoilt"]


async def test_an_answer_can_be_cut_in_half() -> None:
    async with caller() as it:
        await it.control.post("faults", faults=[{"when": "after", "lie": "truncated", "next": 1}])
        with pytest.raises(aiohttp.ClientPayloadError):
            await it.send()
        await until(lambda: it.answers == ["lost"])


@pytest.mark.parametrize(("when", "accepted"), [("before", 0), ("after", 1)])
async def test_a_call_can_hang_until_the_caller_leaves(when: str, accepted: int) -> None:
    async with caller() as it:
        await it.control.post("faults", faults=[{"when": when, "lie": "hang", "next": 1}])
        call = asyncio.create_task(it.send())
        await until(lambda: it.simulator.ledger.faults == {f"{when} hang": 1})
        assert not call.done()
        call.cancel()
        await asyncio.wait([call])
        assert len(it.simulator.ledger.acceptances) == accepted


async def test_a_late_answer_comes_late() -> None:
    async with caller() as it:
        fault = {"when": "after", "lie": "delay", "seconds": 0.2, "next": 1}
        await it.control.post("faults", faults=[fault])
        started = time.monotonic()
        assert (await it.send())[0] == 200
        assert time.monotonic() - started >= 0.2
        assert it.answers == ["sent"]


async def test_a_late_acceptance_stands_though_the_caller_has_left() -> None:
    async with caller() as it:
        fault = {"when": "before", "lie": "delay", "seconds": 0.3, "next": 1}
        await it.control.post("faults", faults=[fault])
        call = asyncio.create_task(it.send())
        await until(lambda: it.simulator.ledger.faults)
        assert it.answers == []
        call.cancel()
        await asyncio.wait([call])
        await until(lambda: it.answers == ["lost"])


async def test_a_share_of_calls_is_hit() -> None:
    async with caller() as it:
        fault = {"when": "before", "lie": "error", "status": 500, "code": "InternalFailure"}
        await it.control.post("faults", faults=[{**fault, "share": 0.3}])
        statuses = [(await it.send(f"att-{n}"))[0] for n in range(60)]
        assert 5 <= statuses.count(500) <= 35
        assert statuses.count(200) == len(it.simulator.ledger.acceptances)


async def test_concurrent_calls_are_each_accepted_exactly_once() -> None:
    async with caller() as it:
        results = await asyncio.gather(*(it.send(f"att-{n}") for n in range(100)))
        assert {status for status, _ in results} == {200}
        state = await it.control.quiet()
        assert state["accepted"] == 100
        assert state["accepted_again"] == {"attempt": 0, "outbox": 0}
