"""What a committed transaction of the fold adds to the metrics."""

from typing import Final

from streams.domain.bounce_rules import complaint_share, hard_bounce_share
from streams.domain.delivery_events import DeliveryEvent, EventType
from streams.domain.facts import Placed
from streams.folding.fold import Folded
from streams.runtime import metrics

STAGE: Final = "recipients"


def count(folded: Folded) -> None:
    """Counts what one committed transaction did; every fact once."""
    for kept in folded.kept:
        if kept.is_new:
            _count_new(kept.placed)
        else:
            metrics.RECIPIENTS_MATCHED.inc()
    metrics.RECIPIENTS_SUPPRESSIONS.inc(folded.suppressions)
    metrics.RECIPIENTS_WITHDRAWN.inc(folded.withdrawn)
    metrics.RECIPIENTS_FORGOTTEN.inc(folded.forgotten)
    settled = folded.settled
    metrics.DUPLICATES.labels(stage=STAGE).inc(settled.duplicates)
    metrics.CONTRADICTED.labels(stage=STAGE).inc(settled.contradicted)
    for origin, rows in settled.by_origin().items():
        metrics.SETTLED.labels(stage=STAGE, origin=origin).inc(rows)


def _count_new(placed: Placed) -> None:
    event = placed.event
    metrics.RECIPIENTS_EVENTS.labels(type=event.type.value).inc()
    if placed.outbox_id is None:
        metrics.RECIPIENTS_UNMATCHED.inc()
    if event.bounce is not None:
        metrics.RECIPIENTS_BOUNCES.labels(
            type=event.bounce.type.value, reason=event.bounce.reason.value
        ).inc()
    if event.type is EventType.COMPLAINED:
        metrics.RECIPIENTS_COMPLAINTS.labels(type=_complaint_label(event)).inc()
    metrics.RECIPIENTS_RATE_BOUNCES.inc(hard_bounce_share(event))
    metrics.RECIPIENTS_RATE_COMPLAINTS.inc(complaint_share(event))


_COMPLAINT_TYPES: Final = frozenset(
    ("abuse", "auth-failure", "fraud", "not-spam", "other", "virus")
)


def _complaint_label(event: DeliveryEvent) -> str:
    """A word of a closed set, whatever the mailbox provider wrote."""
    kind = None if event.complaint is None else event.complaint.type
    if kind is None:
        return "unknown"
    return kind if kind in _COMPLAINT_TYPES else "other"
