"""`mailstreams doctor` and SES: what the simulator says of the account and of its configuration set, and what a refusal leads to."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import chain, repeat
from typing import Any

import pytest
from aiohttp import web

from streams.adapters import doctor_ses
from streams.runtime.http import HttpServer
from streams.simulator.server import Simulator
from tests.command_line import mailstreams
from tests.simulator_rig import TOPIC_ARN, client, quick_settings

KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET = "a-very-secret-word"


@pytest.fixture(autouse=True)
def quick_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_ses, "PACE_S", 0.0)


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(quick_settings(access_key=KEY, secret_key=SECRET)) as running:
        yield running


async def told_of_ses(url: str, **changes: str) -> dict[str, dict[str, str]]:
    """The findings on AWS by their ids. The other servers are nowhere."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{taken.getsockname()[1]}"
    environment = {
        "MAILSTREAMS_POSTGRES_DSN": f"postgresql://x@{nowhere}/x",
        "MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS": nowhere,
        "MAILSTREAMS_RECIPIENT_SALT": "0123456789abcdef",
        "MAILSTREAMS_SNS_TOPICS": TOPIC_ARN,
        "AWS_ENDPOINT_URL_SESV2": url,
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    done = await asyncio.to_thread(
        mailstreams, "doctor", "--json", environment=environment | changes
    )
    assert SECRET not in done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr
    return {
        finding["id"]: finding
        for finding in json.loads(done.stdout)["findings"]
        if finding["id"].startswith(("ses.", "aws."))
    }


async def test_an_account_that_may_send_and_tells_its_events_is_right(
    simulator: Simulator,
) -> None:
    told = await told_of_ses(simulator.url)
    assert {id_: finding["level"] for id_, finding in told.items()} == dict.fromkeys(
        (
            "aws.region",
            "aws.credentials",
            "ses.reach",
            "ses.account",
            "ses.production",
            "ses.quota",
            "ses.configuration-set",
            "ses.event-destination",
        ),
        "ok",
    )


async def test_what_is_switched_off_or_missing_is_told(simulator: Simulator) -> None:
    ses: Any = client("sesv2", simulator.url, aws_access_key_id=KEY, aws_secret_access_key=SECRET)
    await asyncio.to_thread(ses.put_account_sending_attributes, SendingEnabled=False)
    ses.close()
    told = await told_of_ses(simulator.url, MAILSTREAMS_CONFIGURATION_SET="nobody-made-it")
    assert told["ses.account"]["found"].startswith("sending is switched off")
    assert "no configuration set nobody-made-it" in told["ses.configuration-set"]["found"]
    assert told["ses.event-destination"]["level"] == "error"
    other = "arn:aws:sns:eu-central-1:111122223333:another"
    told = await told_of_ses(simulator.url, MAILSTREAMS_SNS_TOPICS=other)
    assert told["ses.configuration-set"]["level"] == "ok"
    assert TOPIC_ARN in told["ses.event-destination"]["found"]
    assert told["ses.event-destination"]["level"] == "error"


@asynccontextmanager
async def answering(codes: Iterator[str]) -> AsyncIterator[str]:
    """The URL of an SES that refuses each call with the next code; what has no code is an account that may send."""

    async def answer(_: web.Request) -> web.Response:
        code = next(codes)
        if not code:
            return web.json_response({"SendingEnabled": True, "EnforcementStatus": "HEALTHY"})
        return web.json_response(
            {"message": "User arn:aws:iam::111122223333:user/x is not authorized"},
            status=400,
            headers={"x-amzn-ErrorType": code},
        )

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = HttpServer(app, host="127.0.0.1", port=0)
    await server.start()
    try:
        yield f"http://{server.address}"
    finally:
        await server.stop()


async def test_a_call_that_was_throttled_is_made_again() -> None:
    throttled = "TooManyRequestsException"
    async with answering(chain([throttled, throttled, ""], repeat(throttled))) as url:
        told = await told_of_ses(url)
    assert told["ses.account"]["level"] == "ok"
    assert told["ses.configuration-set"]["level"] == "error"
    assert "throttles" in told["ses.configuration-set"]["found"]


async def test_a_call_that_is_not_permitted_is_a_warning_that_names_the_permission() -> None:
    async with answering(repeat("AccessDeniedException")) as url:
        told = await told_of_ses(url)
    for id_, call in {
        "ses.account": "GetAccount",
        "ses.configuration-set": "GetConfigurationSet",
        "ses.event-destination": "GetConfigurationSetEventDestinations",
    }.items():
        found = (told[id_]["level"], told[id_]["remedy"])
        assert found == ("warning", f"allow ses:{call} to them")


async def test_an_endpoint_without_an_answer_and_missing_credentials_are_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    told = await told_of_ses(url)
    assert told["ses.reach"]["level"] == "error"
    told = await told_of_ses(
        url,
        AWS_ACCESS_KEY_ID="",
        AWS_SECRET_ACCESS_KEY="",
        AWS_SHARED_CREDENTIALS_FILE="/nowhere",
        AWS_CONFIG_FILE="/nowhere",
    )
    assert told["aws.credentials"]["level"] == "error"
