"""SendEmail of SES v2: signed with botocore, posted with aiohttp, so that it shows whether a byte was written.

Never tried again below the claim: SES has no idempotency token.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import aioboto3
import aiohttp
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, NoRegionError

from streams.domain.errors import Misconfigured
from streams.domain.ses_answers import Answer, Fault, FaultKind, Missed, SignedCall, read_answer

PATH: Final = "/v2/email/outbound-emails"
SERVICE: Final = "sesv2"
SIGNING_NAME: Final = "ses"
_LARGEST_ANSWER: Final = 1024 * 1024
_KEEP_ALIVE_S: Final = 12.0


@dataclass(slots=True, kw_only=True)
class _Writing:
    """One call on its way to the wire. written: a byte of the request may have left."""

    latest: float
    on_begin: Callable[[], None]
    written: bool = False
    refused: Exception | None = None

    def begin(self) -> None:
        """Right before the first byte is handed to the transport; if on_begin raises, none will be."""
        try:
            self.on_begin()
        except Exception as error:  # kept apart from what the network raises, which may look alike
            self.refused = error
            raise
        self.written = True


# The call that the current task makes.
_writing: ContextVar[_Writing] = ContextVar("writing")


class _SlotMissed(Exception):
    pass


class _PunctualConnector(aiohttp.TCPConnector):
    """Gives a call up if it is too late once its connection is there; the connection serves the next one."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[aiohttp.tracing.Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 it overrides
    ) -> aiohttp.connector.Connection:
        connection = await super().connect(req, traces, timeout)
        if time.monotonic() > _writing.get().latest:
            connection.release()
            raise _SlotMissed
        return connection


class SesApi:
    """One endpoint and region, as botocore finds them (environment, profile, AWS_ENDPOINT_URL_SESV2)."""

    def __init__(
        self, *, max_in_flight: int, connect_timeout_s: float, read_timeout_s: float
    ) -> None:
        self._max_in_flight = max_in_flight
        self._timeout = aiohttp.ClientTimeout(
            total=None,
            connect=connect_timeout_s,
            sock_connect=connect_timeout_s,
            sock_read=read_timeout_s,
        )
        self._region = ""
        self._url = ""
        self._credentials: Any = None
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Finds region and endpoint; Misconfigured if there is no region. Opens no connection."""
        if self._session is not None:
            return
        session = aioboto3.Session()
        # botocore itself reads AWS_DEFAULT_REGION and the profile only.
        region = session.region_name or os.environ.get("AWS_REGION")
        try:
            async with session.client(SERVICE, region_name=region) as client:
                self._region = client.meta.region_name
                self._url = client.meta.endpoint_url.rstrip("/") + PATH
        except NoRegionError as error:
            raise Misconfigured(
                "no AWS region is set: set AWS_DEFAULT_REGION or AWS_REGION to that of your SES identities"
            ) from error
        except (BotoCoreError, ValueError) as error:
            raise Misconfigured(f"the AWS configuration cannot be used: {error}") from error
        self._session = aiohttp.ClientSession(
            connector=_PunctualConnector(
                limit=self._max_in_flight, keepalive_timeout=_KEEP_ALIVE_S
            ),
            timeout=self._timeout,
            auto_decompress=False,
            trace_configs=[_trace()],
        )

    @property
    def region(self) -> str:
        """The region, which is the scope of the sending rate."""
        return self._region

    async def sign(self, body: bytes) -> SignedCall | Fault:
        """The call signed with the credentials of this moment; a fault if there are none."""
        try:
            credentials = await self._frozen_credentials()
        except (BotoCoreError, OSError, TimeoutError):
            credentials = None
        if credentials is None:
            return Fault(kind=FaultKind.NO_CREDENTIALS, written=False)
        request = AWSRequest(
            method="POST", url=self._url, data=body, headers={"Content-Type": "application/json"}
        )
        SigV4Auth(credentials, SIGNING_NAME, self._region).add_auth(request)
        return SignedCall(body=body, headers=dict(request.headers.items()))

    async def _frozen_credentials(self) -> ReadOnlyCredentials | None:
        if self._credentials is None:
            self._credentials = await _resolve_credentials()
        if self._credentials is None:
            return None
        return await self._credentials.get_frozen_credentials()

    def forget_credentials(self) -> None:
        """AWS refused them: they are looked up anew before the next call."""
        self._credentials = None

    async def send(
        self,
        call: SignedCall,
        *,
        latest: float,
        within_s: float,
        on_begin: Callable[[], None],
    ) -> Answer | Fault | Missed:
        """Posts it once. Begins to write at `latest` (monotonic) or never; ends within so many seconds.

        on_begin is called once, before the first byte can leave, and not at all where none does.
        """
        if self._session is None:
            return Fault(kind=FaultKind.UNREACHABLE, written=False)
        writing = _Writing(latest=latest, on_begin=on_begin)
        _writing.set(writing)
        try:
            async with asyncio.timeout(within_s):
                return await self._post(self._session, call, writing)
        except _SlotMissed:
            return Missed()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if writing.refused is not None:
                raise writing.refused from None
            return Fault(kind=_kind(error, written=writing.written), written=writing.written)

    async def _post(
        self, session: aiohttp.ClientSession, call: SignedCall, writing: _Writing
    ) -> Answer | Fault:
        async with session.post(
            self._url,
            data=call.body,
            headers=call.headers,
            allow_redirects=False,
            trace_request_ctx=writing,
        ) as response:
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > _LARGEST_ANSWER:
                    return Fault(kind=FaultKind.BROKEN, written=True)
            return read_answer(response.status, response.headers, bytes(body))

    async def stop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def _resolve_credentials() -> Any:
    """aioboto3's session resolves lazily through the botocore session that it wraps."""
    return await aioboto3.Session()._session.get_credentials()


def _trace() -> aiohttp.TraceConfig:
    """Notes from when on a byte may have left: the hook runs before the first one is handed to the transport."""

    async def written(_: object, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.begin()

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(written)
    return trace


def _kind(error: BaseException, *, written: bool) -> FaultKind:
    if written:
        return FaultKind.TIMEOUT if isinstance(error, TimeoutError) else FaultKind.BROKEN
    if isinstance(error, (ssl.SSLError, aiohttp.ClientSSLError)):
        return FaultKind.TLS
    return FaultKind.CONNECT_TIMEOUT if isinstance(error, TimeoutError) else FaultKind.UNREACHABLE
