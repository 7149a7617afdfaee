"""Rules of `mailstreams doctor` on what SES says of the account and of the configuration set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from streams.domain.diagnosis import Finding, error, listed, ok, unseen, warning
from streams.domain.sending_account import SendingAccount, reason_to_stop

DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
THROTTLED: Final = frozenset(
    {"TooManyRequestsException", "Throttling", "ThrottlingException", "ThrottledException"}
)
# What the facts, the suppressions and the settling of unknown outcomes are made from.
NEEDED: Final = ("SEND", "REJECT", "BOUNCE", "COMPLAINT", "DELIVERY", "DELIVERY_DELAY")
_ALL: Final = (*NEEDED, "RENDERING_FAILURE")
_QUOTA_AT: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """SES refused the call with this code."""

    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """GetAccount; None for what it did not say."""

    sending: SendingAccount
    production: bool | None
    daily_quota: float | None
    sent_today: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationSet:
    """GetConfigurationSet."""

    sending_enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """An event destination; topic: the ARN if it is one of SNS."""

    name: str
    enabled: bool
    topic: str | None
    events: Sequence[str]


def judge_account(account: Account | Refusal) -> list[Finding]:
    if isinstance(account, Refusal):
        return [_refused("ses.account", "GetAccount", account)]
    findings = [ok("ses.reach", "SES answers"), _sending(account.sending)]
    if account.production is False:
        findings.append(warning("ses.production", "the account is in the sandbox"))
    elif account.production:
        findings.append(ok("ses.production", "the account has production access"))
    if account.daily_quota is not None and account.sent_today is not None:
        findings.append(_quota(account.daily_quota, account.sent_today))
    return findings


def _quota(quota: float, sent: float) -> Finding:
    """SES says -1 for an account without a quota."""
    if quota < 0:
        return ok("ses.quota", "the account has no daily quota")
    found = f"{sent:.0f} of {quota:.0f} recipients a day are used"
    if sent >= quota:
        return error("ses.quota", found)
    return warning("ses.quota", found) if sent >= _QUOTA_AT * quota else ok("ses.quota", found)


def _sending(account: SendingAccount) -> Finding:
    stop = reason_to_stop(account)
    status = account.enforcement_status or "unknown"
    if stop is not None:
        return error("ses.account", stop)
    if status not in ("HEALTHY", "unknown"):
        return warning("ses.account", f"sending is enabled, the enforcement status is {status}")
    return ok("ses.account", f"sending is enabled, the enforcement status is {status}")


def judge_configuration_set(name: str, found: ConfigurationSet | Refusal) -> Finding:
    id_ = "ses.configuration-set"
    if isinstance(found, Refusal):
        if found.code == "NotFoundException":
            return error(id_, f"there is no configuration set {name} in this account and region")
        return _refused(id_, "GetConfigurationSet", found)
    if not found.sending_enabled:
        return error(
            id_,
            f"sending is switched off for the configuration set {name}",
            "PutConfigurationSetSendingOptions switches it on",
        )
    return ok(id_, f"the configuration set {name} exists and may send")


def judge_destinations(
    found: Sequence[Destination] | Refusal, *, allowed: Sequence[str]
) -> Finding:
    id_ = "ses.event-destination"
    if isinstance(found, Refusal):
        if found.code == "NotFoundException":
            return error(id_, "without a configuration set no event comes back")
        return _refused(id_, "GetConfigurationSetEventDestinations", found)
    sns = [one for one in found if one.topic is not None]
    ours = [one for one in sns if one.topic in allowed]
    if not sns:
        return error(id_, "no event destination publishes to SNS: no event ever comes back")
    if not ours:
        return error(
            id_,
            f"events go to {listed(str(one.topic) for one in sns)}, which MAILSTREAMS_SNS_TOPICS does not name: they are refused",
        )
    enabled = [one for one in ours if one.enabled]
    if not enabled:
        return error(id_, f"the event destination {ours[0].name} is switched off")
    events = {event for one in enabled for event in one.events}
    missing = [event for event in _ALL if event not in events]
    if missing:
        told = f"the event destination {enabled[0].name} leaves out {listed(missing, 7)}"
        return error(id_, told) if set(missing) & set(NEEDED) else warning(id_, told)
    return ok(id_, f"{enabled[0].name} publishes every event to {enabled[0].topic}")


def _refused(id_: str, call: str, refusal: Refusal) -> Finding:
    if refusal.code in DENIED:
        return warning(
            id_,
            f"the credentials may not call {call}, so it is not known",
            f"allow ses:{call} to them",
        )
    if refusal.code in THROTTLED:
        return unseen(id_, f"SES throttles {call} at the moment ({refusal.code})")
    return error(
        id_,
        f"SES refuses {call} with {refusal.code}",
        "see that the credentials are those of this account, and the clock of this machine is right",
    )
