"""What the doctor asks SES: three calls that change nothing, one at a time, without retries of the SDK."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from botocore.exceptions import ClientError

from streams.adapters.aws import NO_ANSWER, UNREADABLE_ANSWER, SesClient
from streams.adapters.aws_credentials import AwsCredentials
from streams.domain.diagnosis_ses import (
    THROTTLED,
    Account,
    ConfigurationSet,
    Destination,
    Refusal,
)
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.sending_account import SendingAccount

_READ_TIMEOUT_S: Final = 5.0
# SES allows the account about one such call a second, those of the scheduler among them.
PACE_S: Final = 1.1
_TRIES: Final = 3


class DoctorSes:
    """Credentials, region and endpoint are botocore's own variables. Methods raise Unavailable without an answer."""

    def __init__(self) -> None:
        self._client = SesClient(read_timeout_s=_READ_TIMEOUT_S)
        self._next_at = 0.0

    def region(self) -> str:
        """Misconfigured without one."""
        return self._client.region

    async def credentials(self) -> None:
        """Misconfigured if botocore finds none."""
        found = AwsCredentials()
        if await found.get() is None:
            raise Misconfigured(f"AWS credentials: {found.trouble}")

    async def account(self) -> Account | Refusal:
        answer = await self._call("get_account")
        if isinstance(answer, Refusal):
            return answer
        quota = answer.get("SendQuota") or {}
        return Account(
            sending=SendingAccount(
                max_send_rate=quota.get("MaxSendRate"),
                sending_enabled=answer.get("SendingEnabled"),
                enforcement_status=answer.get("EnforcementStatus"),
            ),
            production=answer.get("ProductionAccessEnabled"),
            daily_quota=quota.get("Max24HourSend"),
            sent_today=quota.get("SentLast24Hours"),
        )

    async def configuration_set(self, name: str) -> ConfigurationSet | Refusal:
        answer = await self._call("get_configuration_set", ConfigurationSetName=name)
        if isinstance(answer, Refusal):
            return answer
        options = answer.get("SendingOptions") or {}
        return ConfigurationSet(sending_enabled=options.get("SendingEnabled") is not False)

    async def destinations(self, name: str) -> Sequence[Destination] | Refusal:
        answer = await self._call(
            "get_configuration_set_event_destinations", ConfigurationSetName=name
        )
        if isinstance(answer, Refusal):
            return answer
        return [
            Destination(
                name=one.get("Name", ""),
                enabled=bool(one.get("Enabled")),
                topic=(one.get("SnsDestination") or {}).get("TopicArn"),
                events=one.get("MatchingEventTypes") or (),
            )
            for one in answer.get("EventDestinations") or ()
        ]

    async def stop(self) -> None:
        await self._client.stop()

    async def _call(self, operation: str, **arguments: Any) -> dict[str, Any] | Refusal:
        """At the pace that SES allows; again where it was somebody else's turn."""
        for _ in range(_TRIES):
            await asyncio.sleep(self._next_at - time.monotonic())
            answer = await self._answer(operation, **arguments)
            self._next_at = time.monotonic() + PACE_S
            if not (isinstance(answer, Refusal) and answer.code in THROTTLED):
                break
        return answer

    async def _answer(self, operation: str, **arguments: Any) -> dict[str, Any] | Refusal:
        try:
            answer: dict[str, Any] = await getattr(await self._client.connected(), operation)(
                **arguments
            )
        except ClientError as error:
            return Refusal(code=str(error.response.get("Error", {}).get("Code", "unknown")))
        except (*UNREADABLE_ANSWER, *NO_ANSWER) as error:
            raise Unavailable(f"SES: {operation} fails with {type(error).__name__}") from error
        return answer
