"""What every client of SES shares: its region, its life, its trust, its proxy, all found as botocore finds them."""

import base64
import os
import ssl
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import aioboto3
from aiobotocore.config import AioConfig
from botocore.exceptions import BotoCoreError
from botocore.httpsession import where
from botocore.parsers import ResponseParserError
from botocore.utils import get_environ_proxies

from streams.domain.errors import Misconfigured

SES: Final = "sesv2"
CONNECT_TIMEOUT_S: Final = 3.0
NO_REGION: Final = (
    "no AWS region is set: set AWS_DEFAULT_REGION or AWS_REGION to that of your SES identities"
)
# What a call of botocore ends with that got no answer.
NO_ANSWER: Final = (BotoCoreError, OSError, TimeoutError, ValueError)
# The same for an answer that botocore cannot read: for JSON of another shape than it expects it has no error of its own.
UNREADABLE_ANSWER: Final = (
    ResponseParserError,
    UnicodeDecodeError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
)
# What AWS refuses credentials with that may have been replaced since they were read.
REFUSED_CREDENTIALS: Final = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)


def region_of(session: aioboto3.Session) -> str | None:
    """botocore itself reads AWS_DEFAULT_REGION and the profile only."""
    region: str | None = session.region_name or os.environ.get("AWS_REGION")
    return region


class SesClient:
    """botocore's client of SES, opened when it is needed. One call each time: retries of the SDK are off."""

    def __init__(self, *, read_timeout_s: float) -> None:
        self._config = AioConfig(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=read_timeout_s,
            retries={"total_max_attempts": 1},
        )
        self._session = aioboto3.Session()
        self._open = AsyncExitStack()
        self._client: Any = None

    @property
    def region(self) -> str:
        """Misconfigured without one."""
        region = region_of(self._session)
        if not region:
            raise Misconfigured(NO_REGION)
        return region

    async def connected(self) -> Any:
        """The client with its methods."""
        if self._client is None:
            client = self._session.client(SES, region_name=self.region, config=self._config)
            self._client = await self._open.enter_async_context(client)
        return self._client

    async def refused(self, code: str) -> None:
        """AWS refused a call with this code; where that was for its credentials, the next call looks for new ones."""
        if code in REFUSED_CREDENTIALS:
            await self.stop()
            self._session = aioboto3.Session()

    async def stop(self) -> None:
        self._client = None
        await self._open.aclose()
        self._open = AsyncExitStack()


def trust(bundle: str | None) -> ssl.SSLContext:
    """What botocore trusts: AWS_CA_BUNDLE or ca_bundle of the profile, else its own bundle and the system's. Misconfigured."""
    try:
        if bundle:
            return ssl.create_default_context(cafile=bundle)
        context = ssl.create_default_context()
        context.load_verify_locations(cafile=where())
    except OSError as error:  # ssl.SSLError is one
        raise Misconfigured(
            f"the certificates in {bundle or where()} cannot be read ({error.strerror or error}): correct AWS_CA_BUNDLE"
        ) from error
    return context


def proxy_for(url: str) -> tuple[str | None, dict[str, str]]:
    """The proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name for the URL, without its password, and the headers for it."""
    proxy = get_environ_proxies(url).get(urlsplit(url).scheme)
    if not proxy:
        return None, {}
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if not parts.hostname:
        raise Misconfigured("HTTPS_PROXY or HTTP_PROXY is no URL: set it to http://host:port")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    plain = f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")
    if parts.username is None:
        return plain, {}
    secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return plain, {"Proxy-Authorization": "Basic " + base64.b64encode(secret).decode()}
