"""Outcomes follow from address and rules alone."""

import hashlib

import pytest

from streams.simulator.outcomes import Fate, Rule, chance, outcome_for
from streams.simulator.rules import read_rules
from streams.simulator.strict import BadDocumentError

ADDRESSES = [f"user{n}@example.com" for n in range(20_000)]


def rules(*documents: dict[str, object]) -> tuple[Rule, ...]:
    return read_rules(list(documents), "seed")


@pytest.mark.parametrize(
    ("address", "fate", "detail"),
    [
        ("success@simulator.amazonses.com", Fate.DELIVERED, None),
        ("bounce@simulator.amazonses.com", Fate.BOUNCE, "General"),
        ("Bounce+label@Simulator.AmazonSES.com", Fate.BOUNCE, "General"),
        ("ooto+1@simulator.amazonses.com", Fate.AUTO_REPLY, "General"),
        ("complaint@simulator.amazonses.com", Fate.COMPLAINT, None),
        ("suppressionlist@simulator.amazonses.com", Fate.BOUNCE, "Suppressed"),
        ("bounce@example.com", Fate.DELIVERED, None),
    ],
)
def test_the_mailbox_simulator_has_its_fates(address: str, fate: Fate, detail: str | None) -> None:
    outcome = outcome_for(address, ())
    assert outcome.fate is fate
    assert not (outcome.suppresses and fate is not Fate.DELIVERED)
    assert detail in (None, outcome.bounce_subtype)


def test_a_rule_cannot_change_the_mailbox_simulator() -> None:
    everyone_bounces = rules({"match": "*", "outcome": "bounce"})
    assert outcome_for("success@simulator.amazonses.com", everyone_bounces).fate is Fate.DELIVERED


def test_a_share_is_kept_and_can_be_computed_by_a_script() -> None:
    bouncing = rules({"match": "*@example.com", "share": 0.03, "outcome": "bounce"})
    hit = {a for a in ADDRESSES if outcome_for(a, bouncing).fate is Fate.BOUNCE}
    by_hand = {
        a
        for a in ADDRESSES
        if int.from_bytes(hashlib.sha256(f"seed-0|{a}".encode()).digest()[:8], "big") < 0.03 * 2**64
    }
    assert hit == by_hand
    assert 0.026 < len(hit) / len(ADDRESSES) < 0.034


def test_another_seed_chooses_other_addresses() -> None:
    document: dict[str, object] = {"match": "*", "share": 0.5, "outcome": "bounce"}
    one, two = read_rules([document], "one"), read_rules([document], "two")
    assert {outcome_for(a, one).fate == outcome_for(a, two).fate for a in ADDRESSES[:200]} == {
        True,
        False,
    }


def test_case_of_the_address_does_not_change_its_fate() -> None:
    assert chance("s", "Ann@Example.COM") == chance("s", "ann@example.com")
    bouncing = rules({"match": "ANN@example.com", "outcome": "bounce"})
    assert outcome_for("ann@EXAMPLE.com", bouncing).fate is Fate.BOUNCE


def test_the_first_rule_that_applies_wins() -> None:
    both = rules(
        {"match": "ann@example.com", "outcome": "complaint"},
        {"match": "*@example.com", "outcome": "bounce"},
    )
    assert outcome_for("ann@example.com", both).fate is Fate.COMPLAINT
    assert outcome_for("bob@example.com", both).fate is Fate.BOUNCE
    assert outcome_for("bob@example.net", both).fate is Fate.DELIVERED


def test_details_are_kept() -> None:
    (rule,) = rules(
        {
            "match": "*",
            "outcome": "bounce",
            "bounce_type": "Transient",
            "bounce_subtype": "MailboxFull",
            "status": "4.2.9",
            "diagnostic": "smtp; 452 4.2.9 later",
        }
    )
    assert (rule.outcome.status, rule.outcome.suppresses) == ("4.2.9", False)


@pytest.mark.parametrize(
    ("feedback", "kept", "suppresses"),
    [("abuse", "abuse", True), ("not-spam", "not-spam", False), ("none", None, True)],
)
def test_complaints_carry_their_feedback_type(
    feedback: str, kept: str | None, suppresses: bool
) -> None:
    (rule,) = rules({"match": "*", "outcome": "complaint", "feedback_type": feedback})
    assert (rule.outcome.feedback_type, rule.outcome.suppresses) == (kept, suppresses)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"outcome": "bounce"}, "Field 'match' is missing in rule 0."),
        ({"match": "*"}, "Field 'outcome' is missing in rule 0."),
        (
            {"match": "*", "outcome": "vanish"},
            (
                "Field 'outcome' in rule 0 must be one of auto-reply, bounce, click, "
                "complaint, delay, delivered, open, reject, rendering-failure, subscription."
            ),
        ),
        (
            {"match": "*", "outcome": "bounce", "share": 3},
            "Field 'share' in rule 0 must be between 0 and 1.",
        ),
        (
            {"match": "*", "outcome": "bounce", "bounce_subtype": "MailboxFull"},
            (
                "Field 'bounce_subtype' in rule 0 must be one of General, NoEmail, Suppressed, "
                "OnAccountSuppressionList, OnTenantSuppressionList, EmailValidationSuppressed, "
                "UnsubscribedRecipient."
            ),
        ),
        (
            {"match": "*", "outcome": "delivered", "bounce_type": "Permanent"},
            "Unknown field 'bounce_type' in rule 0; known fields: match, share, seed, outcome.",
        ),
    ],
)
def test_bad_rules_are_named(document: dict[str, object], message: str) -> None:
    with pytest.raises(BadDocumentError) as caught:
        rules(document)
    assert str(caught.value) == message
