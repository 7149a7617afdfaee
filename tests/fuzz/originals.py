"""Genuine envelopes that the fuzzer starts from, with what each does when it is accepted."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.sns_signing import (
    bounce,
    complaint,
    confirmation,
    delivery,
    notification,
    ses_event,
    signed,
    timestamp,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """An envelope as SNS sends it: its reason when accepted, and how many events, kept messages and confirmations it makes."""

    fields: Mapping[str, Any]
    reason: str = "accepted"
    events: int = 0
    kept: int = 0
    confirmations: int = 0

    @property
    def body(self) -> bytes:
        return json.dumps(dict(self.fields)).encode()


def originals() -> list[Original]:
    """Signed now, since their age counts."""
    now = timestamp(datetime.now(UTC))
    to_three = [f"user{n}@example.com" for n in range(3)]
    named = [{"emailAddress": a, "status": "5.1.1", "action": "failed"} for a in to_three]
    tags = {"attempt": ["0190b2c4-0000-7000-8000-000000000001"], "ses:from-domain": ["example.com"]}
    messages: list[tuple[Any, int]] = [
        (ses_event("Delivery", delivery(), tags=tags), 1),
        (ses_event("Bounce", bounce(*named), destination=to_three), 3),
        (ses_event("Complaint", complaint()), 1),
        (ses_event("Send", {}, tags={**tags, "pad": ["ü" * 20_000]}), 1),
    ]
    subjects: list[dict[str, object]] = [
        {},
        {"Subject": "Amazon SES Email Event Notification"},
        {"Subject": ""},
        {"Subject": None, "MessageAttributes": {"a": {"Type": "String", "Value": "b"}}},
    ]
    found = [
        made(notification(text, SignatureVersion=version, Timestamp=now, **subject), events=events)
        for text, events in messages
        for version in "12"
        for subject in subjects
    ]
    broken = notification('{"eventType":"Bounce"', Timestamp=now)
    found.append(made(broken, reason="unreadable", kept=1))
    for version in "12":
        asked = confirmation(SignatureVersion=version, Timestamp=now)
        found.append(made(asked, confirmations=1))
        ended = confirmation("UnsubscribeConfirmation", SignatureVersion=version, Timestamp=now)
        found.append(made(ended, reason="unsubscribed"))
    return found


def made(envelope: Mapping[str, Any], **outcome: Any) -> Original:
    return Original(fields=json.loads(signed(envelope)), **outcome)
