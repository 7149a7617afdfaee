"""Publishes what becomes of accepted messages, at its time, and writes it into the ledger."""

import asyncio
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

import orjson

from streams.simulator import event_records, sns_envelopes
from streams.simulator.event_plan import PlannedEvent, plan_events
from streams.simulator.event_records import EventType, Record, SendingAccount
from streams.simulator.ledger import Acceptance, Fact
from streams.simulator.outcomes import Outcome
from streams.simulator.settings import EventTimes
from streams.simulator.sns_delivery import SnsDeliveries
from streams.simulator.sns_envelopes import SnsMessage
from streams.simulator.sns_topic import Subscription, Topic
from streams.simulator.suppression_list import Reason, Suppressed

SUBJECT = "Amazon SES Email Event Notification"
VALIDATION_TEXT = "Successfully validated SNS topic for Amazon SES event publishing."


@dataclass(frozen=True, slots=True, kw_only=True)
class MailTexts:
    """The mail object as JSON, in the Send record and in those after it."""

    send: bytes
    later: bytes


class EventPublisher:
    """Keeps what is to come in order of time; `suppress` is told of bounces and complaints."""

    def __init__(
        self,
        *,
        topic: Topic,
        deliveries: SnsDeliveries,
        account: SendingAccount,
        suppress: Callable[[Suppressed], None],
        random: Random,
    ) -> None:
        self.times = EventTimes()
        self.published = 0
        self.unheard = 0
        self.duplicates_same_id = 0
        self.duplicates_new_id = 0
        self._topic = topic
        self._deliveries = deliveries
        self._account = account
        self._suppress = suppress
        self._random = random
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._holding = False

    @property
    def planned(self) -> int:
        return len(self._due)

    @property
    def holding(self) -> bool:
        return self._holding

    def hold(self) -> None:
        """Publish nothing until `release`; what falls due meanwhile waits."""
        self._holding = True
        self._arm()

    def release(self) -> None:
        self._holding = False
        self._arm()

    def stop(self) -> None:
        self._due.clear()
        self._arm()

    def plan(self, acceptance: Acceptance, *, source_ip: str) -> None:
        """Decide all events of an accepted message; without a configuration set it has none."""
        submission = acceptance.submission
        if submission.configuration_set is None:
            return
        mail = event_records.mail_object(
            submission,
            message_id=acceptance.message_id,
            accepted_at=acceptance.accepted_at,
            source_ip=source_ip,
            account=self._account,
        )
        texts = MailTexts(
            send=orjson.dumps(mail), later=orjson.dumps(event_records.after_send(mail))
        )
        for planned in plan_events(acceptance.outcomes, self.times, self._random):
            self._at(planned.published_after_s, self._publication(acceptance, planned, texts))

    def validate_topic(self, subscription: Subscription) -> None:
        """What SES says when an event destination is made: plain text, not JSON."""
        message = sns_envelopes.notification(
            self._topic, VALIDATION_TEXT, subject=None, now=time.time()
        )
        self._deliveries.put(message, subscription, counted=False)

    def _publication(
        self, acceptance: Acceptance, planned: PlannedEvent, texts: MailTexts
    ) -> Callable[[], None]:
        return lambda: self._publish(acceptance, planned, texts)

    def _publish(self, acceptance: Acceptance, planned: PlannedEvent, texts: MailTexts) -> None:
        now = time.time()
        occurred_at = acceptance.accepted_at + planned.occurs_after_s
        details = self._details(acceptance, planned, occurred_at)
        mail = texts.send if planned.event is EventType.SEND else texts.later
        text = event_records.record_json(planned.event, mail, details)
        subscribers = self._topic.confirmed
        self._send(text, subscribers, now)
        self.published += 1
        self.unheard += not subscribers
        acceptance.facts += [
            Fact(
                recipient=recipient,
                event=planned.event,
                occurred_at=occurred_at,
                published_at=now,
                detail=_detail(details),
                subscribers=len(subscribers),
            )
            for recipient in planned.recipients
        ]
        self._keep_suppression_list(acceptance, planned, details, now)

    def _details(self, acceptance: Acceptance, planned: PlannedEvent, at: float) -> Record:
        recipients, outcome = planned.recipients, planned.outcome
        feedback_id = event_records.provider_id(at)
        match planned.event:
            case EventType.SEND:
                return {}
            case EventType.DELIVERY:
                accepted_at = acceptance.accepted_at
                return event_records.delivery(recipients, at=at, accepted_at=accepted_at)
            case EventType.BOUNCE:
                return event_records.bounce(recipients, outcome, at=at, feedback_id=feedback_id)
            case EventType.COMPLAINT:
                return event_records.complaint(recipients, outcome, at=at, feedback_id=feedback_id)
            case EventType.DELIVERY_DELAY:
                return event_records.delivery_delay(recipients, outcome, at=at)
            case EventType.REJECT:
                return event_records.reject()

    def _send(self, text: str, subscribers: list[Subscription], now: float) -> None:
        if not subscribers:
            return
        message = self._message(text, now)
        self._put(message, subscribers)
        if self._random.random() >= self.times.duplicate_share:
            return
        after = self._random.uniform(*self.times.outcome_ms) / 1000
        if self._random.random() < 0.5:
            self.duplicates_same_id += 1
            self._at(after, lambda: self._put(message, subscribers))
        else:
            self.duplicates_new_id += 1
            self._at(after, lambda: self._put(self._message(text, time.time()), subscribers))

    def _message(self, text: str, now: float) -> SnsMessage:
        return sns_envelopes.notification(self._topic, text, subject=SUBJECT, now=now)

    def _put(self, message: SnsMessage, subscribers: list[Subscription]) -> None:
        for subscription in subscribers:
            self._deliveries.put(message, subscription, counted=True)

    def _keep_suppression_list(
        self, acceptance: Acceptance, planned: PlannedEvent, details: Record, now: float
    ) -> None:
        reason = _suppression_reason(planned.event, planned.outcome)
        if reason is None:
            return
        for recipient in planned.recipients:
            self._suppress(
                Suppressed(
                    address=recipient,
                    reason=reason,
                    updated_at=now,
                    message_id=acceptance.message_id,
                    feedback_id=details["feedbackId"],
                )
            )

    def _at(self, after_s: float, act: Callable[[], None]) -> None:
        due = asyncio.get_running_loop().time() + after_s
        heapq.heappush(self._due, (due, next(self._order), act))
        if self._due[0][0] == due:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due and not self._holding:
            self._timer = asyncio.get_running_loop().call_at(self._due[0][0], self._fire)

    def _fire(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()
        self._arm()


def _suppression_reason(event: EventType, outcome: Outcome) -> Reason | None:
    if not outcome.suppresses:
        return None
    if event is EventType.BOUNCE and outcome.bounce_type == "Permanent":
        return Reason.BOUNCE
    return Reason.COMPLAINT if event is EventType.COMPLAINT else None


def _detail(details: dict[str, Any]) -> str | None:
    """The one or two words that classify a fact."""
    if "bounceType" in details:
        return f"{details['bounceType']}/{details['bounceSubType']}"
    for name in ("complaintFeedbackType", "delayType", "reason"):
        if name in details:
            return str(details[name])
    return None
