"""Pauses as a person makes and lifts them."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from streams.domain.attempts import PauseScope
from streams.domain.errors import Misconfigured
from streams.domain.mailboxes import bare_address
from streams.domain.topics import Lane

# Who makes pauses without being asked: the sender after a refusal of SES, the scheduler by the account's standing.
AUTOMATIC: Final = ("sender", "account poll")
# The account has one pause of each maker, this is the persons' one.
BY_HAND: Final = "by hand"
LONGEST: Final = timedelta(days=3650)
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TEMPLATE: Final = re.compile(r"([A-Za-z0-9_-]{1,64}/)?[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """What a pause stops."""

    scope: PauseScope
    value: str

    def __str__(self) -> str:
        return "the account" if self.scope is PauseScope.ACCOUNT else f"{self.scope} {self.value}"


def stopped(scope: PauseScope, text: str | None) -> Stopped:
    """What is meant by this text; Misconfigured if there can be nothing of that name."""
    if scope is PauseScope.ACCOUNT:
        return Stopped(scope=scope, value=BY_HAND)
    text = (text or "").strip()
    match scope:
        case PauseScope.LANE if text in tuple(Lane):
            value = text
        case PauseScope.LANE:
            raise Misconfigured(f"{text!r} is no lane: the lanes are {', '.join(Lane)}")
        case PauseScope.TENANT if _NAME.fullmatch(text):
            value = text
        case PauseScope.TENANT:
            raise Misconfigured(
                f"{text!r} is no tenant: it has 1 to 64 letters, digits, underscores and hyphens"
            )
        case PauseScope.TEMPLATE if _TEMPLATE.fullmatch(text):
            value = text
        case PauseScope.TEMPLATE:
            raise Misconfigured(f"{text!r} is no template: write its name, or TENANT/NAME")
        case PauseScope.SENDER:
            value = _sender(text)
    return Stopped(scope=scope, value=value)


def _sender(text: str) -> str:
    """An address as SES knows it, or a domain."""
    address = bare_address(text if "@" in text else f"x@{text}")
    domain = "" if address is None else address.rpartition("@")[2]
    if address is None or "." not in domain:
        raise Misconfigured(f"{text!r} is neither an address nor a domain of a sender")
    return address.lower() if "@" in text else domain


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """When a pause ends by itself: at a time, after so long by the database's clock, or, with neither, not."""

    until: datetime | None = None
    after: timedelta | None = None


def end_of(now: datetime, *, hours: float | None, until: datetime | None) -> End:
    """Misconfigured for what is no future."""
    if hours is not None and until is not None:
        raise Misconfigured("say --for or --until, one of the two")
    if hours is not None:
        if not 0 < hours <= LONGEST.total_seconds() / 3600:
            raise Misconfigured(f"--for {hours:g}: give more than 0 and at most 87600 hours")
        return End(after=timedelta(hours=hours))
    if until is not None and not now < until <= now + LONGEST:
        raise Misconfigured(
            f"--until {until:%Y-%m-%dT%H:%M:%SZ} is not within the ten years from now"
        )
    return End(until=until)
