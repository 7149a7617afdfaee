"""The closed sets of words of FORMAT.md, and how a count, a one-of list and an address are compared."""

import re
from typing import Any, Final

KINDS: Final = ("sns_http", "ses_event", "ses_send", "scenario")
# No runner can read these: each has a test of its own, named by its id.
TOLD_IN_PROSE: Final = ("scenario",)

HTTP_REASONS: Final[dict[str | None, frozenset[int]]] = {
    None: frozenset({200}),
    "unsubscribed": frozenset({200}),
    "unreadable": frozenset({200}),
    "unauthorized": frozenset({401}),
    "too-large": frozenset({413}),
    "malformed": frozenset({400, 403}),
    "raw-delivery": frozenset({400, 403}),
    "unsigned": frozenset({400, 403}),
    "unsupported-version": frozenset({400, 403}),
    "unsupported-type": frozenset({400, 403}),
    "bad-certificate-url": frozenset({400, 403}),
    "bad-certificate": frozenset({403, 503}),
    "bad-signature": frozenset({400, 403}),
    "bad-subscribe-url": frozenset({400, 403}),
    "unknown-topic": frozenset({403}),
    "stale": frozenset({400, 403, 503}),
    "certificate-unavailable": frozenset({403, 503}),
    "confirmation-failed": frozenset({503}),
    "publish-failed": frozenset({503}),
    "overloaded": frozenset({503}),
}
STATUSES: Final = frozenset({200, 400, 401, 403, 413, 503})
SIGN: Final = frozenset(
    {"by-version", "sha1", "sha256", "no-final-newline", "second-key", "attacker", "none"}
)
CERTIFICATES: Final = frozenset(
    {
        "trusted",
        "second",
        "attacker",
        "expired",
        "not-yet-valid",
        "html",
        "empty",
        "404",
        "500",
        "redirect",
        "hang",
        "slow-once",
    }
)
KAFKA: Final = frozenset({"ok", "down"})
CONFIRM: Final = frozenset({"ok", "500", "hang"})
NEEDS: Final = frozenset({"basic-auth"})
ENCODINGS: Final = frozenset({"utf-8", "ascii"})

EVENT_TYPES: Final = frozenset(
    {
        "accepted",
        "delivered",
        "delayed",
        "bounced",
        "complained",
        "rejected",
        "rendering-failed",
        "opened",
        "clicked",
        "unsubscribed",
    }
)
BOUNCES: Final = frozenset({"permanent", "transient", "undetermined"})
BOUNCE_REASONS: Final = frozenset(
    {
        "mailbox-unknown",
        "mailbox-full",
        "message-too-large",
        "content-refused",
        "reputation",
        "policy",
        "auto-reply",
        "suppressed-by-provider",
        "dns",
        "timeout",
        "other",
    }
)
SUPPRESSION_REASONS: Final = frozenset(
    {"hard-bounce", "complaint", "soft-bounces", "unsubscribed", "provider-suppression", "manual"}
)
OUTCOMES: Final = frozenset({"accepted", "delivered", "delayed", "complained", "opened", "clicked"})
SENT_STATES: Final = frozenset({"submitted", "ambiguous", "sending"})
ROW_STATES: Final = SENT_STATES | {
    "pending",
    "failed",
    "suppressed",
    "expired",
    "cancelled",
    "refused",
}

ACCOUNTS: Final = frozenset({"healthy", "paused", "shutdown", "sandbox", "quota-used"})
SIGNALS: Final = frozenset({"SIGKILL", "SIGTERM"})
# Before a byte of the request is written.
CONNECTION_FAULTS: Final = frozenset({"refuse-connection", "tls-failure"})
FAULTS: Final = CONNECTION_FAULTS | {
    "no-answer",
    "reset-after-write",
    "close-after-write",
    "truncated-body",
}
CALL_OUTCOMES: Final = frozenset(
    {"accepted", "retry", "permanent", "throttled", "account-stop", "misconfigured", "unknown"}
)
PAUSES: Final = (None, "account", "stream", "lane", "tenant")
LIFE_CYCLE: Final = EVENT_TYPES | {"suppressed", "failed", "expired", "cancelled"}

TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def fits(found: float, count: Any) -> bool:
    """Whether a number is the count, or lies in [min, max]."""
    if isinstance(count, list):
        low, high = count
        return bool(low <= found <= high)
    return bool(found == count)


def is_count(value: Any) -> bool:
    if isinstance(value, list):
        numbers = [v for v in value if isinstance(v, int | float) and not isinstance(v, bool)]
        return len(numbers) == len(value) == 2 and 0 <= numbers[0] <= numbers[1]
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
