"""What becomes of a recipient: the mailbox simulator, then rules, else delivered.

The outcome depends on the address and the rules alone, so that a script can know it in advance.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from streams.simulator.addresses import is_mailbox_simulator
from streams.simulator.configuration_sets import EventType
from streams.simulator.settings import Milliseconds


class Fate(StrEnum):
    DELIVERED = "delivered"
    BOUNCE = "bounce"
    COMPLAINT = "complaint"
    """Delivered, then complained about."""
    AUTO_REPLY = "auto-reply"
    """Delivered, then answered by a machine: a transient bounce without a status."""
    DELAY = "delay"
    """Delayed, then delivered."""
    REJECT = "reject"
    """The whole message is rejected after acceptance."""
    RENDERING_FAILURE = "rendering-failure"
    """The whole message is accepted, never sent: its template lacks a value."""
    OPEN = "open"
    """Delivered, then opened."""
    CLICK = "click"
    """Delivered, opened, and a link in it clicked."""
    SUBSCRIPTION = "subscription"
    """Delivered, then unsubscribed from its contact list."""
    SCRIPT = "script"
    """What the steps of a script say, and nothing else."""


WHOLE_MESSAGE = (Fate.REJECT, Fate.RENDERING_FAILURE)
"""Fates of one recipient that all the others share."""

BOUNCE_SUBTYPES = {
    "Permanent": (
        "General",
        "NoEmail",
        "Suppressed",
        "OnAccountSuppressionList",
        "OnTenantSuppressionList",
        "EmailValidationSuppressed",
        "UnsubscribedRecipient",
    ),
    "Transient": (
        "General",
        "MailboxFull",
        "MessageTooLarge",
        "ContentRejected",
        "AttachmentRejected",
        "CustomTimeoutExceeded",
    ),
    "Undetermined": ("Undetermined",),
}
FEEDBACK_TYPES = ("abuse", "auth-failure", "fraud", "not-spam", "other", "virus", "none")
DELAY_TYPES = (
    "InternalFailure",
    "General",
    "MailboxFull",
    "SpamDetected",
    "RecipientServerError",
    "IPFailure",
    "TransientCommunicationFailure",
    "BYOIPHostNameLookupUnavailable",
    "Undetermined",
    "SendingDeferral",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One fate with its details; `status` and `diagnostic` None: those of the subtype.

    `fields` is a JSON object that is laid over the details of the record, `omit` names what is
    left out of them.
    """

    fate: Fate
    bounce_type: str = "Permanent"
    bounce_subtype: str = "General"
    status: str | None = None
    diagnostic: str | None = None
    feedback_type: str | None = "abuse"
    complaint_subtype: str | None = None
    delay_type: str = "General"
    template_name: str = ""
    error: str = ""
    link: str = "https://example.com/"
    fields: str = ""
    omit: tuple[str, ...] = ()
    steps: tuple["Step", ...] = ()
    suppresses: bool = True
    """Whether the address then goes to the account's suppression list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event of a script, in milliseconds after acceptance.

    `occurs_ms` None: it says that it happened when it is published. Copies come `copies_ms` after
    one another, under the same SNS id or each under its own.
    """

    event: EventType
    outcome: Outcome
    after_ms: Milliseconds = (0, 0)
    occurs_ms: int | None = None
    early: bool = False
    age_s: float = 0.0
    copies: int = 1
    same_id: bool = True
    copies_ms: int = 0
    legacy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Gives `outcome` to a share of the addresses that match."""

    match: str
    share: float
    seed: str
    outcome: Outcome

    def applies_to(self, address: str) -> bool:
        return fnmatchcase(address, self.match) and chance(self.seed, address) < self.share


DELIVERED = Outcome(fate=Fate.DELIVERED)
AUTO_REPLY = Outcome(
    fate=Fate.AUTO_REPLY, bounce_type="Transient", bounce_subtype="General", suppresses=False
)
ON_ACCOUNT_LIST = Outcome(
    fate=Fate.BOUNCE, bounce_subtype="OnAccountSuppressionList", suppresses=False
)
_MAILBOX_SIMULATOR = {
    "bounce": Outcome(fate=Fate.BOUNCE, suppresses=False),
    "ooto": AUTO_REPLY,
    "complaint": Outcome(fate=Fate.COMPLAINT, suppresses=False),
    "suppressionlist": Outcome(fate=Fate.BOUNCE, bounce_subtype="Suppressed", suppresses=False),
}


def chance(seed: str, address: str) -> float:
    """A number in [0, 1): the first 8 bytes of SHA-256 of `seed|address`, the address in lower
    case, as a big-endian fraction of 2**64."""
    digest = hashlib.sha256(f"{seed}|{address.lower()}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def outcome_for(address: str, rules: Sequence[Rule]) -> Outcome:
    """The mailbox simulator's fate for its addresses, else that of the first rule that applies."""
    if is_mailbox_simulator(address):
        name = address.rpartition("@")[0].partition("+")[0].lower()
        return _MAILBOX_SIMULATOR.get(name, DELIVERED)
    lowered = address.lower()
    for rule in rules:
        if rule.applies_to(lowered):
            return rule.outcome
    return DELIVERED
