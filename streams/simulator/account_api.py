"""SES v2 calls on the account and its suppression list."""

import math
import time
from datetime import UTC, datetime
from typing import Any

from streams.simulator.account import Account
from streams.simulator.addresses import mailbox_address
from streams.simulator.members import Members, boolean, required_text, texts
from streams.simulator.refusals import RefusedError, bad_request, not_found
from streams.simulator.ses_api import Operation, SesCall, page
from streams.simulator.suppression_list import Reason, Suppressed, SuppressionList


class AccountApi:
    """What concerns the whole account in its region."""

    def __init__(self, *, account: Account, suppression: SuppressionList) -> None:
        self._account = account
        self._suppression = suppression

    def operations(self) -> list[Operation]:
        addresses = "/v2/email/suppression/addresses"
        return [
            Operation("GET", "/v2/email/account", self._get_account),
            Operation("PUT", "/v2/email/account/sending", self._put_sending),
            Operation("PUT", "/v2/email/account/suppression", self._put_reasons),
            Operation("PUT", addresses, self._put_suppressed),
            Operation("GET", addresses, self._list_suppressed),
            Operation("GET", addresses + "/{address}", self._get_suppressed),
            Operation("DELETE", addresses + "/{address}", self._delete_suppressed),
        ]

    def _get_account(self, _call: SesCall) -> Members:
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

    def _put_sending(self, call: SesCall) -> Members:
        self._account.sending_enabled = boolean(call.members, "SendingEnabled") or False
        return {}

    def _put_reasons(self, call: SesCall) -> Members:
        reasons = texts(call.members, "SuppressedReasons")
        self._account.suppressed_reasons = tuple(_reason(reason) for reason in reasons)
        return {}

    def _put_suppressed(self, call: SesCall) -> Members:
        self._suppression.put(
            Suppressed(
                address=mailbox_address(required_text(call.members, "EmailAddress")),
                reason=_reason(required_text(call.members, "Reason")),
                updated_at=time.time(),
            )
        )
        return {}

    def _get_suppressed(self, call: SesCall) -> Members:
        entry = self._suppression.get(call.path("address"))
        if entry is None:
            raise _not_listed(call.path("address"))
        summary = _summary(entry)
        if entry.message_id is not None:
            summary["Attributes"] = {
                "MessageId": entry.message_id,
                "FeedbackId": entry.feedback_id,
            }
        return {"SuppressedDestination": summary}

    def _delete_suppressed(self, call: SesCall) -> Members:
        if not self._suppression.remove(call.path("address")):
            raise _not_listed(call.path("address"))
        return {}

    def _list_suppressed(self, call: SesCall) -> Members:
        query = call.request.query
        entries = self._suppression.matching(
            reasons=tuple(_reason(reason) for reason in query.getall("Reason", [])),
            start=_epoch(query.get("StartDate"), -math.inf),
            end=_epoch(query.get("EndDate"), math.inf),
        )
        return page(call, "SuppressedDestinationSummaries", [_summary(e) for e in entries])


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


def _epoch(text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise bad_request("StartDate and EndDate must be ISO 8601 times.") from error
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
