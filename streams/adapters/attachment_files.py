"""Fetches attachments from https servers, S3 and a directory: only from allowed places, bounded, checked."""

import asyncio
import hashlib
import os
import ssl
import stat
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import aioboto3
import aiohttp
from aiobotocore.config import AioConfig
from botocore.exceptions import BotoCoreError, ClientError

from streams.adapters.aws import CONNECT_TIMEOUT_S, region_of, trust
from streams.domain.attachments import Attachment, Location, Places, Scheme
from streams.domain.errors import BadMessage, Unavailable

# Of the latest ones: a row whose slot was missed, and many rows with one file, do not fetch it again.
KEPT_BYTES: Final = 64 * 1024 * 1024
AT_A_TIME: Final = 8
_TEMPORARY: Final = frozenset({401, 403, 408, 425, 429})


class AttachmentFiles:
    """No redirect is followed, and nothing is asked of a server that no place names."""

    def __init__(self, allowed: Sequence[str], *, largest: int) -> None:
        self._places = Places(allowed)
        self._largest = largest
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._at_a_time = asyncio.Semaphore(AT_A_TIME)
        self._session: aiohttp.ClientSession | None = None
        self._open = AsyncExitStack()
        self._s3: Any = None

    async def fetch(self, attachment: Attachment, *, within_s: float) -> bytes:
        """The very bytes that the row names. BadMessage: they will never be had; Unavailable: not now."""
        location, place = self._places.find(attachment.url)
        if attachment.size > self._largest:
            raise BadMessage(
                f"attachment {_quoted(attachment)} has {attachment.size} bytes, at most {self._largest} are allowed"
            )
        key = (attachment.url, attachment.sha256)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        try:
            async with asyncio.timeout(within_s), self._at_a_time:
                data = await self._read(attachment, location, place)
        except TimeoutError as error:
            raise Unavailable(
                f"attachment {_quoted(attachment)} did not come within {within_s:.0f} s"
            ) from error
        await self._check(attachment, data)
        self._keep(key, data)
        return data

    async def _read(self, attachment: Attachment, location: Location, place: Location) -> bytes:
        match location.scheme:
            case Scheme.HTTPS:
                return await self._from_https(attachment)
            case Scheme.S3:
                return await self._from_s3(attachment, location)
            case Scheme.FILE:
                return await asyncio.to_thread(_from_file, attachment, location, place)

    async def _check(self, attachment: Attachment, data: bytes) -> None:
        if len(data) != attachment.size:
            raise BadMessage(
                f"attachment {_quoted(attachment)} has not the {attachment.size} bytes that its row says: it was replaced"
            )
        digest = await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
        if digest != attachment.sha256:
            raise BadMessage(
                f"attachment {_quoted(attachment)} has not the sha256 that its row says: it was replaced"
            )

    def _keep(self, key: tuple[str, str], data: bytes) -> None:
        self._kept[key] = data
        while sum(map(len, self._kept.values())) > KEPT_BYTES:
            self._kept.popitem(last=False)

    # Sources ----------------------------------------------------------------------------------------------------------

    async def _from_https(self, attachment: Attachment) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=trust(None)),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        try:
            async with self._session.get(
                attachment.url,
                allow_redirects=False,
                headers={"Accept-Encoding": "identity"},
            ) as response:
                if response.status != 200:
                    raise _refused(attachment, response.status)
                return await _bounded(response.content.iter_any(), attachment)
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise Unavailable(
                f"attachment {_quoted(attachment)} cannot be fetched ({type(error).__name__})"
            ) from error

    async def _from_s3(self, attachment: Attachment, location: Location) -> bytes:
        try:
            answer = await (await self._bucket_client()).get_object(
                Bucket=location.host, Key=location.path.removeprefix("/")
            )
            body = answer["Body"]
            async with body:
                return await _bounded(body.iter_chunks(65536), attachment)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "unknown"))
            if code in ("NoSuchKey", "NoSuchBucket", "InvalidObjectState"):
                raise BadMessage(f"attachment {_quoted(attachment)} is gone ({code})") from error
            raise Unavailable(
                f"attachment {_quoted(attachment)} is refused by S3 with {code}: correct the policy"
            ) from error
        except (BotoCoreError, aiohttp.ClientError, OSError) as error:
            raise Unavailable(
                f"attachment {_quoted(attachment)} cannot be fetched ({type(error).__name__})"
            ) from error

    async def _bucket_client(self) -> Any:
        if self._s3 is None:
            config = AioConfig(connect_timeout=CONNECT_TIMEOUT_S, retries={"total_max_attempts": 1})
            session = aioboto3.Session()
            client = session.client("s3", region_name=region_of(session), config=config)
            self._s3 = await self._open.enter_async_context(client)
        return self._s3

    async def stop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        self._s3 = None
        await self._open.aclose()
        self._open = AsyncExitStack()


def _quoted(attachment: Attachment) -> str:
    return f"of {attachment.type}"


def _refused(attachment: Attachment, status: int) -> BadMessage | Unavailable:
    if status >= 500 or status in _TEMPORARY:
        return Unavailable(f"attachment {_quoted(attachment)} is answered with {status}")
    gone = "is gone" if status in (404, 410) else "is answered with something else than the file"
    return BadMessage(f"attachment {_quoted(attachment)} {gone} ({status})")


async def _bounded(chunks: Any, attachment: Attachment) -> bytes:
    """No more than a byte beyond what the row says, which is enough to see that it differs."""
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > attachment.size:
            break
    return bytes(data[: attachment.size + 1])


def _from_file(attachment: Attachment, location: Location, place: Location) -> bytes:
    try:
        root = Path(place.path).resolve(strict=True)
        path = Path(location.path).resolve(strict=True)
        if not path.is_relative_to(root):
            raise BadMessage(
                f"attachment {_quoted(attachment)} is a link out of its directory: copy the file into it"
            )
        # Resolved, so that no link is followed any more; a pipe is not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadMessage(f"attachment {_quoted(attachment)} is not a file")
            return file.read(attachment.size + 1)
    except FileNotFoundError as error:
        raise BadMessage(f"attachment {_quoted(attachment)} is gone") from error
    except OSError as error:
        raise Unavailable(
            f"attachment {_quoted(attachment)} cannot be read ({error.strerror})"
        ) from error
