"""The provider's words for bounces, delays and complaints in ours, by table. Words that are not in a table map to the widest class.

How final a bounce is follows from SES's label and the SMTP status alone. Words of the diagnostic text only tell why, and only
where the status leaves it open, so that a block of our reputation is not taken for a fault of the address. The tables for
bounces are a value, so that bounce rules of another version can bring others.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from streams.domain.delivery_events import BounceReason, BounceType

_TYPES: Final = {
    "permanent": BounceType.PERMANENT,
    "transient": BounceType.TRANSIENT,
    "undetermined": BounceType.UNDETERMINED,
}
# Sub-types that say why themselves; the others (General, Undetermined, NoEmail, new ones) are refined by the SMTP status.
_BY_SUBTYPE: Final = {
    "suppressed": BounceReason.SUPPRESSED_BY_PROVIDER,
    "onaccountsuppressionlist": BounceReason.SUPPRESSED_BY_PROVIDER,
    "ontenantsuppressionlist": BounceReason.SUPPRESSED_BY_PROVIDER,
    "emailvalidationsuppressed": BounceReason.SUPPRESSED_BY_PROVIDER,
    "unsubscribedrecipient": BounceReason.SUPPRESSED_BY_PROVIDER,
    "mailboxfull": BounceReason.MAILBOX_FULL,
    "messagetoolarge": BounceReason.MESSAGE_TOO_LARGE,
    "contentrejected": BounceReason.CONTENT_REFUSED,
    "attachmentrejected": BounceReason.CONTENT_REFUSED,
    "customtimeoutexceeded": BounceReason.TIMEOUT,
}
# (subject, detail) of RFC 3463 and its registry, and codes that large providers made their own.
_BY_STATUS: Final = {
    (1, 0): BounceReason.MAILBOX_UNKNOWN,
    (1, 1): BounceReason.MAILBOX_UNKNOWN,
    (1, 2): BounceReason.DNS,
    (1, 3): BounceReason.MAILBOX_UNKNOWN,
    (1, 4): BounceReason.MAILBOX_UNKNOWN,
    (1, 6): BounceReason.MAILBOX_UNKNOWN,
    (1, 7): BounceReason.POLICY,
    (1, 8): BounceReason.POLICY,
    (1, 10): BounceReason.MAILBOX_UNKNOWN,
    (2, 1): BounceReason.MAILBOX_UNKNOWN,
    (2, 2): BounceReason.MAILBOX_FULL,
    (2, 3): BounceReason.MESSAGE_TOO_LARGE,
    (3, 4): BounceReason.MESSAGE_TOO_LARGE,
    (4, 1): BounceReason.TIMEOUT,
    (4, 2): BounceReason.TIMEOUT,
    (4, 3): BounceReason.DNS,
    (4, 4): BounceReason.DNS,
    (4, 7): BounceReason.TIMEOUT,
    (4, 310): BounceReason.DNS,
    (4, 312): BounceReason.DNS,
    (4, 316): BounceReason.TIMEOUT,
    (7, 28): BounceReason.REPUTATION,
    (7, 511): BounceReason.REPUTATION,
    (7, 705): BounceReason.REPUTATION,
    (7, 708): BounceReason.REPUTATION,
    **{(7, detail): BounceReason.REPUTATION for detail in range(606, 650)},
}
_BY_SUBJECT: Final = {6: BounceReason.CONTENT_REFUSED, 7: BounceReason.POLICY}
# Exchange Online answers 5.4.1 to an unknown recipient; as 4.4.1 it is a host that does not answer.
# Gmail's 4.2.1 is a mailbox that gets too much mail at the moment.
_BY_CLASS: Final = {
    (5, 4, 1): BounceReason.MAILBOX_UNKNOWN,
    (4, 2, 1): BounceReason.OTHER,
}
_HINTS: Final = (
    (
        re.compile(r"spamhaus|barracuda|spamcop|dnsbl|\brbl\b|(?:block|black)\W?list|reputation"),
        BounceReason.REPUTATION,
    ),
    (re.compile(r"\bspam|virus|malware|phish|content|attachment"), BounceReason.CONTENT_REFUSED),
    (re.compile(r"\bblocked\b|\bbanned\b|unsolicited"), BounceReason.REPUTATION),
)

SmtpStatus = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BounceClasses:
    """What the words and codes of a bounce say. by_status: subject and detail; by_class: the whole code, which goes before;
    hints: words of the diagnostic text. passing_status (the class) and passing_reasons: where SES's "permanent" is not believed."""

    by_subtype: Mapping[str, BounceReason]
    by_class: Mapping[SmtpStatus, BounceReason]
    by_status: Mapping[tuple[int, int], BounceReason]
    by_subject: Mapping[int, BounceReason]
    hints: Sequence[tuple[re.Pattern[str], BounceReason]]
    passing_status: frozenset[int]
    passing_reasons: frozenset[BounceReason]


CLASSES: Final = BounceClasses(
    by_subtype=_BY_SUBTYPE,
    by_class=_BY_CLASS,
    by_status=_BY_STATUS,
    by_subject=_BY_SUBJECT,
    hints=_HINTS,
    passing_status=frozenset((4,)),
    passing_reasons=frozenset((BounceReason.MAILBOX_FULL,)),
)
_DELAYS: Final = {
    "mailboxfull": BounceReason.MAILBOX_FULL,
    "spamdetected": BounceReason.CONTENT_REFUSED,
    "ipfailure": BounceReason.REPUTATION,
    "transientcommunicationfailure": BounceReason.TIMEOUT,
    "byoiphostnamelookupunavailable": BounceReason.DNS,
    "sendingdeferral": BounceReason.REPUTATION,
}
# The recipient took the mail out of the junk folder: the opposite of a complaint.
NOT_SPAM: Final = "not-spam"
_COMPLAINTS: Final = frozenset(("abuse", "auth-failure", "fraud", NOT_SPAM, "other", "virus"))
_STATUS: Final = re.compile(r"(?<![\d.])([245])\.(\d{1,3})\.(\d{1,3})(?![\d.]*\d)")
_WORDS: Final = re.compile(r"[\s<>()\[\]\",;:]+")
_BARELY_SAID: Final = frozenset((None, BounceReason.POLICY))


def classify_bounce(
    *,
    label: str | None,
    subtype: str | None,
    status: str | None,
    diagnostic: str | None,
    classes: BounceClasses = CLASSES,
) -> tuple[BounceType, BounceReason]:
    """How final the bounce is, and why it happened."""
    kind = _TYPES.get(_word(label), BounceType.UNDETERMINED)
    sub = _word(subtype)
    named = classes.by_subtype.get(sub)
    if named is not None:
        return kind, named
    if kind is BounceType.TRANSIENT and sub == "general" and not status and not diagnostic:
        return kind, BounceReason.AUTO_REPLY
    code = smtp_status(status, diagnostic)
    reason = _reason(code, diagnostic, classes)
    # Only the status gainsays SES here: single words of the text would, wherever somebody is called spam.reports.
    if sub == "noemail" and (code is None or _said(code, classes) in (None, BounceReason.OTHER)):
        reason = BounceReason.MAILBOX_UNKNOWN
    return _refined(kind, code, reason, classes), reason


def is_label(word: str | None) -> bool:
    """The word is one of SES's types of bounces."""
    return _word(word) in _TYPES


def delay_reason(delay_type: str | None) -> BounceReason:
    """Why SES is still trying."""
    return _DELAYS.get(_word(delay_type), BounceReason.OTHER)


def complaint_type(feedback_type: str | None) -> str | None:
    """The registered type, "other" for any other word, None if the mailbox provider said nothing."""
    if not feedback_type or not feedback_type.strip():
        return None
    word = feedback_type.strip().lower()
    return word if word in _COMPLAINTS else "other"


def is_suppression(complaint_subtype: str | None) -> bool:
    """SES says "complaint" and means that it did not send, since an older complaint put the address on its list."""
    return _BY_SUBTYPE.get(_word(complaint_subtype)) is BounceReason.SUPPRESSED_BY_PROVIDER


def smtp_status(status: str | None, diagnostic: str | None) -> SmtpStatus | None:
    """The enhanced status code; that of the diagnostic text where the field has none or only its class."""
    code = _first_status(status)
    if code is None or code[1:] == (0, 0):
        return _first_status(diagnostic) or code
    return code


def _first_status(text: str | None) -> SmtpStatus | None:
    found = _STATUS.search(text) if text else None
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def _reason(
    code: SmtpStatus | None, diagnostic: str | None, classes: BounceClasses
) -> BounceReason:
    said = None if code is None else _said(code, classes)
    if said in _BARELY_SAID and diagnostic:
        # An address tells whom it was for, not why it came back.
        text = " ".join(word for word in _WORDS.split(diagnostic.lower()) if "@" not in word)
        hinted = next((reason for pattern, reason in classes.hints if pattern.search(text)), None)
        said = hinted or said
    return said or BounceReason.OTHER


def _said(code: SmtpStatus, classes: BounceClasses) -> BounceReason | None:
    """What the status says by itself; None if it leaves it open."""
    by_class = classes.by_class.get(code)
    if by_class is not None:
        return by_class
    exact = classes.by_status.get(code[1:])
    if exact is not None or code[1:] == (0, 0):
        return exact
    return classes.by_subject.get(code[1], BounceReason.OTHER)


def _refined(
    kind: BounceType, code: SmtpStatus | None, reason: BounceReason, classes: BounceClasses
) -> BounceType:
    """SES's "permanent" is not believed where the recipient's own status says that it may pass."""
    if kind is not BounceType.PERMANENT:
        return kind
    passes = code is not None and code[0] in classes.passing_status
    return BounceType.TRANSIENT if passes or reason in classes.passing_reasons else kind


def _word(text: str | None) -> str:
    return "" if text is None else text.strip().lower().replace("-", "").replace("_", "")
