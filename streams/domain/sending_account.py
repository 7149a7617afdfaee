"""What SES says of the sending account, and what follows from it."""

from dataclasses import dataclass
from math import isfinite
from typing import Final

SHUTDOWN: Final = "SHUTDOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingAccount:
    """The answer of GetAccount, as far as it matters; None for what it did not say."""

    max_send_rate: float | None
    sending_enabled: bool | None
    enforcement_status: str | None


def usable_rate(account: SendingAccount, *, factor: float) -> float | None:
    """Recipients a second that may be used; None if the answer is nonsense, so that the rate that is known stays."""
    rate = account.max_send_rate
    if rate is None or not isfinite(rate) or rate <= 0:
        return None
    return rate * factor


def reason_to_stop(account: SendingAccount) -> str | None:
    """Why nothing may be sent, in a sentence that says who can change it; None if it may. Silence is no reason."""
    if account.enforcement_status == SHUTDOWN:
        return "Amazon has paused sending for this account: see its messages in the SES console"
    if account.sending_enabled is False:
        return "sending is switched off for this account: PutAccountSendingAttributes switches it on, unless Amazon has paused it"
    return None
