"""Delivery of SNS messages over HTTP: bounded concurrency, retries by policy, dead letters."""

import asyncio
import base64
import logging
import time
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from random import Random
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import aiohttp
import orjson
from yarl import URL

from streams.simulator import sns_envelopes
from streams.simulator.clock import iso_milliseconds
from streams.simulator.sns_envelopes import SnsMessage
from streams.simulator.sns_signing import Signer, text_to_sign
from streams.simulator.sns_topic import Subscription, SubscriptionState
from streams.simulator.sqs_queue import Queues

logger = logging.getLogger(__name__)


class Verdict(StrEnum):
    """What a try has come to."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REFUSED = "refused"


@dataclass(slots=True, kw_only=True)
class Delivery:
    """One message on its way to one endpoint; `counted` is false for confirmations."""

    message: SnsMessage
    subscription: Subscription
    counted: bool
    tries: int = 0
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A notification that SNS has given up; lost unless it is `queued` in its dead-letter queue."""

    queue: str | None
    queued: bool
    subscription_arn: str
    message: SnsMessage
    envelope: dict[str, str]
    tries: int
    error: str
    at: float

    def as_json(self) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "queued": self.queued,
            "subscription_arn": self.subscription_arn,
            "sns_message_id": self.message.message_id,
            "tries": self.tries,
            "error": self.error,
            "at": iso_milliseconds(self.at),
            "body": self.envelope,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    timeout_s: float
    retry_time_scale: float
    concurrency: int
    host: str
    """The URL of SNS in the region, as envelopes name it."""
    certificate_path: str


def verdict_of(status: int) -> Verdict:
    """2xx is delivered, 5xx and 1xx are tried again, everything else is given up at once."""
    if 200 <= status < 300:
        return Verdict.DELIVERED
    if status >= 500 or status < 200:
        return Verdict.RETRY
    return Verdict.REFUSED


class SnsDeliveries:
    """Sends what is put in; at least once, in no promised order."""

    def __init__(
        self, *, queues: Queues, signer: Signer, settings: DeliverySettings, random: Random
    ) -> None:
        self.dead_letters: list[DeadLetter] = []
        self.delivered = 0
        self.dropped = 0
        self.retries = 0
        self.pending = 0
        self._queues = queues
        self._signer = signer
        self._settings = settings
        self._random = random
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue()
        self._timers: set[asyncio.TimerHandle] = set()
        self._workers: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._settings.concurrency),
            timeout=aiohttp.ClientTimeout(total=self._settings.timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        self._workers = [
            asyncio.create_task(self._work(self._session), name=f"sns-delivery-{number}")
            for number in range(self._settings.concurrency)
        ]

    async def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        for worker in self._workers:
            worker.cancel()
        ends = await asyncio.gather(*self._workers, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    @property
    def workers(self) -> list[asyncio.Task[None]]:
        """Tasks that end only by failing or by `stop`."""
        return self._workers

    def put(self, message: SnsMessage, subscription: Subscription, *, counted: bool) -> None:
        """Take a message over; it is delivered, dead or dropped some time later."""
        self.pending += counted
        self._queue.put_nowait(
            Delivery(message=message, subscription=subscription, counted=counted)
        )

    async def _work(self, session: aiohttp.ClientSession) -> None:
        while True:
            delivery = await self._queue.get()
            if delivery.counted and delivery.subscription.state is SubscriptionState.DELETED:
                self._settle(delivery)
                self.dropped += 1
                continue
            verdict = await self._try(session, delivery)
            self._apply(verdict, delivery)

    async def _try(self, session: aiohttp.ClientSession, delivery: Delivery) -> Verdict:
        message, subscription = delivery.message, delivery.subscription
        if message.signature is None:
            signature = await self._signer.sign(
                text_to_sign(message.fields), message.signature_version
            )
            message.signature = base64.b64encode(signature).decode()
        delivery.tries += 1
        body = self._body(message, subscription)
        if subscription.protocol == "sqs":
            return self._enqueue(delivery, subscription.endpoint, body)
        headers = sns_envelopes.headers(message, subscription)
        try:
            status = await _post(session, subscription.endpoint, body, headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            delivery.last_error = type(error).__name__
            return Verdict.RETRY
        delivery.last_error = f"status {status}"
        return verdict_of(status)

    def _enqueue(self, delivery: Delivery, queue_arn: str, body: bytes) -> Verdict:
        """A queue that is not there is an error of the subscriber: not tried again."""
        queue = self._queues.find(queue_arn)
        if queue is None:
            delivery.last_error = "queue does not exist"
            return Verdict.REFUSED
        queue.put(body.decode(), now=asyncio.get_running_loop().time(), at=time.time())
        return Verdict.DELIVERED

    def _body(self, message: SnsMessage, subscription: Subscription) -> bytes:
        if subscription.attributes.raw and message.type == "Notification":
            return message.text.encode()
        return orjson.dumps(self._envelope(message, subscription))

    def _envelope(self, message: SnsMessage, subscription: Subscription) -> dict[str, str]:
        return sns_envelopes.envelope(
            message, subscription.arn, self._settings.host, self._settings.certificate_path
        )

    def _apply(self, verdict: Verdict, delivery: Delivery) -> None:
        if verdict is Verdict.DELIVERED:
            self._settle(delivery)
            self.delivered += delivery.counted
            delivery.subscription.delivered += delivery.counted
        elif verdict is Verdict.RETRY:
            self._retry(delivery)
        else:
            self._give_up(delivery)

    def _retry(self, delivery: Delivery) -> None:
        delays = delivery.subscription.attributes.retry_policy.delays()
        if delivery.tries > len(delays):
            self._give_up(delivery)
            return
        self.retries += 1
        jitter = self._random.uniform(1.0, 1.1)
        delay = delays[delivery.tries - 1] * self._settings.retry_time_scale * jitter
        self._later(delay, delivery)

    def _later(self, delay: float, delivery: Delivery) -> None:
        def fire() -> None:
            self._timers.discard(timer)
            self._queue.put_nowait(delivery)

        timer = asyncio.get_running_loop().call_later(delay, fire)
        self._timers.add(timer)

    def _give_up(self, delivery: Delivery) -> None:
        if not delivery.counted:
            return
        subscription = delivery.subscription
        logger.warning(
            "SNS delivery was given up",
            extra={
                "action": "sns_delivery_dead",
                "sns_message_id": delivery.message.message_id,
                "tries": delivery.tries,
                "error": delivery.last_error,
            },
        )
        self._settle(delivery)
        subscription.dead += 1
        error = delivery.last_error
        queue_arn = subscription.attributes.dead_letter_queue
        body = self._body(delivery.message, subscription)
        queued = queue_arn is not None and self._enqueue(delivery, queue_arn, body)
        self.dead_letters.append(
            DeadLetter(
                queue=queue_arn,
                queued=queued is Verdict.DELIVERED,
                subscription_arn=subscription.arn,
                message=delivery.message,
                envelope=self._envelope(delivery.message, subscription),
                tries=delivery.tries,
                error=error,
                at=time.time(),
            )
        )

    def _settle(self, delivery: Delivery) -> None:
        self.pending -= delivery.counted


async def _post(
    session: aiohttp.ClientSession, endpoint: str, body: bytes, headers: dict[str, str]
) -> int:
    """The status of the answer; credentials in the URL are sent only when they are asked for."""
    url, credentials = split_credentials(endpoint)
    async with session.post(url, data=body, headers=headers, allow_redirects=False) as response:
        await response.read()
        challenge = response.headers.get("WWW-Authenticate", "")
        if response.status != 401 or credentials is None or "basic" not in challenge.lower():
            return response.status
    headers = {**headers, "Authorization": credentials}
    async with session.post(url, data=body, headers=headers, allow_redirects=False) as response:
        await response.read()
        return response.status


@lru_cache(maxsize=64)
def split_credentials(endpoint: str) -> tuple[URL, str | None]:
    """The URL without its user information, and that as an Authorization header."""
    parts = urlsplit(endpoint)
    url = URL(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))
    if parts.username is None:
        return url, None
    user, password = unquote(parts.username), unquote(parts.password or "")
    return url, aiohttp.encode_basic_auth(user, password)
