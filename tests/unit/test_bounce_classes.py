"""The provider's words in ours."""

import pytest

from streams.domain.bounce_classes import (
    classify_bounce,
    complaint_type,
    delay_reason,
    is_suppression,
    smtp_status,
)
from streams.domain.delivery_events import BounceReason, BounceType

P, T, U = BounceType.PERMANENT, BounceType.TRANSIENT, BounceType.UNDETERMINED
R = BounceReason


@pytest.mark.parametrize(
    ("label", "subtype", "status", "diagnostic", "expected"),
    [
        ("Permanent", "General", "5.1.1", "smtp; 550 5.1.1 user unknown", (P, R.MAILBOX_UNKNOWN)),
        ("Permanent", "NoEmail", "5.1.1", "smtp; 550 5.1.1 user unknown", (P, R.MAILBOX_UNKNOWN)),
        ("Permanent", "NoEmail", None, None, (P, R.MAILBOX_UNKNOWN)),
        ("Permanent", "NoEmail", None, "550 no such user, see /content", (P, R.MAILBOX_UNKNOWN)),
        ("Permanent", "NoEmail", "5.0.0", "550 spam trap? unknown", (P, R.MAILBOX_UNKNOWN)),
        ("Permanent", "NoEmail", "5.7.1", "550 5.7.1 listed at Spamhaus", (P, R.REPUTATION)),
        ("Permanent", "General", None, "550 <spam@example.com>: no such user", (P, R.OTHER)),
        ("Permanent", "General", "5.7.1", "550 virus.report@example.com: no", (P, R.POLICY)),
        (
            "Permanent",
            "General",
            None,
            "550 a@example.com: Blocked (block list)",
            (P, R.REPUTATION),
        ),
        ("Permanent", "General", None, None, (P, R.OTHER)),
        ("Permanent", "General", "5.0.0", "smtp; 550 user unknown", (P, R.OTHER)),
        ("Permanent", "General", "5.0.0", "smtp; 550 5.1.1 unknown", (P, R.MAILBOX_UNKNOWN)),
        ("Permanent", "General", None, "smtp; 550-5.1.1 unknown", (P, R.MAILBOX_UNKNOWN)),
        ("Permanent", "General", "5.1.2", None, (P, R.DNS)),
        ("Permanent", "General", "5.2.1", None, (P, R.MAILBOX_UNKNOWN)),
        ("Permanent", "General", "5.4.1", "550 5.4.1 Access denied", (P, R.MAILBOX_UNKNOWN)),
        ("Permanent", "General", "5.4.4", None, (P, R.DNS)),
        ("Permanent", "General", "5.9.9", None, (P, R.OTHER)),
        ("Permanent", "Suppressed", "5.1.1", None, (P, R.SUPPRESSED_BY_PROVIDER)),
        ("Permanent", "OnAccountSuppressionList", "5.1.1", "x", (P, R.SUPPRESSED_BY_PROVIDER)),
        ("Permanent", "OnTenantSuppressionList", None, None, (P, R.SUPPRESSED_BY_PROVIDER)),
        ("Permanent", "EmailValidationSuppressed", None, None, (P, R.SUPPRESSED_BY_PROVIDER)),
        ("Permanent", "SomethingNew", None, None, (P, R.OTHER)),
        ("Permanent", "General", "4.0.0", None, (T, R.OTHER)),
        ("Permanent", "General", "5.2.2", "552 5.2.2 full", (T, R.MAILBOX_FULL)),
        ("Permanent", "General", "5.7.1", "550 5.7.1 not authorized", (P, R.POLICY)),
        ("Permanent", "General", "5.7.1", "554 5.7.1 listed at Spamhaus", (P, R.REPUTATION)),
        ("Permanent", "General", "5.7.1", "554 5.7.1 message has spam", (P, R.CONTENT_REFUSED)),
        ("Permanent", "General", "5.7.606", "550 5.7.606 banned", (P, R.REPUTATION)),
        ("Permanent", "General", "5.6.0", None, (P, R.CONTENT_REFUSED)),
        ("Permanent", "General", "5.1.1", "550 5.1.1 ( blacklisted )", (P, R.MAILBOX_UNKNOWN)),
        ("Transient", "General", None, None, (T, R.AUTO_REPLY)),
        ("Transient", "General", "", "", (T, R.AUTO_REPLY)),
        ("Transient", "General", "4.4.7", "smtp; 554 4.4.7 expired", (T, R.TIMEOUT)),
        ("Transient", "General", "4.4.1", None, (T, R.TIMEOUT)),
        ("Transient", "General", "4.2.1", None, (T, R.OTHER)),
        ("Transient", "General", "5.1.1", "550 5.1.1", (T, R.MAILBOX_UNKNOWN)),
        ("Transient", "MailboxFull", "4.2.2", "452 4.2.2", (T, R.MAILBOX_FULL)),
        ("Transient", "MailboxFull", None, None, (T, R.MAILBOX_FULL)),
        ("Transient", "MessageTooLarge", "5.3.4", "552 5.3.4", (T, R.MESSAGE_TOO_LARGE)),
        ("Transient", "ContentRejected", "5.6.0", "554 5.6.0", (T, R.CONTENT_REFUSED)),
        ("Transient", "AttachmentRejected", "5.7.0", "552 5.7.0", (T, R.CONTENT_REFUSED)),
        ("Transient", "CustomTimeoutExceeded", "4.4.7", "554", (T, R.TIMEOUT)),
        ("Undetermined", "Undetermined", None, None, (U, R.OTHER)),
        ("Undetermined", "Undetermined", "5.1.1", None, (U, R.MAILBOX_UNKNOWN)),
        ("SomethingNew", "General", "5.1.1", None, (U, R.MAILBOX_UNKNOWN)),
        (None, None, None, None, (U, R.OTHER)),
        (" permanent ", "general", "5.1.1", None, (P, R.MAILBOX_UNKNOWN)),
    ],
)
def test_a_bounce_is_classified(
    label: str | None,
    subtype: str | None,
    status: str | None,
    diagnostic: str | None,
    expected: tuple[BounceType, BounceReason],
) -> None:
    found = classify_bounce(label=label, subtype=subtype, status=status, diagnostic=diagnostic)
    assert found == expected


@pytest.mark.parametrize("text", ["user unknown", "blocked", "spam", "5.1.1", "4.4.7", "full"])
@pytest.mark.parametrize("label", ["Transient", "Undetermined"])
def test_no_text_makes_a_bounce_permanent(label: str, text: str) -> None:
    kind, _ = classify_bounce(label=label, subtype="General", status=None, diagnostic=text)
    assert kind is not P


@pytest.mark.parametrize(
    ("status", "diagnostic", "expected"),
    [
        ("5.1.1", None, (5, 1, 1)),
        (" 5.1.1 (bad mailbox)", None, (5, 1, 1)),
        ("5.1.10", None, (5, 1, 10)),
        (None, "smtp; 550-5.7.26 no", (5, 7, 26)),
        (None, "blocked [5.1.1.2] 25.1.1.1 v1.5.1.1", None),
        ("failed", "smtp; 550", None),
        ("5.0.0", "no code", (5, 0, 0)),
        (None, None, None),
    ],
)
def test_the_status_is_found(
    status: str | None, diagnostic: str | None, expected: tuple[int, int, int] | None
) -> None:
    assert smtp_status(status, diagnostic) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abuse", "abuse"),
        (" Not-Spam ", "not-spam"),
        ("virus", "virus"),
        ("some-new-type", "other"),
        ("", None),
        (None, None),
    ],
)
def test_complaint_types_come_from_a_closed_set(text: str | None, expected: str | None) -> None:
    assert complaint_type(text) == expected


def test_a_complaint_on_a_suppression_list_is_no_complaint() -> None:
    assert is_suppression("OnAccountSuppressionList")
    assert is_suppression("OnTenantSuppressionList")
    assert not is_suppression(None)
    assert not is_suppression("SomethingNew")


def test_a_delay_of_a_new_kind_has_the_widest_reason() -> None:
    assert delay_reason("MailboxFull") is R.MAILBOX_FULL
    assert delay_reason("SomethingNew") is R.OTHER
    assert delay_reason(None) is R.OTHER
