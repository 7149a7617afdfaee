"""A queue of Amazon SQS through aioboto3: long polling, and deletion of what was handled."""

import asyncio
import os
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import urlsplit

import aioboto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from streams.domain.errors import Misconfigured, Unavailable
from streams.ports.events import QueuedMessage

BATCH: Final = 10
CONNECT_TIMEOUT_S: Final = 3.0
# Beyond the longest wait of a receive call.
READ_TIMEOUT_S: Final = 30.0
_REGION: Final = re.compile(r"sqs(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|api\.aws)")


def host_and_name(url: str) -> tuple[str, str]:
    """Of a queue's URL; Misconfigured if it is none."""
    try:
        parts = urlsplit(url)
        host, name = parts.hostname, parts.path.rpartition("/")[2]
    except ValueError:
        parts, host, name = urlsplit(""), None, ""
    if parts.scheme not in ("http", "https") or not host or not name:
        raise Misconfigured(
            f"{url!r} is not the URL of an SQS queue, such as "
            "https://sqs.eu-central-1.amazonaws.com/111122223333/ses-events"
        )
    return host, name


class SqsQueue:
    """One queue by its URL. The region is that of the URL, else botocore's; the endpoint follows AWS_ENDPOINT_URL_SQS."""

    def __init__(self, url: str) -> None:
        self._host, self.name = host_and_name(url)
        self._url = url
        self._session = aioboto3.Session()
        self._open = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._client: Any = None

    @property
    def region(self) -> str:
        found = _REGION.fullmatch(self._host)
        region: str | None = (
            found[1] if found else self._session.region_name or os.environ.get("AWS_REGION")
        )
        if not region:
            raise Misconfigured(
                f"the URL of queue {self.name} names no AWS region: set AWS_REGION to that of the queue"
            )
        return region

    async def receive(self, *, wait_s: int) -> Sequence[QueuedMessage]:
        """Up to ten messages; none if none came for so long. Unavailable when SQS does not answer or refuses us."""
        answer = await self._call(
            "receive_message", MaxNumberOfMessages=BATCH, WaitTimeSeconds=wait_s
        )
        return [
            QueuedMessage(
                body=message["Body"].encode(errors="surrogatepass"),
                receipt=message["ReceiptHandle"],
            )
            for message in answer.get("Messages", ())
        ]

    async def delete(self, receipts: Sequence[str]) -> None:
        """Unavailable when one was not deleted: it comes again."""
        entries = [{"Id": str(n), "ReceiptHandle": receipt} for n, receipt in enumerate(receipts)]
        answer = await self._call("delete_message_batch", Entries=entries)
        failed = answer.get("Failed", ())
        if failed:
            raise Unavailable(
                f"SQS did not delete {len(failed)} messages: {failed[0].get('Code', 'unknown error')}"
            )

    async def stop(self) -> None:
        self._client = None
        await self._open.aclose()
        self._open = AsyncExitStack()

    async def _call(self, name: str, **arguments: object) -> dict[str, Any]:
        try:
            client = await self._connected()
            answer: dict[str, Any] = await getattr(client, name)(QueueUrl=self._url, **arguments)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "unknown error")
            raise Unavailable(f"SQS refuses {name} with {code}") from error
        except (BotoCoreError, ResponseParserError, OSError, ValueError) as error:
            raise Unavailable(
                f"SQS: {name}{_at(error)} fails with {type(error).__name__}"
            ) from error
        return answer

    async def _connected(self) -> Any:
        async with self._opening:
            if self._client is None:
                config = Config(
                    connect_timeout=CONNECT_TIMEOUT_S,
                    read_timeout=READ_TIMEOUT_S,
                    retries={"mode": "standard", "total_max_attempts": 1},
                )
                self._client = await self._open.enter_async_context(
                    self._session.client("sqs", region_name=self.region, config=config)
                )
        return self._client


def _at(error: Exception) -> str:
    """Where an error of the connection says that it was tried: a variable may lead elsewhere than the queue's URL."""
    tried = error.kwargs.get("endpoint_url") if isinstance(error, BotoCoreError) else None
    if not isinstance(tried, str):
        return ""
    parts = urlsplit(tried)
    return f" at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"
