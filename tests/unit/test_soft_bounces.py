"""When messages that bounced softly are a streak, and when a streak suppresses."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_classes import classify_bounce
from streams.domain.bounce_rules import RULES, SuppressionReason
from streams.domain.delivery_events import (
    Bounce,
    BounceReason,
    BounceType,
    DeliveryEvent,
    EventId,
    EventType,
)
from streams.domain.derivation import derive
from streams.domain.facts import Changes, Placed
from streams.domain.lifts import Lift, Lifts

START = datetime(2026, 1, 15, 10, 0, tzinfo=UTC)
KEY = RecipientKey("0" * 32)


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def bounce(
    hours: float,
    message: str | None = None,
    *,
    label: str = "Transient",
    subtype: str = "General",
    status: str | None = "4.4.7",
    tenant: str | None = "shop",
) -> Placed:
    kind, reason = classify_bounce(label=label, subtype=subtype, status=status, diagnostic=None)
    found = Bounce(
        type=kind, reason=reason, provider_type=label, provider_subtype=subtype, status=status
    )
    return happened(EventType.BOUNCED, hours, message, tenant=tenant, bounce=found)


def delivery(hours: float, message: str = "delivered", **fields: Any) -> Placed:
    return happened(EventType.DELIVERED, hours, message, **fields)


def happened(
    kind: EventType,
    hours: float,
    message: str | None,
    *,
    tenant: str | None = "shop",
    outbox_id: UUID | None = None,
    **fields: Any,
) -> Placed:
    event = DeliveryEvent(
        id=EventId(f"{kind}-{hours}-{message}"),
        type=kind,
        time=at(hours),
        recipient_key=KEY,
        provider_message_id=message or f"m-{hours}",
        **fields,
    )
    return Placed(event=event, tenant=tenant, outbox_id=outbox_id)


def streak(found: Changes) -> int:
    return sum(state.soft_bounce_streak for state in found.states)


FIVE = [bounce(hours) for hours in (0, 24, 48, 72, 96)]


def test_five_in_a_row_over_four_days_suppress_for_14_days_after_the_last() -> None:
    [found] = derive(FIVE).suppressions
    assert (found.tenant, found.lane, found.reason) == ("shop", "*", "soft-bounces")
    assert found.evidence_id == FIVE[-1].event.id
    assert (found.evidence_at, found.expires) == (at(96), at(96) + timedelta(days=14))


@pytest.mark.parametrize(
    ("hours", "suppressed"),
    [
        ((0, 24, 48, 72), False),
        ((0, 1, 2, 3, 71.9), False),
        ((0, 1, 2, 3, 72), True),
        ((0, 0.1, 0.2, 0.3, 0.4, 72.1), True),
        ((0, 1000, 2000, 3000, 4000), True),
    ],
)
def test_it_takes_five_over_72_hours(hours: tuple[float, ...], suppressed: bool) -> None:
    found = derive(map(bounce, hours))
    assert streak(found) == len(hours)
    assert bool(found.suppressions) is suppressed


@pytest.mark.parametrize(
    ("delivered", "left"), [(-1, 5), (0, 4), (50, 2), (72, 1), (96, 0), (200, 0)]
)
def test_a_delivery_leaves_only_the_bounces_after_it(delivered: float, left: int) -> None:
    found = derive([*FIVE, delivery(delivered)])
    assert streak(found) == left
    assert bool(found.suppressions) is (left == 5)


def test_a_delivery_of_another_tenants_message_ends_no_streak() -> None:
    """Tenants send from addresses of their own; what one of them may send says little about another."""
    assert len(derive([*FIVE, delivery(50, tenant="other")]).suppressions) == 1


@pytest.mark.parametrize(
    ("label", "subtype", "status"),
    [
        ("Transient", "General", None),
        ("Transient", "MessageTooLarge", "5.3.4"),
        ("Transient", "ContentRejected", "5.6.0"),
        ("Transient", "AttachmentRejected", "5.7.0"),
        ("Transient", "General", "4.7.1"),
        ("Transient", "General", "4.7.28"),
        ("Undetermined", "Undetermined", None),
        ("Permanent", "General", "5.7.1"),
    ],
)
def test_what_says_nothing_about_the_mailbox_neither_counts_nor_ends_a_streak(
    label: str, subtype: str, status: str | None
) -> None:
    others = [
        bounce(hours, f"other-{hours}", label=label, subtype=subtype, status=status)
        for hours in (10, 30, 50, 70, 90, 110)
    ]
    assert streak(derive(others)) == 0
    assert derive(others).suppressions == []
    assert derive([*FIVE, *others]).suppressions == derive(FIVE).suppressions


@pytest.mark.parametrize(
    ("subtype", "status"),
    [("MailboxFull", "4.2.2"), ("CustomTimeoutExceeded", "4.4.7"), ("General", "4.4.4")],
)
def test_a_mailbox_that_does_not_take_the_message_counts(subtype: str, status: str) -> None:
    assert streak(derive([bounce(0, subtype=subtype, status=status)])) == 1


def test_several_reports_of_one_message_count_once_at_the_first() -> None:
    again = [bounce(hours, "m-0") for hours in (30, 60, 100, 200)]
    assert streak(derive([bounce(0), *again])) == 1
    four = [bounce(hours) for hours in (0, 1, 2, 3)]
    assert derive([*four, *again]).suppressions == []
    assert derive([*FIVE, *again]).suppressions == derive(FIVE).suppressions


def test_a_message_that_bounced_before_a_delivery_counts_with_its_bounce_after_it() -> None:
    assert streak(derive([bounce(0, "m"), delivery(1), bounce(2, "m")])) == 1


def test_the_streak_is_the_same_once_the_messages_are_matched() -> None:
    unknown = [bounce(h, tenant=None) for h in (0, 24, 48, 72, 96)]
    [for_all] = derive(unknown).suppressions
    assert (for_all.tenant, for_all.expires) == ("*", derive(FIVE).suppressions[0].expires)


def test_more_bounces_prolong_the_suppression() -> None:
    [found] = derive([*FIVE, bounce(400)]).suppressions
    assert found.expires == at(400) + timedelta(days=14)


def lifted(hours: float, **scope: str) -> Lifts:
    everything = {"recipient_key": KEY, "tenant": "*", "lane": "*", "reason": "*"}
    return Lifts([Lift(**(everything | scope), at=at(hours))])


def test_bounces_up_to_a_lift_suppress_no_more_though_they_stay_in_the_streak() -> None:
    found = derive(FIVE, lifts=lifted(96))
    assert (streak(found), found.suppressions) == (5, [])
    more = [bounce(hours) for hours in (100, 120, 140, 160)]
    assert derive([*FIVE, *more], lifts=lifted(96)).suppressions == []
    [again] = derive([*FIVE, *more, bounce(180)], lifts=lifted(96)).suppressions
    assert again.evidence_at == at(180)


@pytest.mark.parametrize(
    ("scope", "holds"),
    [
        ({"tenant": "shop"}, True),
        ({"tenant": "other"}, False),
        ({"reason": "soft-bounces"}, True),
        ({"reason": "hard-bounce"}, False),
        ({"lane": "bulk"}, False),
        ({"recipient_key": "*"}, True),
        ({"recipient_key": "1" * 32}, False),
    ],
)
def test_a_lift_holds_for_what_it_names(scope: dict[str, str], holds: bool) -> None:
    assert (derive(FIVE, lifts=lifted(100, **scope)).suppressions == []) is holds


def test_every_transient_reason_is_judged() -> None:
    counting = set()
    for reason in BounceReason:
        found = Bounce(type=BounceType.TRANSIENT, reason=reason)
        if streak(derive([happened(EventType.BOUNCED, 0, "m", bounce=found)])):
            counting.add(reason)
    assert counting == {
        BounceReason.MAILBOX_UNKNOWN,
        BounceReason.MAILBOX_FULL,
        BounceReason.DNS,
        BounceReason.TIMEOUT,
        BounceReason.OTHER,
    }


def test_a_hard_bounce_among_them_is_a_suppression_of_its_own() -> None:
    found = derive([*FIVE, bounce(50, label="Permanent", status="5.1.1")])
    assert {s.reason for s in found.suppressions} == {
        SuppressionReason.SOFT_BOUNCES,
        SuppressionReason.HARD_BOUNCE,
    }
    assert {s.rule_version for s in found.suppressions} == {RULES.version}
