"""What complete answers of AWS with a code of 4xx mean: SES did not take the message. The first row that matches decides."""

import re
from typing import Final

from streams.domain.attempts import OutcomeKind, PauseScope
from streams.domain.ses_patterns import AnswerPattern, Row, Source


def codes(*names: str) -> frozenset[str]:
    """Each with and without the ending that rest-json gives it."""
    return frozenset(names) | frozenset(f"{name}Exception" for name in names)


def text(pattern: str) -> re.Pattern[str]:
    """In upper or lower case."""
    return re.compile(pattern, re.IGNORECASE)


CODED: Final = range(400, 500)
CONFIGURATION_SET: Final = text(r"configuration[ -]?set")
THROTTLES: Final = codes(
    "TooManyRequests",
    "Throttling",
    "Throttled",
    "RequestThrottled",
    "RequestLimitExceeded",
    "SlowDown",
)

REFUSALS: Final = (
    # The account and its rate.
    Row(
        name="daily-quota",
        when=AnswerPattern(status=CODED, text=text(r"daily .{0,20}quota exceeded")),
        kind=OutcomeKind.ACCOUNT_STOP,
        source=Source.SEEN,
        reason="the daily quota of the account is used up: sending goes on as it frees; ask AWS for a higher one",
        pause=PauseScope.ACCOUNT,
        pause_s=300.0,
    ),
    Row(
        name="daily-quota",
        when=AnswerPattern(status=CODED, codes=codes("LimitExceeded")),
        kind=OutcomeKind.ACCOUNT_STOP,
        source=Source.MODEL,
        reason="a limit of the account is used up: sending goes on as it frees; ask AWS for a higher one",
        pause=PauseScope.ACCOUNT,
        pause_s=300.0,
    ),
    Row(
        name="rate-exceeded",
        when=AnswerPattern(status=CODED, codes=THROTTLES),
        kind=OutcomeKind.THROTTLED,
        source=Source.MODEL,
        reason="the sending rate of the account was exceeded: we slow down; see who else sends with this account",
    ),
    Row(
        name="rate-exceeded",
        when=AnswerPattern(status=range(429, 430)),
        kind=OutcomeKind.THROTTLED,
        source=Source.PROOF,
        reason="SES refuses for a rate: we slow down; see who else sends with this account",
    ),
    Row(
        name="account-suspended",
        when=AnswerPattern(status=CODED, codes=codes("AccountSuspended")),
        kind=OutcomeKind.ACCOUNT_STOP,
        source=Source.MODEL,
        reason="AWS suspended sending of this account: talk to AWS",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="configuration-set-paused",
        when=AnswerPattern(
            status=CODED,
            codes=codes("SendingPaused"),
            text=CONFIGURATION_SET,
        ),
        kind=OutcomeKind.MISCONFIGURED,
        source=Source.MODEL,
        reason="sending is paused for the configuration set: enable it again in SES",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="configuration-set-paused",
        when=AnswerPattern(status=CODED, codes=codes("ConfigurationSetSendingPaused")),
        kind=OutcomeKind.MISCONFIGURED,
        source=Source.SEEN,
        reason="sending is paused for the configuration set: enable it again in SES",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="tenant-paused",
        when=AnswerPattern(status=CODED, codes=codes("SendingPaused"), text=text(r"\btenant\b")),
        kind=OutcomeKind.MISCONFIGURED,
        source=Source.GUIDE,
        reason="SES paused sending of the tenant: see its reputation findings in SES and enable it again",
        pause=PauseScope.TENANT,
    ),
    Row(
        name="sending-paused",
        when=AnswerPattern(status=CODED, codes=codes("SendingPaused", "AccountSendingPaused")),
        kind=OutcomeKind.ACCOUNT_STOP,
        source=Source.MODEL,
        reason="sending of this account is paused: see the account's dashboard in SES",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="sending-paused",
        when=AnswerPattern(status=CODED, text=text(r"sending (is )?paused for this account")),
        kind=OutcomeKind.ACCOUNT_STOP,
        source=Source.SEEN,
        reason="sending of this account is paused: see the account's dashboard in SES",
        pause=PauseScope.ACCOUNT,
    ),
    # Our identity and configuration set.
    Row(
        name="sender-not-verified",
        when=AnswerPattern(status=CODED, text=text("not verified"), names_sender=True),
        kind=OutcomeKind.MISCONFIGURED,
        source=Source.GUIDE,
        reason="the sender's address or domain is not verified in this region: verify it in SES",
        pause=PauseScope.SENDER,
    ),
    Row(
        name="mail-from-not-verified",
        when=AnswerPattern(status=CODED, codes=codes("MailFromDomainNotVerified")),
        kind=OutcomeKind.MISCONFIGURED,
        source=Source.MODEL,
        reason="the custom MAIL FROM domain of the sender is not verified: correct its MX record",
        pause=PauseScope.SENDER,
    ),
    Row(
        name="sandbox",
        when=AnswerPattern(status=CODED, codes=codes("MessageRejected"), text=text("not verified")),
        kind=OutcomeKind.ACCOUNT_STOP,
        source=Source.GUIDE,
        reason="SES takes verified recipients only, so the account is in the sandbox: ask AWS for production access",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="configuration-set-missing",
        when=AnswerPattern(
            status=CODED, codes=codes("ConfigurationSetDoesNotExist", "ConfigurationSetNotFound")
        ),
        kind=OutcomeKind.MISCONFIGURED,
        source=Source.SEEN,
        reason="the configuration set does not exist: make it in SES, or set MAILSTREAMSCONFIGURATION_SET",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="configuration-set-missing",
        when=AnswerPattern(
            status=CODED,
            codes=codes("NotFound", "BadRequest"),
            text=text(r"configuration[ -]?set.*(does not exist|not found)"),
        ),
        kind=OutcomeKind.MISCONFIGURED,
        source=Source.SEEN,
        reason="the configuration set does not exist: make it in SES, or set MAILSTREAMSCONFIGURATION_SET",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="tenant-missing",
        when=AnswerPattern(
            status=CODED,
            codes=codes("NotFound", "BadRequest"),
            text=text(r"\btenant\b.*(does not exist|not found|not associated)"),
        ),
        kind=OutcomeKind.MISCONFIGURED,
        source=Source.GUIDE,
        reason="SES has no such tenant, or the sender or configuration set is not associated with it: make it so in SES, or correct MAILSTREAMS_SES_TENANTS",
        pause=PauseScope.TENANT,
    ),
    Row(
        name="not-found",
        when=AnswerPattern(status=CODED, codes=codes("NotFound")),
        kind=OutcomeKind.MISCONFIGURED,
        source=Source.MODEL,
        reason="something that the call names does not exist in SES: make it there",
        pause=PauseScope.SENDER,
    ),
    # Credentials and permissions.
    Row(
        name="access-denied",
        when=AnswerPattern(
            status=CODED,
            codes=codes("AccessDenied", "NotAuthorized", "OptInRequired", "UnauthorizedOperation"),
        ),
        kind=OutcomeKind.ACCOUNT_STOP,
        source=Source.COMMON,
        reason="AWS denies ses:SendEmail: correct the policy of the credentials",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="credentials-expired",
        when=AnswerPattern(status=CODED, codes=codes("ExpiredToken")),
        kind=OutcomeKind.ACCOUNT_STOP,
        source=Source.COMMON,
        reason="the AWS credentials have expired: renew them; they are read anew before the next call",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="signature-too-old",
        when=AnswerPattern(status=CODED, text=text("signature expired"), is_late=True),
        kind=OutcomeKind.RETRY,
        source=Source.COMMON,
        reason="the call left too long after it was signed, so AWS refused it: see why this process stood still",
    ),
    Row(
        name="clock-skew",
        when=AnswerPattern(status=CODED, codes=codes("RequestExpired", "RequestTimeTooSkewed")),
        kind=OutcomeKind.ACCOUNT_STOP,
        source=Source.COMMON,
        reason="AWS finds the request too old or too new: set the clock of this machine",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="clock-skew",
        when=AnswerPattern(status=CODED, text=text(r"signature (expired|not yet current)")),
        kind=OutcomeKind.ACCOUNT_STOP,
        source=Source.COMMON,
        reason="AWS finds the signature too old or too new: set the clock of this machine",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="wrong-region",
        when=AnswerPattern(
            status=CODED,
            codes=codes("SignatureDoesNotMatch", "InvalidSignature", "IncompleteSignature"),
            text=text("scoped to (a valid region|correct service)"),
        ),
        kind=OutcomeKind.ACCOUNT_STOP,
        source=Source.SEEN,
        reason="the endpoint belongs to another region than the calls are signed for: make AWS_REGION and AWS_ENDPOINT_URL_SESV2 agree, and start again",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="credentials-refused",
        when=AnswerPattern(
            status=CODED,
            codes=codes(
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
        source=Source.COMMON,
        reason="AWS does not know the credentials: correct them; they are read anew before the next call",
        pause=PauseScope.ACCOUNT,
    ),
    # The message itself.
    Row(
        name="message-rejected",
        when=AnswerPattern(status=CODED, codes=codes("MessageRejected")),
        kind=OutcomeKind.PERMANENT,
        source=Source.MODEL,
        reason="SES rejects the message: correct its content",
    ),
    Row(
        name="bad-request",
        when=AnswerPattern(status=CODED, codes=codes("BadRequest")),
        kind=OutcomeKind.PERMANENT,
        source=Source.MODEL,
        reason="SES finds something in the message invalid: correct it",
    ),
    Row(
        name="too-large",
        when=AnswerPattern(
            status=CODED, codes=codes("RequestEntityTooLarge", "ContentLengthExceeded")
        ),
        kind=OutcomeKind.PERMANENT,
        source=Source.COMMON,
        reason="the message is too large for SES: shorten it",
    ),
    Row(
        name="invalid-request",
        when=AnswerPattern(
            status=CODED,
            codes=codes(
                "ValidationError",
                "Validation",
                "MalformedHttpRequest",
                "UnknownOperation",
                "InvalidAction",
                "InvalidParameterValue",
                "InvalidParameterCombination",
                "InvalidParameter",
                "InvalidQueryParameter",
                "MalformedQueryString",
                "MissingAction",
                "MissingParameter",
                "Serialization",
            ),
        ),
        kind=OutcomeKind.PERMANENT,
        source=Source.COMMON,
        reason="SES cannot read our request, which is a bug of mailstreams: report it with this text",
    ),
    Row(
        name="refused-for-now",
        when=AnswerPattern(
            status=CODED,
            codes=codes(
                "InternalFailure",
                "InternalServerError",
                "InternalServiceError",
                "InternalService",
                "ServiceUnavailable",
                "ConcurrentModification",
            ),
        ),
        kind=OutcomeKind.RETRY,
        source=Source.COMMON,
        reason="SES refuses for trouble of its own: it is tried again",
    ),
    Row(
        name="unknown-code",
        when=AnswerPattern(status=CODED, has_code=True),
        kind=OutcomeKind.PERMANENT,
        source=Source.PROOF,
        reason="SES refuses with a code that mailstreams does not know: report it with this text",
    ),
)
