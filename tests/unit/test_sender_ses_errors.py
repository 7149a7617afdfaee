"""Every row of the table of SES's answers, with the answer or fault that it is there for."""

import pytest

from streams.domain.attempts import OutcomeKind, PauseScope
from streams.domain.ses_answers import Answer, Fault, FaultKind, read_answer, without_addresses
from streams.domain.ses_errors import TABLE, Meaning, meaning

SENDER = "sender@example.com"
RECIPIENT = "user1@example.com"
NOT_VERIFIED = "Email address is not verified. The following identities failed the check in region EU-CENTRAL-1: "


def answer(status: int, code: str | None = None, message: str = "", **fields: str) -> Answer:
    return Answer(status=status, code=code, message=message, **fields)


def meant(seen: Answer | Fault) -> Meaning:
    return meaning(seen, sender=SENDER, addresses=(RECIPIENT,))


K = OutcomeKind
ROWS: list[tuple[int, Answer | Fault, str, OutcomeKind, PauseScope | None]] = [
    (0, Fault(kind=FaultKind.NO_CREDENTIALS, written=False), "no-credentials", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (1, Fault(kind=FaultKind.TLS, written=False), "tls", K.RETRY, None),
    (2, Fault(kind=FaultKind.UNREACHABLE, written=False), "unreachable", K.RETRY, None),
    (2, Fault(kind=FaultKind.CONNECT_TIMEOUT, written=False), "unreachable", K.RETRY, None),
    (3, Fault(kind=FaultKind.TIMEOUT, written=True), "no-answer", K.UNKNOWN, None),
    (4, Fault(kind=FaultKind.BROKEN, written=True), "connection-lost", K.UNKNOWN, None),
    (4, Fault(kind=FaultKind.TLS, written=True), "connection-lost", K.UNKNOWN, None),
    (5, answer(200, message_id="m-1"), "accepted", K.ACCEPTED, None),
    (6, answer(200), "no-message-id", K.UNKNOWN, None),
    (6, answer(204), "no-message-id", K.UNKNOWN, None),
    (7, answer(307), "redirected", K.UNKNOWN, None),
    (8, answer(500, "InternalFailure"), "server-error", K.UNKNOWN, None),
    (8, answer(503, "ServiceUnavailable"), "server-error", K.UNKNOWN, None),
    (8, answer(503, "SlowDown", "Reduce your request rate"), "server-error", K.UNKNOWN, None),
    (8, answer(502), "server-error", K.UNKNOWN, None),
    (9, answer(408, "RequestTimeoutException"), "request-timeout", K.UNKNOWN, None),
    (9, answer(408, "TooManyRequestsException"), "request-timeout", K.UNKNOWN, None),
    (10, answer(400, "RequestTimeout"), "request-timeout", K.UNKNOWN, None),
    (10, answer(400, "RequestAbortedException"), "request-timeout", K.UNKNOWN, None),
    (11, answer(403, message="Access denied by proxy"), "not-from-aws", K.UNKNOWN, None),
    (11, answer(407), "not-from-aws", K.UNKNOWN, None),
    (11, answer(413), "not-from-aws", K.UNKNOWN, None),
    (11, answer(429), "not-from-aws", K.UNKNOWN, None),
    (12, answer(429, "TooManyRequestsException", "Daily message quota exceeded."), "daily-quota", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (12, answer(400, "Throttling", "Daily sending quota exceeded"), "daily-quota", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (13, answer(400, "LimitExceededException", "Too many"), "daily-quota", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (14, answer(429, "TooManyRequestsException", "Maximum sending rate exceeded."), "rate-exceeded", K.THROTTLED, None),
    (14, answer(400, "ThrottlingException", "Rate exceeded"), "rate-exceeded", K.THROTTLED, None),
    (14, answer(400, "Throttling", "Maximum sending rate exceeded."), "rate-exceeded", K.THROTTLED, None),
    (15, answer(429, "SomethingNewException"), "rate-exceeded", K.THROTTLED, None),
    (16, answer(400, "AccountSuspendedException", "The account has been suspended."), "account-suspended", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (17, answer(400, "SendingPausedException", "Sending is paused for configuration set mailstreams."), "configuration-set-paused", K.MISCONFIGURED, PauseScope.ACCOUNT),
    (18, answer(400, "SendingPausedException", "Sending is paused for this account."), "sending-paused", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (19, answer(400, "MessageRejected", "Sending paused for this account. For more information, …"), "sending-paused", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (20, answer(400, "MessageRejected", NOT_VERIFIED + SENDER), "sender-not-verified", K.MISCONFIGURED, PauseScope.SENDER),
    (20, answer(400, "MessageRejected", NOT_VERIFIED + "example.com"), "sender-not-verified", K.MISCONFIGURED, PauseScope.SENDER),
    (20, answer(400, "MessageRejected", f"{NOT_VERIFIED}{RECIPIENT}, {SENDER}"), "sender-not-verified", K.MISCONFIGURED, PauseScope.SENDER),
    (21, answer(400, "MailFromDomainNotVerifiedException", "no MX"), "mail-from-not-verified", K.MISCONFIGURED, PauseScope.SENDER),
    (22, answer(400, "MessageRejected", NOT_VERIFIED + RECIPIENT), "sandbox", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (23, answer(400, "ConfigurationSetDoesNotExist", "gone"), "configuration-set-missing", K.MISCONFIGURED, PauseScope.ACCOUNT),
    (24, answer(404, "NotFoundException", "Configuration set mailstreams does not exist."), "configuration-set-missing", K.MISCONFIGURED, PauseScope.ACCOUNT),
    (24, answer(400, "BadRequestException", "Configuration set mailstreams does not exist."), "configuration-set-missing", K.MISCONFIGURED, PauseScope.ACCOUNT),
    (25, answer(404, "NotFoundException", "Tenant x does not exist."), "not-found", K.MISCONFIGURED, PauseScope.SENDER),
    (26, answer(403, "AccessDeniedException", "not authorized to perform ses:SendEmail"), "access-denied", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (27, answer(403, "ExpiredTokenException", "The security token included in the request is expired"), "credentials-expired", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (27, answer(400, "ExpiredToken"), "credentials-expired", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (28, answer(400, "RequestExpired"), "clock-skew", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (29, answer(403, "InvalidSignatureException", "Signature expired: 1 is now earlier than 2"), "clock-skew", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (30, answer(403, "InvalidSignatureException", "does not match"), "credentials-refused", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (30, answer(403, "UnrecognizedClientException"), "credentials-refused", K.ACCOUNT_STOP, PauseScope.ACCOUNT),
    (31, answer(400, "MessageRejected", "Transaction failed: the message contains a virus."), "message-rejected", K.PERMANENT, None),
    (32, answer(400, "BadRequestException", "Local address contains control or whitespace"), "bad-request", K.PERMANENT, None),
    (33, answer(413, "RequestEntityTooLargeException"), "too-large", K.PERMANENT, None),
    (34, answer(400, "ValidationException"), "invalid-request", K.PERMANENT, None),
    (35, answer(418, "TeapotException"), "unknown-code", K.PERMANENT, None),
]  # fmt: skip


@pytest.mark.parametrize(("number", "seen", "name", "kind", "pause"), ROWS)
def test_row(
    number: int, seen: Answer | Fault, name: str, kind: OutcomeKind, pause: PauseScope | None
) -> None:
    found = meant(seen)
    assert found.row is TABLE[number]
    assert (found.row.name, found.row.kind, found.row.pause) == (name, kind, pause)


def test_every_row_has_its_case() -> None:
    assert {number for number, *_ in ROWS} == set(range(len(TABLE)))


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
