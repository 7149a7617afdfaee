"""Delivery of SNS messages: bounded concurrency, throttle, retries by policy, dead letters."""

import asyncio
import base64
import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random

import aiohttp
import orjson

from streams.simulator import sns_envelopes
from streams.simulator.dead_letters import DeadLetters, enqueue
from streams.simulator.sns_envelopes import SnsMessage
from streams.simulator.sns_http import Verdict, post, verdict_of
from streams.simulator.sns_signing import Signer, text_to_sign
from streams.simulator.sns_topic import Subscription, SubscriptionState
from streams.simulator.sqs_queue import Queues

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Delivery:
    """One message on its way to one endpoint; `counted` is false for confirmations."""

    message: SnsMessage
    subscription: Subscription
    counted: bool
    tried: Callable[[], None] | None
    """Called once, after the first try."""
    has_slot: bool = False
    """Whether the throttle of its subscription lets it go now."""
    tries: int = 0
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    timeout_s: float
    retry_time_scale: float
    concurrency: int
    host: str
    """The URL of SNS in the region, as envelopes name it."""
    certificate_path: str


class SnsDeliveries:
    """Sends what is put in; at least once, in no promised order."""

    def __init__(
        self, *, queues: Queues, signer: Signer, settings: DeliverySettings, random: Random
    ) -> None:
        self.dead_letters = DeadLetters(queues)
        self.delivered = 0
        self.dropped = 0
        self.retries = 0
        self.pending = 0
        self._queues = queues
        self._signer = signer
        self._settings = settings
        self._random = random
        self._waiting: asyncio.PriorityQueue[tuple[bool, int, Delivery]] = asyncio.PriorityQueue()
        self._order = count()
        self._timers: set[asyncio.TimerHandle] = set()
        self._next_receive: dict[str, float] = {}
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
            asyncio.create_task(self._work(), name=f"sns-delivery-{number}")
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

    def put(
        self,
        message: SnsMessage,
        subscription: Subscription,
        *,
        counted: bool,
        tried: Callable[[], None] | None = None,
    ) -> None:
        """Take a message over; it is delivered, dead or dropped some time later."""
        self.pending += counted
        self._queue(
            Delivery(message=message, subscription=subscription, counted=counted, tried=tried)
        )

    def _queue(self, delivery: Delivery) -> None:
        """First what somebody waits for, then in order."""
        self._waiting.put_nowait((delivery.tried is None, next(self._order), delivery))

    async def sign(self, message: SnsMessage) -> None:
        """Sign it unless it is signed: every try and every subscriber gets the same signature."""
        if message.signature is None:
            text = text_to_sign(message.fields)
            signature = await self._signer.sign(text, message.signature_version)
            message.signature = base64.b64encode(signature).decode()

    def envelope(self, message: SnsMessage, subscription_arn: str) -> dict[str, str]:
        return sns_envelopes.envelope(
            message, subscription_arn, self._settings.host, self._settings.certificate_path
        )

    async def post(self, endpoint: str, body: bytes, headers: dict[str, str]) -> int:
        """One try; the status of the answer, or an aiohttp or time-out error."""
        if self._session is None:
            raise RuntimeError("deliveries have not started")
        return await post(self._session, endpoint, body, headers)

    async def _work(self) -> None:
        while True:
            _, _, delivery = await self._waiting.get()
            if delivery.counted and delivery.subscription.state is SubscriptionState.DELETED:
                self._settle(delivery)
                self.dropped += 1
                _tell_tried(delivery)
                continue
            wait_s = self._throttle(delivery)
            if wait_s > 0:
                self._later(wait_s, delivery)
                continue
            verdict = await self._try(delivery)
            self._apply(verdict, delivery)
            _tell_tried(delivery)

    def _throttle(self, delivery: Delivery) -> float:
        """Seconds until its slot under the subscription's throttle policy; each try takes one."""
        subscription = delivery.subscription
        rate = subscription.receives_per_second
        if rate is None or not delivery.counted or delivery.has_slot:
            delivery.has_slot = False
            return 0.0
        now = asyncio.get_running_loop().time()
        slot = max(now, self._next_receive.get(subscription.arn, now))
        self._next_receive[subscription.arn] = slot + 1 / rate
        delivery.has_slot = slot > now
        return slot - now

    async def _try(self, delivery: Delivery) -> Verdict:
        message, subscription = delivery.message, delivery.subscription
        await self.sign(message)
        delivery.tries += 1
        body = self._body(message, subscription)
        if subscription.protocol == "sqs":
            return self._enqueue(delivery, body)
        headers = sns_envelopes.headers(message, subscription)
        try:
            status = await self.post(subscription.endpoint, body, headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            delivery.last_error = type(error).__name__
            return Verdict.RETRY
        delivery.last_error = f"status {status}"
        return verdict_of(status)

    def _enqueue(self, delivery: Delivery, body: bytes) -> Verdict:
        """A queue that is not there is an error of the subscriber: not tried again."""
        if enqueue(self._queues, delivery.subscription.endpoint, body):
            return Verdict.DELIVERED
        delivery.last_error = "queue does not exist"
        return Verdict.REFUSED

    def _body(self, message: SnsMessage, subscription: Subscription) -> bytes:
        if subscription.attributes.raw and message.type == "Notification":
            return message.text.encode()
        return orjson.dumps(self.envelope(message, subscription.arn))

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
        delays = delivery.subscription.retry_policy.delays()
        if delivery.tries > len(delays):
            self._give_up(delivery)
            return
        self.retries += 1
        jitter = self._random.uniform(1.0, 1.1)
        self._later(delays[delivery.tries - 1] * self._settings.retry_time_scale * jitter, delivery)

    def _later(self, delay: float, delivery: Delivery) -> None:
        def fire() -> None:
            self._timers.discard(timer)
            self._queue(delivery)

        timer = asyncio.get_running_loop().call_later(delay, fire)
        self._timers.add(timer)

    def _give_up(self, delivery: Delivery) -> None:
        if not delivery.counted:
            return
        message, subscription = delivery.message, delivery.subscription
        logger.warning(
            "SNS delivery was given up",
            extra={
                "action": "sns_delivery_dead",
                "sns_message_id": message.message_id,
                "tries": delivery.tries,
                "error": delivery.last_error,
            },
        )
        self._settle(delivery)
        self.dead_letters.add(
            message,
            subscription,
            envelope=self.envelope(message, subscription.arn),
            body=self._body(message, subscription),
            tries=delivery.tries,
            error=delivery.last_error,
        )

    def _settle(self, delivery: Delivery) -> None:
        self.pending -= delivery.counted


def _tell_tried(delivery: Delivery) -> None:
    if delivery.tried is not None:
        delivery.tried()
        delivery.tried = None
