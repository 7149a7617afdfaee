"""The details of each event's record, and the words by which the ledger classifies it."""

from typing import Any

import orjson

from streams.simulator import event_records
from streams.simulator.configuration_sets import EventType
from streams.simulator.event_plan import PlannedEvent
from streams.simulator.event_records import Record


def details_of(planned: PlannedEvent, *, at: float, accepted_at: float) -> Record:
    """What a record says beside `mail`; `at` is when it happened."""
    details = _details(planned, at=at, accepted_at=accepted_at)
    outcome = planned.outcome
    if outcome.fields:
        details |= orjson.loads(outcome.fields)
    return {name: value for name, value in details.items() if name not in outcome.omit}


def classification(details: dict[str, Any]) -> str | None:
    """The one or two words that classify a fact."""
    if "bounceType" in details:
        return f"{details['bounceType']}/{details.get('bounceSubType')}"
    for name in ("complaintFeedbackType", "delayType", "reason"):
        if name in details:
            return str(details[name])
    return None


def _details(planned: PlannedEvent, *, at: float, accepted_at: float) -> Record:
    recipients, outcome = planned.recipients, planned.outcome
    match planned.event:
        case EventType.SEND:
            return {}
        case EventType.DELIVERY:
            return event_records.delivery(recipients, at=at, accepted_at=accepted_at)
        case EventType.BOUNCE:
            feedback_id = event_records.provider_id(at)
            return event_records.bounce(recipients, outcome, at=at, feedback_id=feedback_id)
        case EventType.COMPLAINT:
            feedback_id = event_records.provider_id(at)
            return event_records.complaint(recipients, outcome, at=at, feedback_id=feedback_id)
        case EventType.DELIVERY_DELAY:
            return event_records.delivery_delay(recipients, outcome, at=at)
        case EventType.REJECT:
            return event_records.reject()
        case EventType.RENDERING_FAILURE:
            return event_records.rendering_failure(outcome)
        case EventType.OPEN:
            return event_records.opened(at=at)
        case EventType.CLICK:
            return event_records.clicked(outcome, at=at)
        case EventType.SUBSCRIPTION:
            return event_records.subscription(at=at)
