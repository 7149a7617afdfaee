"""What becomes of a recipient: the mailbox simulator, then rules, else delivered.

The outcome depends on the address and the rules alone, so that a script can know it in advance.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from streams.simulator.addresses import is_mailbox_simulator
from streams.simulator.strict import BadDocumentError, Document, Fields


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
    """One fate with its details; `status` and `diagnostic` None: those of the subtype."""

    fate: Fate
    bounce_type: str = "Permanent"
    bounce_subtype: str = "General"
    status: str | None = None
    diagnostic: str | None = None
    feedback_type: str | None = "abuse"
    delay_type: str = "General"
    suppresses: bool = True
    """Whether the address then goes to the account's suppression list."""


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


def read_rules(documents: list[Document], seed: str) -> tuple[Rule, ...]:
    """Rules from JSON; the seed of rule n is `<seed>-<n>`, counted from 0, unless it has its own."""
    return tuple(_read_rule(document, f"{seed}-{n}", n) for n, document in enumerate(documents))


def _read_rule(document: Document, seed: str, number: int) -> Rule:
    fields = Fields(document, where=f"rule {number}")
    rule = Rule(
        match=fields.text("match").lower(),
        share=fields.share("share", 1.0),
        seed=fields.text("seed", seed),
        outcome=_read_outcome(fields, number),
    )
    fields.done()
    return rule


def _read_outcome(fields: Fields, number: int) -> Outcome:
    fate = Fate(fields.choice("outcome", list(Fate)))
    if fate is Fate.BOUNCE:
        return _read_bounce(fields, number)
    if fate is Fate.COMPLAINT:
        feedback = fields.choice("feedback_type", FEEDBACK_TYPES, "abuse")
        return Outcome(
            fate=fate,
            feedback_type=None if feedback == "none" else feedback,
            suppresses=feedback != "not-spam",
        )
    if fate is Fate.DELAY:
        return Outcome(fate=fate, delay_type=fields.choice("delay_type", DELAY_TYPES, "General"))
    return AUTO_REPLY if fate is Fate.AUTO_REPLY else Outcome(fate=fate)


def _read_bounce(fields: Fields, number: int) -> Outcome:
    bounce_type = fields.choice("bounce_type", BOUNCE_SUBTYPES, "Permanent")
    subtypes = BOUNCE_SUBTYPES[bounce_type]
    subtype = fields.text("bounce_subtype", subtypes[0])
    if subtype not in subtypes:
        raise BadDocumentError(
            f"Field 'bounce_subtype' in rule {number} must be one of {', '.join(subtypes)}."
        )
    return Outcome(
        fate=Fate.BOUNCE,
        bounce_type=bounce_type,
        bounce_subtype=subtype,
        status=fields.text("status", "") or None,
        diagnostic=fields.text("diagnostic", "") or None,
        suppresses=subtype in ("General", "NoEmail") and bounce_type == "Permanent",
    )
