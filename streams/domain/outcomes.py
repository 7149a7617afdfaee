"""From what a call of SES ended with to the outcome that is written, and what has to stop because of it."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from streams.domain.attempts import Email, Outcome, OutcomeKind, Pause, PauseScope, Undecodable
from streams.domain.ses_answers import Answer, Fault, without_addresses
from streams.domain.ses_errors import Meaning

LONGEST_WAKE_S: Final = 60.0
# What SES refuses to an account or a sender again and again is tried at least so often.
LONGEST_PAUSE_S: Final = 600.0
# Nothing was written: SES never saw the call.
UNREACHED: Final = frozenset({"tls", "unreachable"})
ACCOUNT: Final = "*"
# AWS knows the credentials of this moment and refuses them: they may have been replaced.
STALE_CREDENTIALS: Final = frozenset({"credentials-expired", "credentials-refused"})


def outcome_of_call(
    email: Email,
    seen: Answer | Fault,
    meant: Meaning,
    *,
    started: datetime,
    finished: datetime,
    delay_s: float,
) -> Outcome:
    """The outcome of a call; delay_s is used where the row is to be tried again."""
    return Outcome(
        id=email.id,
        attempt_id=email.attempt_id,
        number=email.attempt,
        kind=meant.row.kind,
        started=started,
        finished=finished,
        delay_s=delay_s,
        provider_message_id=seen.message_id if isinstance(seen, Answer) else None,
        error_class=None if meant.row.kind is OutcomeKind.ACCEPTED else meant.row.name,
        code=meant.code,
        http_status=meant.http_status,
        reason=None if meant.row.kind is OutcomeKind.ACCEPTED else meant.reason,
        left_out=email.left_out,
    )


def uncharged(meant: Meaning) -> Meaning:
    """The same, to be tried again as after a throttled answer, at no cost to the message."""
    return replace(meant, row=replace(meant.row, kind=OutcomeKind.THROTTLED))


def delay_of(meant: Meaning, *, waits_s: float) -> float:
    """Until the row is to be looked at again, where it stays pending; waits_s: what its backing off says."""
    if meant.row.kind in (OutcomeKind.RETRY, OutcomeKind.THROTTLED):
        return waits_s
    return min(meant.row.pause_s, LONGEST_WAKE_S)


def pause_of(email: Email, meant: Meaning) -> Pause | None:
    """What has to stop for all senders."""
    row = meant.row
    match row.pause:
        case None:
            return None
        case PauseScope.SENDER:
            value = email.sender.lower()
        case PauseScope.TENANT:
            value = email.tenant
        case _:
            value = ACCOUNT
    return Pause(scope=row.pause, value=value, reason=meant.reason, seconds=row.pause_s)


def released(email: Email, *, finished: datetime, delay_s: float = 0.0) -> Outcome:
    """The claim is given back: SES was not called."""
    return Outcome(
        id=email.id,
        attempt_id=email.attempt_id,
        number=email.attempt,
        kind=OutcomeKind.RELEASED,
        finished=finished,
        delay_s=delay_s,
    )


def undecodable(row: Undecodable, *, finished: datetime) -> Outcome:
    """The row ends, since nobody will ever read it: SES was not called."""
    return Outcome(
        id=row.id,
        attempt_id=row.attempt_id,
        number=row.attempt,
        kind=OutcomeKind.UNSENDABLE,
        finished=finished,
        error_class="content",
        reason=row.reason,
    )


def unsendable(email: Email, *, error_class: str, reason: str, finished: datetime) -> Outcome:
    """We refuse the message ourselves; SES was not called. The reason says what to change."""
    return Outcome(
        id=email.id,
        attempt_id=email.attempt_id,
        number=email.attempt,
        kind=OutcomeKind.UNSENDABLE,
        finished=finished,
        error_class=error_class,
        reason=without_addresses(reason, email.addresses),
    )
