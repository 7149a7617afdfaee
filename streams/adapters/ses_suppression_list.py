"""The account-level suppression list of SES through aioboto3. One call each time, without retries of the SDK: the duty has the pace."""

import os
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, Final

import aioboto3
from aiobotocore.config import AioConfig
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.provider_list import Call, ListedAddress, ListPage, Outcome

CONNECT_TIMEOUT_S: Final = 3.0
READ_TIMEOUT_S: Final = 15.0
PAGE: Final = 1000
_BY_CODE: Final = {
    "NotFoundException": Outcome.NOT_LISTED,
    "TooManyRequestsException": Outcome.THROTTLED,
    "Throttling": Outcome.THROTTLED,
    "ThrottlingException": Outcome.THROTTLED,
    "ThrottledException": Outcome.THROTTLED,
    "RequestThrottled": Outcome.THROTTLED,
    "LimitExceededException": Outcome.THROTTLED,
    "InvalidNextTokenException": Outcome.TOKEN_REFUSED,
    "ExpiredNextTokenException": Outcome.TOKEN_REFUSED,
}


class SesSuppressionList:
    """Credentials, region and endpoint are botocore's own variables."""

    def __init__(self) -> None:
        self._session = aioboto3.Session()
        self._open = AsyncExitStack()
        self._client: Any = None

    @property
    def region(self) -> str:
        """The region whose list it is; Misconfigured without one."""
        region: str | None = self._session.region_name or os.environ.get("AWS_REGION")
        if not region:
            raise Misconfigured(
                "no AWS region is set: set AWS_DEFAULT_REGION or AWS_REGION to that of your SES identities"
            )
        return region

    async def page(self, token: str | None) -> ListPage | Outcome:
        """The entries behind the token, from the beginning without one, or why there are none. Unavailable: no answer."""
        more = {} if token is None else {"NextToken": token}
        answer = await self._call(Call.LIST, "list_suppressed_destinations", PageSize=PAGE, **more)
        if not isinstance(answer, Outcome):
            return _page(answer)
        # What exactly an old token is refused with is not documented.
        refused = token is not None and answer is Outcome.REFUSED
        return Outcome.TOKEN_REFUSED if refused else answer

    async def unlist(self, address: str) -> Outcome:
        """Deletes the address. Unavailable: no answer, it may be deleted or not."""
        answer = await self._call(
            Call.UNLIST, "delete_suppressed_destination", EmailAddress=address
        )
        return answer if isinstance(answer, Outcome) else Outcome.DONE

    async def stop(self) -> None:
        self._client = None
        await self._open.aclose()
        self._open = AsyncExitStack()

    async def _call(self, call: Call, operation: str, **arguments: Any) -> dict[str, Any] | Outcome:
        try:
            answer: dict[str, Any] = await getattr(await self._connected(), operation)(**arguments)
        except ClientError as error:
            outcome = _outcome(error)
            if outcome is None:
                raise Unavailable(
                    f"SES: {call} of the suppression list fails with {_code(error)}"
                ) from None
            return outcome
        except ParamValidationError:
            return Outcome.REFUSED
        except (BotoCoreError, OSError, TimeoutError, ValueError) as error:
            # Neither the text nor the cause: an address may stand in the URL that they quote.
            raise Unavailable(
                f"SES: {call} of the suppression list fails with {type(error).__name__}"
            ) from None
        return answer

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


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "unknown"))


def _outcome(error: ClientError) -> Outcome | None:
    """None: SES itself is in trouble."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    known = _BY_CODE.get(_code(error))
    if known is not None:
        return known
    if status == 429:
        return Outcome.THROTTLED
    if status in (401, 403):
        return Outcome.DENIED
    return Outcome.REFUSED if 400 <= status < 500 else None


def _page(answer: dict[str, Any]) -> ListPage:
    return ListPage(
        entries=[
            ListedAddress(
                address=str(entry.get("EmailAddress") or ""),
                updated=_time(entry.get("LastUpdateTime")),
            )
            for entry in answer.get("SuppressedDestinationSummaries") or ()
        ],
        next_token=answer.get("NextToken") or None,
    )


def _time(value: object) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    return value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
