"""What the simulator's tests share: an endpoint for SNS, boto3 clients, a signature check of its own."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import boto3
from aiohttp import web
from botocore.config import Config
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from streams.simulator.settings import EventTimes, SimulatorSettings

TOPIC_ARN = "arn:aws:sns:eu-central-1:111122223333:ses-events-example"
QUICK = EventTimes(send_ms=(0, 1), outcome_ms=(2, 4), feedback_ms=(2, 4))


def quick_settings(**changes: Any) -> SimulatorSettings:
    """In-process settings: small key, no child processes, retries after 20 ms."""
    given: dict[str, Any] = {
        "signing_processes": 0,
        "key_bits": 1024,
        "event_times": QUICK,
        "retry_time_scale": 0.001,
        "delivery_timeout_s": 2.0,
        "subscribe_interval_s": 0.2,
    }
    return SimulatorSettings(**(given | changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One POST from SNS."""

    headers: dict[str, str]
    text: str

    @property
    def envelope(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.text)
        return document

    @property
    def kind(self) -> str:
        return self.headers["x-amz-sns-message-type"]

    @property
    def record(self) -> dict[str, Any] | None:
        """The SES record inside, if there is one."""
        if self.kind != "Notification" or self.envelope.get("Subject") is None:
            return None
        record: dict[str, Any] = json.loads(self.envelope["Message"])
        return record


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """A subscriber: `status_of` decides what it answers to the n-th try of a record."""

    url: str = ""
    simulator_url: str = ""
    """Where to confirm; empty: nothing is confirmed."""
    demands: str = ""
    """The WWW-Authenticate header of every answer to a request without credentials."""
    received: list[Received] = field(default_factory=list)
    posts: int = 0
    """How many posts had a record."""
    status_of: Callable[[Received, int], int | None] = lambda _received, _n: 200

    @property
    def notifications(self) -> list[Received]:
        return [item for item in self.received if item.record is not None]

    @property
    def records(self) -> list[dict[str, Any]]:
        return [item.record for item in self.received if item.record is not None]

    def events(self, message_id: str) -> list[str]:
        return [r["eventType"] for r in self.records if r["mail"]["messageId"] == message_id]

    async def handle(self, request: web.Request) -> web.Response:
        text = (await request.read()).decode()
        headers = {name.lower(): value for name, value in request.headers.items()}
        received = Received(headers=headers, text=text)
        self.received.append(received)
        if self.demands and "authorization" not in headers:
            return web.Response(status=401, headers={"WWW-Authenticate": self.demands})
        if received.kind == "SubscriptionConfirmation" and self.simulator_url:
            await confirm_by_url(self.simulator_url, received.envelope["SubscribeURL"])
        if received.record is None:
            return web.Response()
        self.posts += 1
        status = self.status_of(received, self.posts)
        if status is None:
            await asyncio.Event().wait()
        return web.Response(status=status or 200)


async def confirm_by_url(simulator_url: str, subscribe_url: str) -> None:
    """What a browser does with SubscribeURL, at the simulator's own address."""
    url = f"{simulator_url}/?{urlsplit(subscribe_url).query}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200, await response.text()


@asynccontextmanager
async def endpoint(port: int = 0) -> AsyncIterator[Endpoint]:
    serving = Endpoint()
    app = web.Application()
    app.router.add_post("/sns", serving.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    serving.url = f"http://127.0.0.1:{runner.addresses[0][1]}/sns"
    try:
        yield serving
    finally:
        await runner.cleanup()


async def until(condition: Callable[[], Any], *, within_s: float = 60.0) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)


def client(service: str, url: str, **changes: Any) -> Any:
    """An unmodified boto3 client without retries."""
    given = {"aws_access_key_id": "test", "aws_secret_access_key": "test"} | changes
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=10)
    return boto3.client(
        service, region_name="eu-central-1", endpoint_url=url, config=config, **given
    )


def simple_mail(to: str = "ann@example.com", **changes: Any) -> dict[str, Any]:
    """The arguments of a SendEmail call that SES accepts."""
    given: dict[str, Any] = {
        "FromEmailAddress": "shop@example.com",
        "Destination": {"ToAddresses": [to]},
        "ConfigurationSetName": "mailstreams",
        "EmailTags": [{"Name": "attempt", "Value": "att-1"}, {"Name": "outbox", "Value": "out-1"}],
        "Content": {
            "Simple": {
                "Subject": {"Data": "Your order", "Charset": "UTF-8"},
                "Body": {"Text": {"Data": "It is on its way.", "Charset": "UTF-8"}},
            }
        },
    }
    return given | changes


def signature_is_valid(envelope: dict[str, Any], certificate_pem: bytes) -> bool:
    """Written from the description of the signature, without the simulator's code."""
    if envelope["Type"] == "Notification":
        names = ["Message", "MessageId", "Timestamp", "TopicArn", "Type"]
        if "Subject" in envelope:
            names.insert(2, "Subject")
    else:
        names = ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
    text = ""
    for name in names:
        text += name + "\n" + envelope[name] + "\n"
    sha1 = hashes.SHA1()  # noqa: S303 - what version 1 is
    algorithm = {"1": sha1, "2": hashes.SHA256()}[envelope["SignatureVersion"]]
    key = x509.load_pem_x509_certificate(certificate_pem).public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    try:
        key.verify(
            base64.b64decode(envelope["Signature"], validate=True),
            text.encode("utf-8"),
            padding.PKCS1v15(),
            algorithm,
        )
    except InvalidSignature:
        return False
    return True


class Control:
    """The control API from outside."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def get(self, name: str) -> Any:
        async with self._session.get(f"{self._url}/control/{name}") as response:
            assert response.status == 200, await response.text()
            return json.loads(await response.read())

    async def lines(self, name: str) -> list[Any]:
        async with self._session.get(f"{self._url}/control/{name}") as response:
            assert response.status == 200, await response.text()
            return [json.loads(line) for line in (await response.text()).splitlines()]

    async def post(self, name: str, **fields: Any) -> Any:
        async with self._session.post(f"{self._url}/control/{name}", json=fields) as response:
            document = json.loads(await response.read())
            assert response.status == 200, document
            return document

    async def refusal(self, name: str, **fields: Any) -> str:
        async with self._session.post(f"{self._url}/control/{name}", json=fields) as response:
            assert response.status == 400
            text: str = json.loads(await response.read())["error"]
            return text

    async def quiet(self, *, within_s: float = 60.0) -> dict[str, Any]:
        """Wait until no event is to come or on its way; the state then."""
        return await self.until(lambda state: state["events"]["pending"] == 0, within_s=within_s)

    async def until(
        self, condition: Callable[[dict[str, Any]], bool], *, within_s: float = 60.0
    ) -> dict[str, Any]:
        """Poll the state until the condition holds for it; the state then."""
        deadline = time.monotonic() + within_s
        while True:
            state: dict[str, Any] = await self.get("state")
            if condition(state):
                return state
            assert time.monotonic() < deadline, f"still so at the deadline: {state}"
            await asyncio.sleep(0.01)
