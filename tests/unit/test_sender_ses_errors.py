"""Every row of the table of SES's answers, with the answer or fault that it is there for."""

import importlib.util
from datetime import UTC, datetime
from pathlib import Path

import botocore.session
import pytest

from streams.domain.attempts import OutcomeKind, PauseScope
from streams.domain.ses_answers import Answer, Fault, FaultKind, read_answer, without_addresses
from streams.domain.ses_errors import TABLE, Meaning, meaning
from streams.domain.ses_patterns import AnswerPattern, Row

DOCS = Path(__file__).parents[2] / "docs"

SENDER = "sender@example.com"
RECIPIENT = "user1@example.com"
NOT_VERIFIED = "Email address is not verified. The following identities failed the check in region EU-CENTRAL-1: "


def answer(
    status: int, code: str | None = None, message: str = "", message_id: str | None = None
) -> Answer:
    return Answer(status=status, code=code, message=message, message_id=message_id)


def meant(seen: Answer | Fault) -> Meaning:
    return meaning(seen, sender=SENDER, addresses=(RECIPIENT,))


K = OutcomeKind
ROWS: list[tuple[Answer | Fault, str, OutcomeKind, PauseScope | None]] = [
    (Fault(kind=FaultKind.NO_CREDENTIALS, written=False), "no-credentials", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (Fault(kind=FaultKind.TLS, written=False), "tls", K.RETRY, None),
    (Fault(kind=FaultKind.UNREACHABLE, written=False), "unreachable", K.RETRY, None),
    (Fault(kind=FaultKind.CONNECT_TIMEOUT, written=False), "unreachable", K.RETRY, None),
    (Fault(kind=FaultKind.TIMEOUT, written=True), "no-answer", K.UNKNOWN, None),
    (Fault(kind=FaultKind.BROKEN, written=True), "connection-lost", K.UNKNOWN, None),
    (Fault(kind=FaultKind.TLS, written=True), "connection-lost", K.UNKNOWN, None),
    (answer(200, message_id="m-1"), "accepted", K.ACCEPTED, None),
    (answer(200), "no-message-id", K.UNKNOWN, None),
    (answer(204), "no-message-id", K.UNKNOWN, None),
    (answer(200, "UnknownEntryStatus"), "unclear-answer", K.UNKNOWN, None),
    (answer(200, "InternalFailure"), "unclear-answer", K.UNKNOWN, None),
    (answer(307), "redirected", K.UNKNOWN, None),
    (answer(500, "InternalFailure"), "server-error", K.UNKNOWN, None),
    (answer(503, "ServiceUnavailable"), "server-error", K.UNKNOWN, None),
    (answer(503, "SlowDown", "Reduce your request rate"), "server-error", K.UNKNOWN, None),
    (answer(502), "server-error", K.UNKNOWN, None),
    (answer(408, "RequestTimeoutException"), "request-timeout", K.UNKNOWN, None),
    (answer(408, "TooManyRequestsException"), "request-timeout", K.UNKNOWN, None),
    (answer(400, "RequestTimeout"), "request-timeout", K.UNKNOWN, None),
    (answer(400, "RequestAbortedException"), "request-timeout", K.UNKNOWN, None),
    (answer(403, message="Access denied by proxy"), "not-from-aws", K.UNKNOWN, None),
    (answer(407), "not-from-aws", K.UNKNOWN, None),
    (answer(413), "not-from-aws", K.UNKNOWN, None),
    (answer(429), "not-from-aws", K.UNKNOWN, None),
    (answer(429, "TooManyRequestsException", "Daily message quota exceeded."), "daily-quota", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(400, "Throttling", "Daily sending quota exceeded"), "daily-quota", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(400, "LimitExceededException", "Too many"), "daily-quota", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(429, "TooManyRequestsException", "Maximum sending rate exceeded."), "rate-exceeded", K.THROTTLED, None),
    (answer(400, "ThrottlingException", "Rate exceeded"), "rate-exceeded", K.THROTTLED, None),
    (answer(400, "Throttling", "Maximum sending rate exceeded."), "rate-exceeded", K.THROTTLED, None),
    (answer(429, "SomethingNewException"), "rate-exceeded", K.THROTTLED, None),
    (answer(400, "AccountSuspendedException", "The account has been suspended."), "account-suspended", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(400, "SendingPausedException", "Sending is paused for configuration set mailstreams."), "configuration-set-paused", K.MISCONFIGURED, PauseScope.ACCOUNT),
    (answer(400, "SendingPausedException", "Sending is paused for this account."), "sending-paused", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(400, "MessageRejected", "Sending paused for this account. For more information, …"), "sending-paused", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(400, "MessageRejected", NOT_VERIFIED + SENDER), "sender-not-verified", K.MISCONFIGURED, PauseScope.SENDER),
    (answer(400, "MessageRejected", NOT_VERIFIED + "example.com"), "sender-not-verified", K.MISCONFIGURED, PauseScope.SENDER),
    (answer(400, "MessageRejected", f"{NOT_VERIFIED}{RECIPIENT}, {SENDER}"), "sender-not-verified", K.MISCONFIGURED, PauseScope.SENDER),
    (answer(400, "MailFromDomainNotVerifiedException", "no MX"), "mail-from-not-verified", K.MISCONFIGURED, PauseScope.SENDER),
    (answer(400, "MessageRejected", NOT_VERIFIED + RECIPIENT), "sandbox", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(400, "ConfigurationSetDoesNotExist", "gone"), "configuration-set-missing", K.MISCONFIGURED, PauseScope.ACCOUNT),
    (answer(404, "NotFoundException", "Configuration set mailstreams does not exist."), "configuration-set-missing", K.MISCONFIGURED, PauseScope.ACCOUNT),
    (answer(400, "BadRequestException", "Configuration set mailstreams does not exist."), "configuration-set-missing", K.MISCONFIGURED, PauseScope.ACCOUNT),
    (answer(404, "NotFoundException", "Template x does not exist."), "not-found", K.MISCONFIGURED, PauseScope.SENDER),
    (answer(403, "AccessDeniedException", "not authorized to perform ses:SendEmail"), "access-denied", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(403, "ExpiredTokenException", "The security token included in the request is expired"), "credentials-expired", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(400, "ExpiredToken"), "credentials-expired", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(400, "RequestExpired"), "clock-skew", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(403, "InvalidSignatureException", "Signature expired: 1 is now earlier than 2"), "clock-skew", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(403, "InvalidSignatureException", "does not match"), "credentials-refused", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(403, "UnrecognizedClientException"), "credentials-refused", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(400, "MessageRejected", "Transaction failed: the message contains a virus."), "message-rejected", K.PERMANENT, None),
    (answer(400, "BadRequestException", "Local address contains control or whitespace"), "bad-request", K.PERMANENT, None),
    (answer(413, "RequestEntityTooLargeException"), "too-large", K.PERMANENT, None),
    (answer(400, "ValidationException"), "invalid-request", K.PERMANENT, None),
    (answer(418, "TeapotException"), "unknown-code", K.PERMANENT, None),
    (Fault(kind=FaultKind.PROXY, written=False), "unreachable", K.RETRY, None),
    (answer(400, "SendingPausedException", "Sending is paused for tenant shop."), "tenant-paused", K.MISCONFIGURED, PauseScope.TENANT),
    (answer(404, "NotFoundException", "Tenant shop does not exist."), "tenant-missing", K.MISCONFIGURED, PauseScope.TENANT),
    (answer(400, "BadRequestException", "Identity example.com is not associated with tenant shop: tenant resource not found"), "tenant-missing", K.MISCONFIGURED, PauseScope.TENANT),
    (Answer(status=403, code="SignatureDoesNotMatch", message="Signature expired: 1 is now earlier than 2", signature_age_s=301.0), "signature-too-old", K.RETRY, None),
    (Answer(status=403, code="SignatureDoesNotMatch", message="Signature not yet current: 1", signature_age_s=301.0), "clock-skew", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(403, "RequestTimeTooSkewed"), "clock-skew", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(403, "SignatureDoesNotMatch", "Credential should be scoped to a valid region, not 'us-east-1'."), "wrong-region", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(403, "SignatureDoesNotMatch", "Credential should be scoped to correct service: 'ses'."), "wrong-region", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (answer(400, "ServiceUnavailableException"), "refused-for-now", K.RETRY, None),
    (answer(400, "ConfigurationSetSendingPausedException"), "configuration-set-paused", K.MISCONFIGURED, PauseScope.ACCOUNT),
    (answer(400, "InternalFailure"), "refused-for-now", K.RETRY, None),
    (answer(400, "ConfigurationSetDoesNotExistException"), "configuration-set-missing", K.MISCONFIGURED, PauseScope.ACCOUNT),
]  # fmt: skip


@pytest.mark.parametrize(("seen", "name", "kind", "pause"), ROWS)
def test_row(seen: Answer | Fault, name: str, kind: OutcomeKind, pause: PauseScope | None) -> None:
    row = meant(seen).row
    assert (row.name, row.kind, row.pause) == (name, kind, pause)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_row_has_a_case_that_no_row_before_it_takes(row: Row) -> None:
    assert any(meant(seen).row is row for seen, *_ in ROWS)


def test_rows_of_one_class_agree_on_what_they_do() -> None:
    for row in TABLE:
        others = [r for r in TABLE if r.name == row.name]
        assert {(r.kind, r.pause, r.pause_s) for r in others} == {
            (row.kind, row.pause, row.pause_s)
        }


# What every AWS service may answer, as its common errors are listed, and spellings that SDKs know besides.
COMMON_ERRORS = (
    "AccessDeniedException", "ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "IncompleteSignatureException",
    "InternalFailure", "InternalServerError", "InternalServiceErrorException", "InvalidAction", "InvalidClientTokenId",
    "InvalidParameterCombination", "InvalidParameterValue", "InvalidQueryParameter", "InvalidSignatureException",
    "MalformedHttpRequestException", "MalformedQueryString", "MissingAction", "MissingAuthenticationToken",
    "MissingAuthenticationTokenException", "MissingParameter", "NotAuthorized", "OptInRequired", "RequestAbortedException",
    "RequestEntityTooLargeException", "RequestExpired", "RequestTimeTooSkewed", "RequestTimeout", "RequestTimeoutException",
    "ServiceUnavailable", "ServiceUnavailableException", "SignatureDoesNotMatch", "SlowDown", "Throttling",
    "ThrottlingException", "TooManyRequestsException", "UnknownOperationException", "UnrecognizedClientException",
    "ValidationError", "ValidationException",
)  # fmt: skip


def errors_of_the_model(operation: str) -> set[str]:
    model = botocore.session.Session().get_service_model("sesv2")
    return {shape.name for shape in model.operation_model(operation).error_shapes}


@pytest.mark.parametrize("operation", ["SendEmail", "SendBulkEmail"])
def test_every_exception_of_the_operation_has_a_row(operation: str) -> None:
    """Fails when a newer botocore knows one that the table lacks."""
    errors = errors_of_the_model(operation)
    assert len(errors) >= 8
    assert errors <= codes_with_a_row()


def test_every_common_error_has_a_row() -> None:
    assert set(COMMON_ERRORS) <= codes_with_a_row()


def test_no_code_that_has_a_row_falls_through_to_the_unknown_ones() -> None:
    for code in sorted(codes_with_a_row()):
        assert meant(answer(400, code)).row.name not in ("unknown-code", "not-from-aws"), code


def codes_with_a_row() -> set[str]:
    return {code for row in TABLE if isinstance(row.when, AnswerPattern) for code in row.when.codes}


def test_every_fault_has_a_row_whether_a_byte_was_written_or_not() -> None:
    for kind in FaultKind:
        for written in (False, True):
            found = meant(Fault(kind=kind, written=written, detail="it says so"))
            assert found.reason.endswith("(it says so)")
            assert (found.row.kind is OutcomeKind.UNKNOWN) == written


@pytest.mark.parametrize(
    ("ahead_s", "told"),
    [
        (412.3, "set the clock of this machine, it is 412 s ahead (SES said 403 "),
        (-3600.0, "set the clock of this machine, it is 3600 s behind (SES said 403 "),
        (2.0, "set the clock of this machine (SES said 403 "),
        (None, "set the clock of this machine (SES said 403 "),
    ],
)
def test_clock_that_is_wrong_is_told_by_how_much(ahead_s: float | None, told: str) -> None:
    seen = Answer(
        status=403,
        code="InvalidSignatureException",
        message="Signature expired: 20260101T000000Z is now earlier than 20260101T000500Z",
        clock_ahead_s=ahead_s,
    )
    assert told in meant(seen).reason


@pytest.mark.parametrize(
    ("date", "ahead_s"),
    [
        ("Thu, 01 Jan 2026 00:00:00 GMT", 60.0),
        ("Thu, 01 Jan 2026 00:02:00 GMT", -60.0),
        ("yesterday", None),
        ("Thu, 01 Jan 99999 00:00:00 GMT", None),
        (None, None),
    ],
)
def test_clock_is_compared_with_the_date_of_a_refusal(
    date: str | None, ahead_s: float | None
) -> None:
    headers = {} if date is None else {"Date": date}
    now = datetime(2026, 1, 1, 0, 1, tzinfo=UTC).timestamp()
    assert read_answer(403, headers, b"{}", now=now).clock_ahead_s == ahead_s


def test_page_of_the_documentation_is_the_table() -> None:
    spec = importlib.util.spec_from_file_location("ses_errors_page", DOCS / "ses_errors.py")
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    assert (DOCS / "ses-errors.md").read_text(encoding="utf-8") == page.markdown(), (
        "run .venv/bin/python docs/ses_errors.py"
    )


def test_refused_is_only_what_is_proven() -> None:
    """I3: everything but an unwritten request or a coded 4xx (408 excepted) is accepted or unknown."""
    for status in range(100, 600):
        for code in (None, "SomeException", "TooManyRequestsException", "RequestTimeout"):
            for message in ("", "not verified", "Daily message quota exceeded."):
                kind = meant(answer(status, code, message)).row.kind
                proven = (
                    400 <= status < 500 and status != 408 and code not in (None, "RequestTimeout")
                )
                assert (kind is OutcomeKind.UNKNOWN) != proven, (status, code, message)
    for fault in FaultKind:
        assert meant(Fault(kind=fault, written=True)).row.kind is OutcomeKind.UNKNOWN


def test_what_stops_the_account_or_the_sender_pauses_it_and_nothing_else_pauses() -> None:
    for row in TABLE:
        stops = row.kind in (OutcomeKind.ACCOUNT_STOP, OutcomeKind.MISCONFIGURED)
        assert stops == (row.pause is not None), row.name


def test_reason_says_what_to_change_and_what_ses_said_without_addresses() -> None:
    found = meant(
        answer(400, "MessageRejected", f"Address {RECIPIENT} <Ann.B@Sub.example.org> is bad\r\nx")
    )
    assert found.reason.startswith("SES rejects the message: correct its content (SES said 400 ")
    assert "MessageRejected: Address <address> <<address>> is bad x" in found.reason
    assert (found.code, found.http_status) == ("MessageRejected", 400)


@pytest.mark.parametrize(
    "text",
    [
        "user1@example.com",
        "USER1@EXAMPLE.COM!",
        "mailto:user1@example.com?x",
        '"odd local"@example.com',
        "user1%40example.com",
        "jürgen@bücher.example",
        "to=user1@example.com;cc=other@example.org",
        "o'neil+tag@example.co.uk,",
        "user1@[192.0.2.1]",
    ],
)
def test_no_address_survives(text: str) -> None:
    told = without_addresses(f"The address {text} is refused", ())
    assert "@" not in told
    assert "%40" not in told
    assert "user1" not in told.lower()
    assert "odd local" not in told
    assert "<address>" in told


def test_text_is_cut_to_one_line_that_postgresql_takes() -> None:
    told = without_addresses("a\x00b\nc" + "x" * 1000)
    assert len(told) == 400
    assert told.startswith("a b cx")


# Reading ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        ({"x-amzn-ErrorType": "MessageRejected"}, b"{}", "MessageRejected"),
        (
            {"x-amzn-ErrorType": "MessageRejected:http://internal.amazon.com/"},
            b"{}",
            "MessageRejected",
        ),
        ({"x-amzn-ErrorType": "com.amazonaws.ses#BadRequestException"}, b"", "BadRequestException"),
        ({}, b'{"__type":"com.amazonaws#Throttling","message":"m"}', "Throttling"),
        ({"x-amzn-RequestId": "r"}, b'{"code":"Throttling"}', "Throttling"),
        ({}, b'{"code":"Forbidden","message":"by the proxy"}', None),
        ({"x-amzn-RequestId": "r"}, b'{"code":403}', None),
        ({"x-amzn-ErrorType": "403"}, b"{}", None),
        ({}, b"<html>", None),
    ],
)
def test_code_is_found_only_where_aws_answered(
    headers: dict[str, str], body: bytes, code: str | None
) -> None:
    assert read_answer(400, headers, body).code == code


@pytest.mark.parametrize(
    ("body", "message_id"),
    [
        (b'{"MessageId":"0100018-abc"}', "0100018-abc"),
        (b'{"MessageId":""}', None),
        (b'{"MessageId":7}', None),
        (b'{"MessageId":"a\\u0000b"}', None),
        (b"{}", None),
        (b"OK", None),
        (b'{"MessageId":"half', None),
        (b'["MessageId"]', None),
    ],
)
def test_accepted_needs_a_message_id(body: bytes, message_id: str | None) -> None:
    seen = read_answer(200, {}, body)
    assert seen.message_id == message_id
    expected = OutcomeKind.UNKNOWN if message_id is None else OutcomeKind.ACCEPTED
    assert meant(seen).row.kind is expected
