"""GetAccount of SES through aioboto3. Its limit of about one call a second is the whole account's."""

import logging
import os
from contextlib import AsyncExitStack
from typing import Any, Final

import aioboto3
from aiobotocore.config import AioConfig
from botocore.exceptions import BotoCoreError, ClientError

from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.sending_account import SendingAccount

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 3.0
READ_TIMEOUT_S: Final = 10.0


class SesAccount:
    """Credentials, region and endpoint are botocore's own variables. One call a read, without retries."""

    def __init__(self) -> None:
        self._session = aioboto3.Session()
        self._open = AsyncExitStack()
        self._client: Any = None

    @property
    def region(self) -> str:
        """The region whose quota is read; Misconfigured without one."""
        # botocore itself reads AWS_DEFAULT_REGION and the profile only.
        region: str | None = self._session.region_name or os.environ.get("AWS_REGION")
        if not region:
            raise Misconfigured(
                "no AWS region is set: set AWS_DEFAULT_REGION or AWS_REGION to that of your SES identities"
            )
        return region

    async def read(self) -> SendingAccount:
        """Unavailable if SES does not answer or refuses us."""
        try:
            answer = await (await self._connected()).get_account()
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "unknown")
            raise Unavailable(f"SES: GetAccount is refused with {code}") from error
        except (BotoCoreError, OSError, TimeoutError, ValueError) as error:
            raise Unavailable(f"SES: GetAccount fails with {type(error).__name__}") from error
        return _account(answer)

    async def stop(self) -> None:
        self._client = None
        await self._open.aclose()
        self._open = AsyncExitStack()

    async def _connected(self) -> Any:
        if self._client is None:
            config = AioConfig(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"total_max_attempts": 1},
            )
            client = self._session.client("sesv2", region_name=self.region, config=config)
            self._client = await self._open.enter_async_context(client)
        return self._client


def _account(answer: dict[str, Any]) -> SendingAccount:
    quota = answer.get("SendQuota") or {}
    rate = quota.get("MaxSendRate")
    enabled = answer.get("SendingEnabled")
    status = answer.get("EnforcementStatus")
    return SendingAccount(
        max_send_rate=float(rate) if isinstance(rate, (int, float)) else None,
        sending_enabled=enabled if isinstance(enabled, bool) else None,
        enforcement_status=status if isinstance(status, str) else None,
    )
