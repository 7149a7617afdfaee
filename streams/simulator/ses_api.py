"""The other SES v2 calls: the account and its suppression list."""

import base64
import binascii
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from streams.simulator import rest_answers
from streams.simulator.account import Account, CallLimit
from streams.simulator.addresses import mailbox_address
from streams.simulator.members import boolean, read_json, required_text, texts
from streams.simulator.refusals import RefusedError, bad_request, not_found, unknown_operation
from streams.simulator.requests import read_body, signed_request
from streams.simulator.sigv4 import Scope, SignatureVerifier
from streams.simulator.suppression_list import Reason, Suppressed, SuppressionList

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """An authenticated call."""

    request: web.Request
    body: bytes


class SesApi:
    """Handlers by operation; each is signed, limited and answered as AWS does it."""

    def __init__(
        self,
        *,
        account: Account,
        suppression: SuppressionList,
        verifier: SignatureVerifier,
        scope: Scope,
        limit: CallLimit,
    ) -> None:
        self._account = account
        self._suppression = suppression
        self._verifier = verifier
        self._scope = scope
        self._limit = limit

    def routes(self) -> list[web.AbstractRouteDef]:
        addresses = "/v2/email/suppression/addresses"
        return [
            web.get("/v2/email/account", self._handler(self._get_account)),
            web.put("/v2/email/account/sending", self._handler(self._put_sending)),
            web.put("/v2/email/account/suppression", self._handler(self._put_reasons)),
            web.put(addresses, self._handler(self._put_suppressed)),
            web.get(addresses, self._handler(self._list_suppressed)),
            web.get(addresses + "/{address}", self._handler(self._get_suppressed)),
            web.delete(addresses + "/{address}", self._handler(self._delete_suppressed)),
            web.route("*", "/v2/{tail:.*}", self._handler(self._unknown)),
        ]

    def _handler(self, perform: Callable[[_Call], dict[str, Any]]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                body = await read_body(request)
                self._verifier.verify(signed_request(request, body), self._scope, time.time())
                self._limit.admit(time.monotonic())
                return rest_answers.success(perform(_Call(request=request, body=body)))
            except RefusedError as error:
                return rest_answers.refusal(error)

        return handle

    def _get_account(self, _call: _Call) -> dict[str, Any]:
        account = self._account
        return {
            "DedicatedIpAutoWarmupEnabled": True,
            "EnforcementStatus": account.enforcement_status,
            "ProductionAccessEnabled": account.production_access,
            "SendQuota": {
                "Max24HourSend": account.daily_quota,
                "MaxSendRate": account.rate,
                "SentLast24Hours": account.sent_last_24_hours(time.monotonic()),
            },
            "SendingEnabled": account.sending_enabled,
            "SuppressionAttributes": {"SuppressedReasons": list(account.suppressed_reasons)},
        }

    def _put_sending(self, call: _Call) -> dict[str, Any]:
        self._account.sending_enabled = boolean(read_json(call.body), "SendingEnabled") or False
        return {}

    def _put_reasons(self, call: _Call) -> dict[str, Any]:
        reasons = texts(read_json(call.body), "SuppressedReasons")
        self._account.suppressed_reasons = tuple(_reason(reason) for reason in reasons)
        return {}

    def _put_suppressed(self, call: _Call) -> dict[str, Any]:
        members = read_json(call.body)
        self._suppression.put(
            Suppressed(
                address=mailbox_address(required_text(members, "EmailAddress")),
                reason=_reason(required_text(members, "Reason")),
                updated_at=time.time(),
            )
        )
        return {}

    def _get_suppressed(self, call: _Call) -> dict[str, Any]:
        entry = self._suppression.get(call.request.match_info["address"])
        if entry is None:
            raise _not_listed(call.request.match_info["address"])
        summary = _summary(entry)
        if entry.message_id is not None:
            summary["Attributes"] = {
                "MessageId": entry.message_id,
                "FeedbackId": entry.feedback_id,
            }
        return {"SuppressedDestination": summary}

    def _delete_suppressed(self, call: _Call) -> dict[str, Any]:
        if not self._suppression.remove(call.request.match_info["address"]):
            raise _not_listed(call.request.match_info["address"])
        return {}

    def _list_suppressed(self, call: _Call) -> dict[str, Any]:
        query = call.request.query
        first, size = _offset(query.get("NextToken")), _page_size(query.get("PageSize"))
        entries = list(
            self._suppression.matching(
                reasons=tuple(_reason(reason) for reason in query.getall("Reason", [])),
                start=_epoch(query.get("StartDate"), -math.inf),
                end=_epoch(query.get("EndDate"), math.inf),
            )
        )
        page: dict[str, Any] = {
            "SuppressedDestinationSummaries": [
                _summary(entry) for entry in entries[first : first + size]
            ]
        }
        if first + size < len(entries):
            page["NextToken"] = base64.urlsafe_b64encode(str(first + size).encode()).decode()
        return page

    def _unknown(self, call: _Call) -> dict[str, Any]:
        raise unknown_operation(f"{call.request.method} {call.request.path}")


def _reason(text: str) -> Reason:
    try:
        return Reason(text)
    except ValueError as error:
        raise bad_request("Reason must be BOUNCE or COMPLAINT.") from error


def _summary(entry: Suppressed) -> dict[str, Any]:
    return {
        "EmailAddress": entry.address,
        "Reason": entry.reason,
        "LastUpdateTime": round(entry.updated_at, 3),
    }


def _not_listed(address: str) -> RefusedError:
    return not_found(f"Email address {address} does not exist on your suppression list.")


def _page_size(text: str | None) -> int:
    if text is None:
        return MAX_PAGE
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PAGE:
        raise bad_request(f"PageSize must be from 1 to {MAX_PAGE}.")
    return int(text)


def _offset(token: str | None) -> int:
    if token is None:
        return 0
    try:
        return max(0, int(base64.urlsafe_b64decode(token.encode()).decode()))
    except (binascii.Error, ValueError) as error:
        raise RefusedError(
            code="InvalidNextTokenException", status=400, message="NextToken is not valid."
        ) from error


def _epoch(text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise bad_request("StartDate and EndDate must be ISO 8601 times.") from error
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
