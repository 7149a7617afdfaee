"""GetAccount of SES through aioboto3. Its limit of about one call a second is the whole account's."""

from typing import Any, Final

from botocore.exceptions import ClientError

from streams.adapters.aws import NO_ANSWER, UNREADABLE_ANSWER, SesClient
from streams.domain.errors import Unavailable
from streams.domain.sending_account import SendingAccount

READ_TIMEOUT_S: Final = 10.0


class SesAccount:
    """Credentials, region and endpoint are botocore's own variables. One call a read, without retries."""

    def __init__(self) -> None:
        self._client = SesClient(read_timeout_s=READ_TIMEOUT_S)

    @property
    def region(self) -> str:
        """The region whose quota is read; Misconfigured without one."""
        return self._client.region

    async def read(self) -> SendingAccount:
        """Unavailable if SES does not answer, refuses us, or answers what cannot be read."""
        try:
            answer = await (await self._client.connected()).get_account()
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "unknown"))
            await self._client.refused(code)
            raise Unavailable(f"SES: GetAccount is refused with {code}") from error
        except UNREADABLE_ANSWER as error:
            raise Unavailable(
                f"SES: the answer to GetAccount cannot be read ({type(error).__name__}): check what answers at the endpoint"
            ) from error
        except NO_ANSWER as error:
            raise Unavailable(f"SES: GetAccount fails with {type(error).__name__}") from error
        return _account(answer)

    async def stop(self) -> None:
        await self._client.stop()


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
