"""Amazon SNS from the subscriber's side: its signing certificates, and the call that confirms a subscription."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

import aioboto3
import aiohttp
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from streams.domain.errors import BadMessage, Misconfigured, Unavailable
from streams.domain.sns import TopicArn
from streams.domain.sns_certificates import MAX_BYTES, Certificate, read_certificate
from streams.runtime import metrics
from streams.runtime.logs import Seldom

log = logging.getLogger(__name__)

FETCH_TIMEOUT_S = 5.0
KEEP_S = 24 * 3600.0
KEEP_FAILURE_S = 2.0
KEPT = 32
KEPT_FAILURES = 256
FETCHES_AT_A_TIME = 8
CONFIRM_TIMEOUT_S = 8.0


class CertificateFetcher:
    """GET of one certificate: no redirects, 16 KiB, 5 s, no proxy of the environment.

    source (development): scheme and host that stand in for Amazon's; the path stays.
    """

    def __init__(self, source: str | None = None) -> None:
        if source is not None and not _is_origin(source):
            raise Misconfigured(
                "MAILSTREAMS_SNS_CERTIFICATE_SOURCE has to be a base URL such as http://127.0.0.1:8600"
            )
        self._source = source and source.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, url: str) -> bytes:
        """The bytes served there; Unavailable for everything but a complete answer 200 of at most 16 KiB."""
        target = url if self._source is None else self._source + urlsplit(url).path
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                async with self._opened().get(target, allow_redirects=False) as answer:
                    if answer.status != 200:
                        raise Unavailable(f"the certificate's host answered {answer.status}")
                    return await _bounded(answer.content)
        except TimeoutError as error:
            raise Unavailable("the certificate's host did not answer in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unavailable(f"the certificate was not served: {type(error).__name__}") from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _is_origin(source: str) -> bool:
    parts = urlsplit(source)
    plain = not (parts.path.strip("/") or parts.query or parts.fragment)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > MAX_BYTES:
            raise Unavailable("the certificate's host served more than a certificate")
    return bytes(body)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What a fetch gave: a certificate, or why there is none."""

    found: Certificate | BadMessage | Unavailable
    until: float


class SnsCertificates:
    """Certificates by URL: one fetch at a time for each, kept for a day, failures for two seconds.

    Failures are kept apart, so that made-up URLs cannot push out a certificate; one that is due for renewal is used
    as long as nothing newer can be had, and nobody waits for that. One that is not valid now is fetched again after two seconds: another may be
    served by then, or our clock be right.
    """

    def __init__(
        self,
        fetcher: CertificateFetcher,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._now = now
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._failed: OrderedDict[str, _Kept] = OrderedDict()
        self._fetches: dict[str, asyncio.Task[Certificate]] = {}
        self._slots = asyncio.Semaphore(FETCHES_AT_A_TIME)
        self._seldom = Seldom()

    async def get(self, url: str) -> Certificate:
        """The certificate; Unavailable if there is none now, BadMessage if it is none that can be taken."""
        kept, failed = self._kept.get(url), self._failed.get(url)
        if kept is not None and self._clock() < kept.until:
            self._kept.move_to_end(url)
            return _told(kept)
        is_due = failed is None or self._clock() >= failed.until
        if kept is not None and self._is_valid(kept):
            if is_due:
                self._fetching(url)
            return _told(kept)
        # A request that gives up does not take the fetch away from the others.
        return await asyncio.shield(self._fetching(url)) if is_due else _told(failed)

    def _is_valid(self, kept: _Kept) -> bool:
        return isinstance(kept.found, Certificate) and kept.found.valid_at(self._now())

    def _fetching(self, url: str) -> "asyncio.Task[Certificate]":
        """The fetch that is under way; begins one if none is."""
        task = self._fetches.get(url)
        if task is None:
            task = asyncio.create_task(self._fetch(url), name="sns-certificate")
            self._fetches[url] = task
            task.add_done_callback(lambda done: self._finished(url, done))
        return task

    def _finished(self, url: str, task: "asyncio.Task[Certificate]") -> None:
        self._fetches.pop(url, None)
        if not task.cancelled():
            task.exception()  # told to those who waited; perhaps nobody does any more

    async def _fetch(self, url: str) -> Certificate:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S), self._slots:
                certificate = read_certificate(await self._fetcher.fetch(url))
        except (TimeoutError, Unavailable) as error:
            unavailable = (
                error if isinstance(error, Unavailable) else Unavailable("too many fetches")
            )
            self._keep(self._failed, url, unavailable)
            raise unavailable from error
        except BadMessage as error:
            self._keep(self._failed, url, error)
            raise
        self._failed.pop(url, None)
        self._keep(self._kept, url, certificate)
        return certificate

    def _keep(
        self, kept: OrderedDict[str, _Kept], url: str, found: Certificate | BadMessage | Unavailable
    ) -> None:
        good = isinstance(found, Certificate)
        kept[url] = _Kept(found=found, until=self._clock() + self._lasting(found))
        kept.move_to_end(url)
        while len(kept) > (KEPT if good else KEPT_FAILURES):
            kept.popitem(last=False)
        outcome = "fetched" if good else "unavailable" if isinstance(found, Unavailable) else "bad"
        metrics.EVENTS_CERTIFICATE_FETCHES.labels(outcome=outcome).inc()
        if not good and (left_out := self._seldom.left_out(outcome)) is not None:
            log.warning(
                "signing certificate cannot be had",
                extra={
                    "action": "events.certificate_failed",
                    "error": str(found),
                    "left_out": left_out,
                },
            )

    def _lasting(self, found: Certificate | BadMessage | Unavailable) -> float:
        now = self._now()
        if not isinstance(found, Certificate) or not found.valid_at(now):
            return KEEP_FAILURE_S
        return min(KEEP_S, (found.not_after - now).total_seconds())

    async def stop(self) -> None:
        """Ends the fetches under way."""
        fetches = list(self._fetches.values())
        for task in fetches:
            task.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)
        await self._fetcher.close()


def _told(kept: _Kept | None) -> Certificate:
    if kept is None:
        raise Unavailable("there is no certificate")
    if isinstance(kept.found, Certificate):
        return kept.found
    raise type(kept.found)(*kept.found.args)


class SnsConfirmer:
    """ConfirmSubscription with our credentials, in the region of the topic; the endpoint follows AWS_ENDPOINT_URL_SNS."""

    def __init__(self) -> None:
        self._session = aioboto3.Session()
        self._config = Config(
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=3,
            read_timeout=CONFIRM_TIMEOUT_S,
        )

    async def confirm(self, topic: TopicArn, token: str) -> None:
        """AuthenticateOnUnsubscribe: only our account can remove the subscription, not whoever sees its URL."""
        try:
            async with (
                asyncio.timeout(CONFIRM_TIMEOUT_S),
                self._session.client(
                    "sns", region_name=topic.region, config=self._config
                ) as client,
            ):
                await client.confirm_subscription(
                    TopicArn=topic.text, Token=token, AuthenticateOnUnsubscribe="true"
                )
        except (BotoCoreError, ClientError, ResponseParserError, OSError) as error:
            metrics.EVENTS_CONFIRMATIONS.labels(outcome="failed").inc()
            raise Unavailable(f"ConfirmSubscription: {_cause(error)}") from error
        metrics.EVENTS_CONFIRMATIONS.labels(outcome="confirmed").inc()


def _cause(error: Exception) -> str:
    """The error's name and code; its text may quote the request with its token."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "unknown error"))
    return type(error).__name__
