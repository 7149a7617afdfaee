"""The records that event publishing writes, in the shapes of the SES guide."""

from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formataddr, formatdate, getaddresses
from typing import Any

import orjson

from streams.simulator.addresses import domain_of
from streams.simulator.clock import iso_milliseconds
from streams.simulator.configuration_sets import EventType
from streams.simulator.identifiers import random_uuid
from streams.simulator.outcomes import Fate, Outcome
from streams.simulator.send_email import Submission

MAX_HEADER_BYTES = 10 * 1024
OUTGOING_IP = "192.0.2.10"
REMOTE_IP = "198.51.100.20"
_DELAY_EXPIRES_S = 14 * 3600
_COMMON_HEADERS = {"from": "from", "reply-to": "replyTo", "to": "to", "cc": "cc"}

Record = dict[str, Any]

_TEXTS = {
    "NoEmail": ("5.1.1", "smtp; 550 5.1.1 user unknown"),
    "Suppressed": ("5.1.1", "Address is on the suppression list of Amazon SES"),
    "OnAccountSuppressionList": ("5.1.1", "Address is on the suppression list of your account"),
    "OnTenantSuppressionList": ("5.1.1", "Address is on the suppression list of your tenant"),
    "EmailValidationSuppressed": ("5.1.1", "Address did not pass e-mail validation"),
    "UnsubscribedRecipient": ("5.1.1", "Recipient has unsubscribed from the contact list"),
    "MailboxFull": ("4.2.2", "smtp; 452 4.2.2 mailbox full"),
    "MessageTooLarge": ("5.3.4", "smtp; 552 5.3.4 message too big"),
    "ContentRejected": ("5.7.1", "smtp; 554 5.7.1 message content rejected"),
    "AttachmentRejected": ("5.7.1", "smtp; 552 5.7.1 attachment type not allowed"),
    "CustomTimeoutExceeded": ("4.4.7", "smtp; 451 4.4.7 message expired"),
    "Undetermined": ("5.0.0", "smtp; 550 unknown failure"),
}
_GENERAL = {
    "Permanent": ("5.1.1", "smtp; 550 5.1.1 user unknown"),
    "Transient": ("4.0.0", "smtp; 450 4.0.0 temporary failure"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingAccount:
    """Who sends, as auto-tags and ARNs say it."""

    region: str
    account_id: str
    caller: str


def mail_object(
    submission: Submission,
    *,
    message_id: str,
    accepted_at: float,
    source_ip: str,
    account: SendingAccount,
) -> Record:
    """`mail` as the Send record has it."""
    headers, truncated = _cut(submission.headers)
    common: Record = {
        "from": [submission.source],
        "date": formatdate(accepted_at),
        "messageId": message_id,
        "subject": submission.subject,
    }
    for name, value in submission.headers:
        key = _COMMON_HEADERS.get(name.lower())
        if key is not None:
            common[key] = _mailboxes(value)
    domain = domain_of(submission.source)
    tags: dict[str, list[str]] = {
        "ses:operation": [submission.operation],
        "ses:configuration-set": [submission.configuration_set or ""],
        "ses:source-ip": [source_ip],
        "ses:from-domain": [domain],
        "ses:caller-identity": [account.caller],
    }
    for name, value in submission.tags:
        tags.setdefault(name, []).append(value)
    return {
        "timestamp": iso_milliseconds(accepted_at),
        "source": submission.source,
        "sourceArn": f"arn:aws:ses:{account.region}:{account.account_id}:identity/{domain}",
        "sendingAccountId": account.account_id,
        "messageId": message_id,
        "destination": list(submission.recipients),
        "headersTruncated": truncated,
        "headers": headers,
        "commonHeaders": common,
        "tags": tags,
    }


def _mailboxes(value: str) -> list[str]:
    if "," not in value:
        return [value]
    return [formataddr(pair) for pair in getaddresses([value])]


def _cut(headers: Sequence[tuple[str, str]]) -> tuple[list[Record], bool]:
    kept: list[Record] = []
    size = 0
    for name, value in headers:
        size += len(name) + len(value.encode()) + 4
        if size > MAX_HEADER_BYTES:
            return kept, True
        kept.append({"name": name, "value": value})
    return kept, False


def after_send(mail: Record) -> Record:
    """`mail` of every later record: the outgoing address is known by then."""
    return {**mail, "tags": {**mail["tags"], "ses:outgoing-ip": [OUTGOING_IP]}}


def without_headers(mail: Record) -> Record:
    """`mail` as delays and rendering failures have it."""
    return {name: value for name, value in mail.items() if name not in ("headers", "commonHeaders")}


def of_identity(mail: Record, *, headers: bool) -> Record:
    """`mail` as notifications of identities have it: no tags, and headers only if asked for."""
    tags = mail["tags"]
    kept = mail if headers else without_headers(mail)
    result = {name: value for name, value in kept.items() if name != "tags"}
    if not headers:
        del result["headersTruncated"]
    return result | {
        "sourceIp": tags["ses:source-ip"][0],
        "callerIdentity": tags["ses:caller-identity"][0],
    }


def record_json(
    event: EventType, mail: bytes, details: Record, *, legacy: bool = False, strange: bool = False
) -> str:
    """The text of one record; `mail` is the mail object as JSON, `strange` adds unknown members."""
    record: Record = {
        "notificationType" if legacy else "eventType": event.value,
        "mail": orjson.Fragment(mail),
        _details_name(event): {**details, **(_STRANGE if strange else {})},
    }
    return orjson.dumps({**record, **_STRANGE} if strange else record).decode()


_STRANGE: Record = {"simulatedMember": {"of": ["a", "later", "version", None, 1.5]}}


def _details_name(event: EventType) -> str:
    if event is EventType.RENDERING_FAILURE:
        return "failure"
    return event.value[0].lower() + event.value[1:]


def delivery(recipients: Sequence[str], *, at: float, accepted_at: float) -> Record:
    return {
        "timestamp": iso_milliseconds(at),
        "processingTimeMillis": max(0, round((at - accepted_at) * 1000)),
        "recipients": list(recipients),
        "smtpResponse": "250 2.0.0 OK",
        "remoteMtaIp": REMOTE_IP,
        "reportingMTA": "a1-2.smtp-out.amazonses.com",
    }


def bounce(recipients: Sequence[str], outcome: Outcome, *, at: float, feedback_id: str) -> Record:
    """An automatic reply has recipients without action, status and diagnostic."""
    reply = outcome.fate is Fate.AUTO_REPLY
    status, diagnostic = _GENERAL.get(outcome.bounce_type, ("5.0.0", "smtp; 550 failed"))
    status, diagnostic = _TEXTS.get(outcome.bounce_subtype, (status, diagnostic))
    details = {
        "action": "failed",
        "status": outcome.status or status,
        "diagnosticCode": outcome.diagnostic or diagnostic,
    }
    return {
        "bounceType": outcome.bounce_type,
        "bounceSubType": outcome.bounce_subtype,
        "bouncedRecipients": [
            {"emailAddress": recipient, **({} if reply else details)} for recipient in recipients
        ],
        "timestamp": iso_milliseconds(at),
        "feedbackId": feedback_id,
        "reportingMTA": f"dns; mx.{domain_of(recipients[0])}",
    }


def complaint(
    recipients: Sequence[str], outcome: Outcome, *, at: float, feedback_id: str
) -> Record:
    details: Record = {
        "complainedRecipients": [{"emailAddress": recipient} for recipient in recipients],
        "timestamp": iso_milliseconds(at),
        "feedbackId": feedback_id,
        "complaintSubType": outcome.complaint_subtype,
        "userAgent": "Simulated Feedback Loop/1.0",
        "arrivalDate": iso_milliseconds(at),
    }
    if outcome.feedback_type is not None:
        details["complaintFeedbackType"] = outcome.feedback_type
    return details


def delivery_delay(recipients: Sequence[str], outcome: Outcome, *, at: float) -> Record:
    status, diagnostic = _TEXTS.get(outcome.delay_type, _GENERAL["Transient"])
    details = {
        "status": outcome.status or status,
        "diagnosticCode": outcome.diagnostic or diagnostic,
    }
    return {
        "timestamp": iso_milliseconds(at),
        "delayType": outcome.delay_type,
        "expirationTime": iso_milliseconds(at + _DELAY_EXPIRES_S),
        "reportingMTA": "a1-2.smtp-out.amazonses.com",
        "delayedRecipients": [{"emailAddress": recipient, **details} for recipient in recipients],
    }


def reject() -> Record:
    return {"reason": "Bad content"}


def rendering_failure(outcome: Outcome) -> Record:
    return {"templateName": outcome.template_name, "errorMessage": outcome.error}


def opened(*, at: float) -> Record:
    return {
        "ipAddress": REMOTE_IP,
        "timestamp": iso_milliseconds(at),
        "userAgent": "Mozilla/5.0 (simulated)",
    }


def clicked(outcome: Outcome, *, at: float) -> Record:
    return {**opened(at=at), "link": outcome.link, "linkTags": None}


def subscription(*, at: float) -> Record:
    """An opt-out of everything by the header."""
    topics: Record = {"topicSubscriptionStatus": []}
    return {
        "contactList": "example-list",
        "timestamp": iso_milliseconds(at),
        "source": "UnsubscribeHeader",
        "newTopicPreferences": {"unsubscribeAll": True, **topics},
        "oldTopicPreferences": {"unsubscribeAll": False, **topics},
    }


def provider_id(now: float) -> str:
    """An id as SES makes them, for messages and for feedback."""
    return f"0107{int(now * 1000):012x}-{random_uuid()}-000000"
