"""Who gets no more mail after an event, and what counts in Amazon's rates."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_classes import classify_bounce
from streams.domain.bounce_rules import (
    RULE_VERSION,
    RULE_VERSIONS,
    RULES,
    RuleSet,
    classified,
    complaint_share,
    hard_bounce_share,
    suppression_for,
)
from streams.domain.delivery_events import (
    Bounce,
    BounceReason,
    BounceType,
    Complaint,
    DeliveryEvent,
    EventId,
    EventType,
)

AT = datetime(2026, 1, 15, 10, 0, tzinfo=UTC)


def event(kind: EventType, **fields: Any) -> DeliveryEvent:
    return DeliveryEvent(
        id=EventId("e-1"), type=kind, time=AT, recipient_key=RecipientKey("0" * 32), **fields
    )


def bounce(label: str, subtype: str = "General", **fields: Any) -> DeliveryEvent:
    status, diagnostic = fields.pop("status", None), fields.pop("diagnostic", None)
    kind, reason = classify_bounce(
        label=label, subtype=subtype, status=status, diagnostic=diagnostic
    )
    found = Bounce(
        type=kind,
        reason=reason,
        provider_type=label,
        provider_subtype=subtype,
        status=status,
        diagnostic=diagnostic,
    )
    return event(EventType.BOUNCED, bounce=found, **fields)


def complaint(label: str | None, subtype: str | None = None, **fields: Any) -> DeliveryEvent:
    return event(EventType.COMPLAINED, complaint=Complaint(type=label, subtype=subtype), **fields)


def effect(happened: DeliveryEvent, tenant: str | None = "shop") -> tuple[str, str, str] | None:
    found = suppression_for(happened, tenant=tenant)
    return None if found is None else (found.tenant, found.lane, found.reason.value)


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        (bounce("Permanent", status="5.1.1"), ("*", "*", "hard-bounce")),
        (bounce("Permanent", "NoEmail"), ("*", "*", "hard-bounce")),
        (bounce("Permanent", "Suppressed"), ("*", "*", "provider-suppression")),
        (bounce("Permanent", "OnAccountSuppressionList"), ("*", "*", "provider-suppression")),
        (bounce("Permanent", "OnTenantSuppressionList"), ("*", "*", "provider-suppression")),
        (bounce("Permanent", "UnsubscribedRecipient"), ("shop", "bulk", "unsubscribed")),
        (bounce("Permanent", status="5.7.1", diagnostic="550 blocked by spamhaus"), None),
        (bounce("Permanent", status="5.7.1"), None),
        (bounce("Permanent", status="5.6.0"), None),
        (bounce("Transient", "MailboxFull"), None),
        (bounce("Transient", "ContentRejected"), None),
        (bounce("Transient"), None),
        (bounce("Undetermined", "Undetermined"), None),
        (complaint("abuse"), ("shop", "*", "complaint")),
        (complaint(None), ("shop", "*", "complaint")),
        (complaint("other"), ("shop", "*", "complaint")),
        (complaint("not-spam"), None),
        (complaint(None, "OnAccountSuppressionList"), ("*", "*", "provider-suppression")),
        (event(EventType.UNSUBSCRIBED), ("shop", "bulk", "unsubscribed")),
        (event(EventType.REJECTED, reason="content-refused"), None),
        (event(EventType.DELIVERED), None),
        (event(EventType.DELAYED, reason="mailbox-full"), None),
    ],
)
def test_what_an_event_suppresses(
    happened: DeliveryEvent, expected: tuple[str, str, str] | None
) -> None:
    assert effect(happened) == expected


@pytest.mark.parametrize("happened", [complaint("abuse"), event(EventType.UNSUBSCRIBED)])
def test_without_a_known_tenant_it_holds_for_all(happened: DeliveryEvent) -> None:
    found = effect(happened, tenant=None)
    assert found is not None
    assert found[0] == "*"


@pytest.mark.parametrize("reason", BounceReason)
def test_no_transient_bounce_suppresses_unless_the_provider_did(reason: BounceReason) -> None:
    happened = event(EventType.BOUNCED, bounce=Bounce(type=BounceType.TRANSIENT, reason=reason))
    suppressed = effect(happened) is not None
    assert suppressed is (reason is BounceReason.SUPPRESSED_BY_PROVIDER)


def test_a_suppression_names_its_evidence_and_its_rules() -> None:
    found = suppression_for(complaint("abuse"), tenant="shop")
    assert found is not None
    assert (found.evidence_id, found.evidence_at) == ("e-1", AT)
    assert found.rule_version == RULE_VERSION


@pytest.mark.parametrize(
    ("named", "expected"), [(None, False), ([], False), ([{}], False), ([{}, {}], True)]
)
def test_a_complaint_that_names_several_people_is_marked(
    named: list[dict[str, str]] | None, expected: bool
) -> None:
    found = suppression_for(
        complaint("abuse", raw={"complaint": {"complainedRecipients": named}}), tenant="shop"
    )
    assert found is not None
    assert found.unattributed is expected


def test_versions_are_numbered_and_events_are_folded_with_one_of_them() -> None:
    assert {n: rules.version for n, rules in RULE_VERSIONS.items()} == {n: n for n in RULE_VERSIONS}
    assert RULES is RULE_VERSIONS[RULE_VERSION]


def later(monkeypatch: pytest.MonkeyPatch) -> RuleSet:
    """A version that takes every 5.1.1 for a passing fault."""
    classes = replace(
        RULES.classes,
        by_class={**RULES.classes.by_class, (5, 1, 1): BounceReason.DNS},
        passing_reasons=frozenset((BounceReason.DNS,)),
    )
    rules = replace(RULES, version=99, classes=classes)
    monkeypatch.setattr("streams.domain.bounce_rules.RULE_VERSIONS", {1: RULES, 99: rules})
    return rules


def test_a_version_classifies_the_words_of_the_provider_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = later(monkeypatch)
    happened = bounce("Permanent", status="5.1.1")
    assert suppression_for(happened, tenant=None, rules=rules) is None
    again = classified(happened, rules).bounce
    assert again is not None
    assert (again.type, again.reason) == (BounceType.TRANSIENT, BounceReason.DNS)
    back = classified(replace(happened, bounce=again), RULES)
    assert back == happened


@pytest.mark.parametrize(
    ("reason", "provider_type"),
    [(BounceReason.REPUTATION, "Permanent"), (BounceReason.MAILBOX_UNKNOWN, "Complaint")],
)
def test_what_no_version_classifies_as_published_stays_as_published(
    monkeypatch: pytest.MonkeyPatch, reason: BounceReason, provider_type: str
) -> None:
    rules = later(monkeypatch)
    happened = bounce("Permanent", status="5.1.1")
    assert happened.bounce is not None
    published = replace(happened.bounce, reason=reason, provider_type=provider_type)
    happened = replace(happened, bounce=published)
    assert classified(happened, rules) == happened


@pytest.mark.parametrize(
    ("happened", "share"),
    [
        (bounce("Permanent", status="5.1.1"), 1),
        (bounce("Permanent", status="5.7.1"), 1),
        (bounce("Permanent", "Suppressed"), 1),
        (bounce("Permanent", "OnAccountSuppressionList"), 0),
        (bounce("Transient", "MailboxFull"), 0),
        (bounce("Permanent", status="5.1.1", raw={"mailbox_simulator": True}), 0),
        (complaint("abuse"), 0),
    ],
)
def test_bounces_count_as_amazon_counts_them(happened: DeliveryEvent, share: float) -> None:
    assert hard_bounce_share(happened) == share


def naming(*keys: str, destination: Sequence[str] = ()) -> dict[str, Any]:
    named = [{"emailAddress": key} for key in keys]
    return {
        "mail": {"destination": list(destination)},
        "complaint": {"complainedRecipients": named},
    }


@pytest.mark.parametrize(
    ("happened", "share"),
    [
        (complaint("abuse"), 1),
        (complaint(None), 1),
        (complaint("not-spam"), 0),
        (complaint(None, "OnAccountSuppressionList"), 0),
        (complaint("abuse", raw={"mailbox_simulator": True}), 0),
        (complaint("abuse", raw={"complaint": {"complainedRecipients": [{}, {}]}}), 0.5),
        (complaint("abuse", raw=naming("a", "b")), 0.5),
        (complaint("abuse", raw=naming("a", "a")), 1),
        (complaint("abuse", raw=naming("b", "c", destination=["a"])), 1),
        (complaint("abuse", raw=naming("a", "b", destination=["a", "b", "c"])), 0.5),
        (complaint("abuse", raw={"complaint": {"complainedRecipients": []}}), 1),
        (complaint("abuse", raw={"complaint": "strange"}), 1),
        (bounce("Permanent", status="5.1.1"), 0),
    ],
)
def test_a_complaint_about_several_people_counts_once(
    happened: DeliveryEvent, share: float
) -> None:
    assert complaint_share(happened) == share
