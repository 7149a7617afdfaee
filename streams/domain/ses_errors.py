"""The one table that says what an answer of SES, or a fault on the way, means. The first row that matches decides.

Proven not accepted is only: no byte was written, or a complete 4xx answer (408 excepted) with an AWS error code.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from streams.domain.attempts import OutcomeKind, PauseScope
from streams.domain.ses_answers import Answer, Fault, FaultKind, without_addresses
from streams.domain.ses_patterns import AnswerPattern, FaultPattern, Row, matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """A row of the table together with what SES said, addresses taken out."""

    row: Row
    code: str | None
    http_status: int | None
    reason: str


def meaning(seen: Answer | Fault, *, sender: str, addresses: Iterable[str]) -> Meaning:
    """What an answer or fault means for a message of this sender to these addresses."""
    row = next(row for row in TABLE if matches(row.when, seen, sender))
    if isinstance(seen, Fault):
        return Meaning(row=row, code=None, http_status=None, reason=row.reason)
    reason = row.reason
    if seen.status >= 300:
        said = without_addresses(seen.message, (sender, *addresses)) if seen.message else ""
        quoted = ": ".join(part for part in (seen.code, said) if part)
        reason = f"{reason} (SES said {seen.status} {quoted})"
    return Meaning(row=row, code=seen.code, http_status=seen.status, reason=reason)


def _codes(*codes: str) -> frozenset[str]:
    return frozenset(codes) | frozenset(f"{code}Exception" for code in codes)


def _text(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_CODED: Final = range(400, 500)
_CONFIGURATION_SET: Final = _text(r"configuration[ -]?set")
_THROTTLES: Final = _codes(
    "TooManyRequests", "Throttling", "Throttled", "RequestLimitExceeded", "SlowDown"
)

TABLE: Final = (
    # Faults.
    Row(
        name="no-credentials",
        when=FaultPattern(written=False, kinds=frozenset({FaultKind.NO_CREDENTIALS})),
        kind=OutcomeKind.ACCOUNT_STOP,
        reason="no AWS credentials were found: set them the way botocore reads them, for example by an instance role",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="tls",
        when=FaultPattern(written=False, kinds=frozenset({FaultKind.TLS})),
        kind=OutcomeKind.RETRY,
        reason="the TLS connection to SES could not be made: check the endpoint, its certificate and what stands between",
    ),
    Row(
        name="unreachable",
        when=FaultPattern(written=False),
        kind=OutcomeKind.RETRY,
        reason="SES could not be reached, nothing was sent: check network, name service and endpoint",
    ),
    Row(
        name="no-answer",
        when=FaultPattern(written=True, kinds=frozenset({FaultKind.TIMEOUT})),
        kind=OutcomeKind.UNKNOWN,
        reason="no answer of SES came in time, so it is not known whether it took the message",
    ),
    Row(
        name="connection-lost",
        when=FaultPattern(written=True),
        kind=OutcomeKind.UNKNOWN,
        reason="the connection ended before SES had answered, so it is not known whether it took the message",
    ),
    # Answers that prove nothing, or everything.
    Row(
        name="accepted",
        when=AnswerPattern(status=range(200, 300), has_id=True),
        kind=OutcomeKind.ACCEPTED,
        reason="SES took the message",
    ),
    Row(
        name="no-message-id",
        when=AnswerPattern(status=range(300)),
        kind=OutcomeKind.UNKNOWN,
        reason="the answer was a success without a message id: check what answers at the endpoint",
    ),
    Row(
        name="redirected",
        when=AnswerPattern(status=range(300, 400)),
        kind=OutcomeKind.UNKNOWN,
        reason="the answer was a redirect, which SES never gives: check what answers at the endpoint",
    ),
    Row(
        name="server-error",
        when=AnswerPattern(status=range(500, 1000)),
        kind=OutcomeKind.UNKNOWN,
        reason="SES failed, so it is not known whether it took the message",
    ),
    Row(
        name="request-timeout",
        when=AnswerPattern(status=range(408, 409)),
        kind=OutcomeKind.UNKNOWN,
        reason="SES gave up waiting for the request, so it is not known whether it took the message",
    ),
    Row(
        name="request-timeout",
        when=AnswerPattern(codes=_codes("RequestTimeout", "RequestAborted")),
        kind=OutcomeKind.UNKNOWN,
        reason="SES gave up waiting for the request, so it is not known whether it took the message",
    ),
    Row(
        name="not-from-aws",
        when=AnswerPattern(has_code=False),
        kind=OutcomeKind.UNKNOWN,
        reason="the answer has no AWS error code, so a proxy may have given it: check what stands between us and SES",
    ),
    # Complete answers of AWS with a code of 4xx: not accepted. First those about the account and its rate.
    Row(
        name="daily-quota",
        when=AnswerPattern(status=_CODED, text=_text(r"daily .{0,20}quota exceeded")),
        kind=OutcomeKind.ACCOUNT_STOP,
        reason="the daily quota of the account is used up: sending goes on as it frees; ask AWS for a higher one",
        pause=PauseScope.ACCOUNT,
        pause_s=300.0,
    ),
    Row(
        name="daily-quota",
        when=AnswerPattern(status=_CODED, codes=_codes("LimitExceeded")),
        kind=OutcomeKind.ACCOUNT_STOP,
        reason="a limit of the account is used up: sending goes on as it frees; ask AWS for a higher one",
        pause=PauseScope.ACCOUNT,
        pause_s=300.0,
    ),
    Row(
        name="rate-exceeded",
        when=AnswerPattern(status=_CODED, codes=_THROTTLES),
        kind=OutcomeKind.THROTTLED,
        reason="the sending rate of the account was exceeded: we slow down; see who else sends with this account",
    ),
    Row(
        name="rate-exceeded",
        when=AnswerPattern(status=range(429, 430)),
        kind=OutcomeKind.THROTTLED,
        reason="SES refuses for a rate: we slow down; see who else sends with this account",
    ),
    Row(
        name="account-suspended",
        when=AnswerPattern(status=_CODED, codes=_codes("AccountSuspended")),
        kind=OutcomeKind.ACCOUNT_STOP,
        reason="AWS suspended sending of this account: talk to AWS",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="configuration-set-paused",
        when=AnswerPattern(
            status=_CODED,
            codes=_codes("SendingPaused", "ConfigurationSetSendingPaused"),
            text=_CONFIGURATION_SET,
        ),
        kind=OutcomeKind.MISCONFIGURED,
        reason="sending is paused for the configuration set: enable it again in SES",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="sending-paused",
        when=AnswerPattern(status=_CODED, codes=_codes("SendingPaused", "AccountSendingPaused")),
        kind=OutcomeKind.ACCOUNT_STOP,
        reason="sending of this account is paused: see the account's dashboard in SES",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="sending-paused",
        when=AnswerPattern(status=_CODED, text=_text(r"sending (is )?paused for this account")),
        kind=OutcomeKind.ACCOUNT_STOP,
        reason="sending of this account is paused: see the account's dashboard in SES",
        pause=PauseScope.ACCOUNT,
    ),
    # Our identity and configuration set.
    Row(
        name="sender-not-verified",
        when=AnswerPattern(status=_CODED, text=_text("not verified"), names_sender=True),
        kind=OutcomeKind.MISCONFIGURED,
        reason="the sender's address or domain is not verified in this region: verify it in SES",
        pause=PauseScope.SENDER,
    ),
    Row(
        name="mail-from-not-verified",
        when=AnswerPattern(status=_CODED, codes=_codes("MailFromDomainNotVerified")),
        kind=OutcomeKind.MISCONFIGURED,
        reason="the custom MAIL FROM domain of the sender is not verified: correct its MX record",
        pause=PauseScope.SENDER,
    ),
    Row(
        name="sandbox",
        when=AnswerPattern(
            status=_CODED, codes=_codes("MessageRejected"), text=_text("not verified")
        ),
        kind=OutcomeKind.ACCOUNT_STOP,
        reason="SES takes verified recipients only, so the account is in the sandbox: ask AWS for production access",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="configuration-set-missing",
        when=AnswerPattern(status=_CODED, codes=_codes("ConfigurationSetDoesNotExist")),
        kind=OutcomeKind.MISCONFIGURED,
        reason="the configuration set does not exist: make it in SES, or set MAILSTREAMS_CONFIGURATION_SET",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="configuration-set-missing",
        when=AnswerPattern(
            status=_CODED,
            codes=_codes("NotFound", "BadRequest"),
            text=_text(r"configuration[ -]?set.*(does not exist|not found)"),
        ),
        kind=OutcomeKind.MISCONFIGURED,
        reason="the configuration set does not exist: make it in SES, or set MAILSTREAMS_CONFIGURATION_SET",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="not-found",
        when=AnswerPattern(status=_CODED, codes=_codes("NotFound")),
        kind=OutcomeKind.MISCONFIGURED,
        reason="something that the call names does not exist in SES: make it there",
        pause=PauseScope.SENDER,
    ),
    # Credentials and permissions.
    Row(
        name="access-denied",
        when=AnswerPattern(
            status=_CODED,
            codes=_codes("AccessDenied", "NotAuthorized", "OptInRequired", "UnauthorizedOperation"),
        ),
        kind=OutcomeKind.ACCOUNT_STOP,
        reason="AWS denies ses:SendEmail: correct the policy of the credentials",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="credentials-expired",
        when=AnswerPattern(status=_CODED, codes=_codes("ExpiredToken")),
        kind=OutcomeKind.ACCOUNT_STOP,
        reason="the AWS credentials have expired: renew them; they are read anew before the next call",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="clock-skew",
        when=AnswerPattern(status=_CODED, codes=_codes("RequestExpired", "RequestTimeTooSkewed")),
        kind=OutcomeKind.ACCOUNT_STOP,
        reason="AWS finds the request too old or too new: set the clock of this machine",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="clock-skew",
        when=AnswerPattern(status=_CODED, text=_text(r"signature (expired|not yet current)")),
        kind=OutcomeKind.ACCOUNT_STOP,
        reason="AWS finds the signature too old or too new: set the clock of this machine",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="credentials-refused",
        when=AnswerPattern(
            status=_CODED,
            codes=_codes(
                "UnrecognizedClient",
                "InvalidClientTokenId",
                "InvalidAccessKeyId",
                "MissingAuthenticationToken",
                "IncompleteSignature",
                "SignatureDoesNotMatch",
                "InvalidSignature",
            ),
        ),
        kind=OutcomeKind.ACCOUNT_STOP,
        reason="AWS does not know the credentials: correct them; they are read anew before the next call",
        pause=PauseScope.ACCOUNT,
    ),
    # The message itself.
    Row(
        name="message-rejected",
        when=AnswerPattern(status=_CODED, codes=_codes("MessageRejected")),
        kind=OutcomeKind.PERMANENT,
        reason="SES rejects the message: correct its content",
    ),
    Row(
        name="bad-request",
        when=AnswerPattern(status=_CODED, codes=_codes("BadRequest")),
        kind=OutcomeKind.PERMANENT,
        reason="SES finds something in the message invalid: correct it",
    ),
    Row(
        name="too-large",
        when=AnswerPattern(
            status=_CODED, codes=_codes("RequestEntityTooLarge", "ContentLengthExceeded")
        ),
        kind=OutcomeKind.PERMANENT,
        reason="the message is too large for SES: shorten it",
    ),
    Row(
        name="invalid-request",
        when=AnswerPattern(
            status=_CODED,
            codes=_codes(
                "ValidationError",
                "Validation",
                "MalformedHttpRequest",
                "UnknownOperation",
                "InvalidAction",
                "InvalidParameterValue",
                "Serialization",
            ),
        ),
        kind=OutcomeKind.PERMANENT,
        reason="SES cannot read our request, which is a bug of mailstreams: report it with this text",
    ),
    Row(
        name="unknown-code",
        when=AnswerPattern(status=_CODED, has_code=True),
        kind=OutcomeKind.PERMANENT,
        reason="SES refuses with a code that mailstreams does not know: report it with this text",
    ),
)
