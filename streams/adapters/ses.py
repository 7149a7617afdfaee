"""SendEmail of SES v2: signed with botocore, posted with aiohttp, so that it shows whether a byte was written.

Never tried again below the claim: SES has no idempotency token.
"""

import asyncio
import io
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

import aioboto3
import aiohttp
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, NoRegionError

from streams.adapters.aws import NO_REGION, SES, proxy_for, region_of, trust
from streams.adapters.aws_credentials import AwsCredentials
from streams.adapters.ses_connections import (
    PunctualConnector,
    SlotMissed,
    Writing,
    current,
    traced,
)
from streams.domain.errors import Misconfigured
from streams.domain.ses_answers import (
    SEND_EMAIL,
    Answer,
    Fault,
    FaultKind,
    Missed,
    SignedCall,
    plain_body,
    read_answer,
)

SIGNING_NAME: Final = "ses"
LARGEST_ANSWER: Final = 1024 * 1024
# Larger ones are written piece by piece, as fast as they are taken.
_ONE_WRITE: Final = 64 * 1024
_LARGE: Final = 1024 * 1024
_KEEP_ALIVE_S: Final = 12.0
_NOT_COMPRESSED: Final = {"Accept-Encoding": "identity"}


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
        self._endpoint = ""
        self._proxy: str | None = None
        self._proxy_headers: dict[str, str] = {}
        self._credentials = AwsCredentials()
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Finds region, endpoint, trust and proxy; Misconfigured if one cannot be used. Opens no connection."""
        if self._session is not None:
            return
        bundle = await self._find_endpoint()
        self._proxy, self._proxy_headers = proxy_for(self._endpoint)
        self._session = aiohttp.ClientSession(
            connector=PunctualConnector(
                limit=self._max_in_flight, keepalive_timeout=_KEEP_ALIVE_S, ssl=trust(bundle)
            ),
            timeout=self._timeout,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[traced()],
        )

    async def _find_endpoint(self) -> str | None:
        """Region and endpoint; returns the bundle of certificates that is set, if one is."""
        try:
            session = aioboto3.Session()
            # Signs nothing: what needs credentials only finds out with the first call.
            client = session.client(
                SES,
                region_name=region_of(session),
                aws_access_key_id="unused",
                aws_secret_access_key="unused",  # noqa: S106
            )
            async with client as found:
                self._region = found.meta.region_name
                self._endpoint = found.meta.endpoint_url.rstrip("/")
            bundle: str | None = session._session.get_config_variable("ca_bundle")
        except NoRegionError as error:
            raise Misconfigured(NO_REGION) from error
        except (BotoCoreError, ValueError) as error:
            raise Misconfigured(f"the AWS configuration cannot be used: {error}") from error
        return bundle

    @property
    def region(self) -> str:
        """The region, which is the scope of the sending rate."""
        return self._region

    async def sign(self, body: bytes, *, path: str = SEND_EMAIL) -> SignedCall | Fault:
        """The call signed with the credentials of this moment; a fault if there are none."""
        credentials = await self._credentials.get()
        if credentials is None:
            return Fault(
                kind=FaultKind.NO_CREDENTIALS, written=False, detail=self._credentials.trouble
            )
        request = AWSRequest(
            method="POST",
            url=self._endpoint + path,
            data=body,
            headers={"Content-Type": "application/json"},
        )
        auth = SigV4Auth(credentials, SIGNING_NAME, self._region)
        if len(body) > _LARGE:  # hashing it takes as long as many small calls
            await asyncio.to_thread(auth.add_auth, request)
        else:
            auth.add_auth(request)
        headers = dict(request.headers.items()) | _NOT_COMPRESSED
        return SignedCall(body=body, headers=headers, path=path, signed_at=time.monotonic())

    def forget_credentials(self) -> None:
        """AWS refused them: they are looked up anew before the next call."""
        self._credentials.forget()

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
        writing = Writing(latest=latest, on_begin=on_begin)
        current.set(writing)
        try:
            async with asyncio.timeout(within_s):
                return await self._post(self._session, call, writing)
        except asyncio.CancelledError:
            writing.abort()
            raise
        except SlotMissed:
            return Missed()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            writing.abort()
            if writing.refused is not None:
                raise writing.refused from None
            return _fault(error, written=writing.written)

    async def _post(
        self, session: aiohttp.ClientSession, call: SignedCall, writing: Writing
    ) -> Answer | Fault:
        # aiohttp repeats nothing that is posted, whatever becomes of the connection.
        async with session.post(
            self._endpoint + call.path,
            data=call.body if len(call.body) <= _ONE_WRITE else io.BytesIO(call.body),
            headers=call.headers,
            allow_redirects=False,
            proxy=self._proxy,
            proxy_headers=self._proxy_headers,
            trace_request_ctx=writing,
        ) as response:
            body = await _read(response)
        if body is None:
            return Fault(kind=FaultKind.BROKEN, written=True)
        return read_answer(
            response.status,
            response.headers,
            body,
            now=time.time(),
            signature_age_s=writing.begun_at - call.signed_at,
        )

    async def stop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """The body, decoded; None if it is not whole, or larger than any answer of SES."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > LARGEST_ANSWER:
            return None
    return plain_body(response.headers, bytes(body), most=LARGEST_ANSWER)


def _fault(error: Any, *, written: bool) -> Fault:
    """The detail names a cause that an operator can act on, never an address."""
    if written:
        kind = FaultKind.TIMEOUT if isinstance(error, TimeoutError) else FaultKind.BROKEN
        return Fault(kind=kind, written=True, detail=type(error).__name__)
    if isinstance(error, (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError)):
        status = getattr(error, "status", None)
        detail = f"it answered {status}" if status else "it cannot be reached"
        return Fault(kind=FaultKind.PROXY, written=False, detail=detail)
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(error, aiohttp.ClientSSLError) or isinstance(cause, ssl.SSLError):
        said = getattr(cause, "verify_message", None) or getattr(cause, "reason", None)
        return Fault(kind=FaultKind.TLS, written=False, detail=said or type(cause).__name__)
    kind = FaultKind.CONNECT_TIMEOUT if isinstance(error, TimeoutError) else FaultKind.UNREACHABLE
    said = getattr(cause, "strerror", None)
    return Fault(kind=kind, written=False, detail=said or type(cause).__name__)
