"""The account-level suppression list of SES through aioboto3. One call each time, without retries of the SDK: the duty has the pace."""

from datetime import UTC, datetime
from typing import Any, Final

from botocore.exceptions import ClientError, ParamValidationError

from streams.adapters.aws import NO_ANSWER, UNREADABLE_ANSWER, SesClient
from streams.domain.errors import Unavailable
from streams.domain.provider_list import Call, ListedAddress, ListPage, Outcome

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
        self._client = SesClient(read_timeout_s=READ_TIMEOUT_S)

    @property
    def region(self) -> str:
        """The region whose list it is; Misconfigured without one."""
        return self._client.region

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
        await self._client.stop()

    async def _call(self, call: Call, operation: str, **arguments: Any) -> dict[str, Any] | Outcome:
        try:
            answer: dict[str, Any] = await getattr(await self._client.connected(), operation)(
                **arguments
            )
        except ClientError as error:
            await self._client.refused(_code(error))
            outcome = _outcome(error)
            if outcome is None:
                raise Unavailable(
                    f"SES: {call} of the suppression list fails with {_code(error)}"
                ) from None
            return outcome
        except ParamValidationError:
            return Outcome.REFUSED
        except (*UNREADABLE_ANSWER, *NO_ANSWER) as error:
            # Neither the text nor the cause: an address may stand in the URL that they quote.
            raise Unavailable(
                f"SES: {call} of the suppression list fails with {type(error).__name__}"
            ) from None
        return answer


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
            if entry is not None
        ],
        next_token=answer.get("NextToken") or None,
    )


def _time(value: object) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    return value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
