"""Publishes what becomes of accepted messages, at its time, and writes it into the ledger."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import orjson

from streams.simulator import event_records, sns_envelopes
from streams.simulator.configuration_sets import ConfigurationSets, EventType
from streams.simulator.event_details import classification, details_of
from streams.simulator.event_plan import PlannedEvent, plan_events
from streams.simulator.event_records import Record, SendingAccount
from streams.simulator.ledger import Acceptance, Fact
from streams.simulator.outcomes import Outcome
from streams.simulator.schedule import Schedule
from streams.simulator.settings import EventTimes, Legacy
from streams.simulator.sns_delivery import SnsDeliveries
from streams.simulator.sns_envelopes import SnsMessage
from streams.simulator.sns_topic import Subscription, Topic, Topics
from streams.simulator.suppression_list import Reason, Suppressed

SUBJECT = "Amazon SES Email Event Notification"
VALIDATION_TEXT = "Successfully validated SNS topic for Amazon SES event publishing."
EARLY_WAIT_S = 2.0
_OF_IDENTITY = (EventType.BOUNCE, EventType.COMPLAINT, EventType.DELIVERY)


class MailTexts:
    """The mail object of one message as JSON, in the forms that its records need."""

    def __init__(self, mail: Record) -> None:
        self._mail = mail
        self._later = event_records.after_send(mail)
        self._texts: dict[str, bytes] = {}

    def of(self, event: EventType, *, strange: bool) -> bytes:
        if event is EventType.SEND:
            return self._text("send", self._mail, strange)
        if event in (EventType.DELIVERY_DELAY, EventType.RENDERING_FAILURE):
            return self._text("bare", event_records.without_headers(self._later), strange)
        return self._text("later", self._later, strange)

    def of_identity(self, *, headers: bool, strange: bool) -> bytes:
        return self._text("legacy", event_records.of_identity(self._mail, headers=headers), strange)

    def _text(self, name: str, mail: Record, strange: bool) -> bytes:
        if name not in self._texts:
            added = {"simulatedMember": ["unknown"]} if strange else {}
            self._texts[name] = orjson.dumps({**mail, **added})
        return self._texts[name]


class _Tries:
    """Counts the first tries of what is published before an answer."""

    def __init__(self) -> None:
        self._open = 0
        self._done = asyncio.Event()
        self._done.set()

    def expect(self) -> Callable[[], None]:
        self._open += 1
        self._done.clear()
        return self._tried

    def _tried(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._done.set()

    async def done(self) -> None:
        await self._done.wait()


class EventPublisher:
    """Plans and publishes; `suppress` is told of bounces and complaints."""

    def __init__(
        self,
        *,
        topics: Topics,
        identity_topic: str,
        sets: ConfigurationSets,
        deliveries: SnsDeliveries,
        account: SendingAccount,
        suppress: Callable[[Suppressed], None],
        random: Random,
    ) -> None:
        self.times = EventTimes()
        self.schedule = Schedule()
        self.published = 0
        self.unheard = 0
        self.duplicates_same_id = 0
        self.duplicates_new_id = 0
        self.early = 0
        self.late = 0
        self._topics = topics
        self._identity_topic = identity_topic
        self._sets = sets
        self._deliveries = deliveries
        self._account = account
        self._suppress = suppress
        self._random = random
        self._early: dict[str, _Tries] = {}

    def plan(self, acceptance: Acceptance, *, source_ip: str) -> None:
        """Decide all events of an accepted message; the early ones are published at once.

        Without a configuration set it has none, unless identities notify.
        """
        submission = acceptance.submission
        if submission.configuration_set is None and self.times.legacy is Legacy.OFF:
            return
        mail = event_records.mail_object(
            submission,
            message_id=acceptance.message_id,
            accepted_at=acceptance.accepted_at,
            source_ip=source_ip,
            account=self._account,
        )
        texts = MailTexts(mail)
        for planned in plan_events(acceptance.outcomes, self.times, self._random):
            if planned.early and not self.schedule.holding:
                tries = self._early.setdefault(acceptance.message_id, _Tries())
                self._publish(acceptance, planned, texts, tries)
            else:
                publish = partial(self._publish, acceptance, planned, texts, None)
                self.schedule.after(planned.published_after_s, publish)

    async def early_tried(self, acceptance: Acceptance) -> None:
        """Wait until the early events of a message were posted once, two seconds at most."""
        tries = self._early.pop(acceptance.message_id, None)
        if tries is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EARLY_WAIT_S):
                    await tries.done()

    def validate_topic(self, arn: str) -> None:
        """What SES says when an event destination is made: plain text, not JSON."""
        topic = self._topics.find(arn)
        for subscription in [] if topic is None else topic.confirmed:
            self.validate_subscription(subscription)

    def validate_subscription(self, subscription: Subscription) -> None:
        """The same to one that comes later, if events are published to its topic at all."""
        if self._sets.publish_to(subscription.topic_arn):
            message = sns_envelopes.notification(
                subscription.topic, VALIDATION_TEXT, subject=None, now=time.time()
            )
            self._deliveries.put(message, subscription, counted=False)

    def _publish(
        self,
        acceptance: Acceptance,
        planned: PlannedEvent,
        texts: MailTexts,
        tries: _Tries | None,
    ) -> None:
        now = time.time()
        occurred_at = acceptance.accepted_at + planned.occurs_after_s
        details = details_of(planned, at=occurred_at, accepted_at=acceptance.accepted_at)
        subscribers = 0
        for topic, text in self._publications(acceptance, planned, texts, details):
            subscribers += len(topic.confirmed)
            self._send(topic, text, planned, tries)
        self.published += 1
        self.early += tries is not None
        self.late += planned.age_s > 0
        self.unheard += not subscribers
        acceptance.facts += [
            Fact(
                recipient=recipient,
                event=planned.event,
                occurred_at=occurred_at,
                published_at=now,
                detail=classification(details),
                subscribers=subscribers,
            )
            for recipient in planned.recipients
        ]
        self._keep_suppression_list(acceptance, planned, details, now)

    def _publications(
        self, acceptance: Acceptance, planned: PlannedEvent, texts: MailTexts, details: Record
    ) -> Iterator[tuple[Topic, str]]:
        """The topics of a record, each with the shape that the record has there."""
        event, times = planned.event, self.times
        strange = times.unknown_fields
        if times.legacy is not Legacy.INSTEAD and not planned.legacy:
            text = event_records.record_json(
                event, texts.of(event, strange=strange), details, strange=strange
            )
            for topic in self._destinations(acceptance.submission.configuration_set, event):
                yield topic, text
        identity_topic = self._topics.find(self._identity_topic)
        notifies = planned.legacy or times.legacy is not Legacy.OFF
        if notifies and event in _OF_IDENTITY and identity_topic is not None:
            mail = texts.of_identity(headers=times.legacy_headers, strange=strange)
            yield (
                identity_topic,
                event_records.record_json(event, mail, details, legacy=True, strange=strange),
            )

    def _destinations(self, name: str | None, event: EventType) -> list[Topic]:
        found = None if name is None else self._sets.find(name)
        arns = [] if found is None else found.topics_for(event)
        topics = (self._topics.find(arn) for arn in arns)
        return [topic for topic in topics if topic is not None]

    def _send(self, topic: Topic, text: str, planned: PlannedEvent, tries: _Tries | None) -> None:
        subscribers = topic.confirmed
        if not subscribers:
            return
        message = self._message(topic, text, time.time() - planned.age_s)
        self._put(message, subscribers, tries)
        for number in range(1, planned.copies):
            after = planned.copies_after_s * number
            self._duplicate(topic, message, subscribers, planned.same_id, after)
        if self._random.random() < self.times.duplicate_share:
            after = self._random.uniform(*self.times.outcome_ms) / 1000
            self._duplicate(topic, message, subscribers, self._random.random() < 0.5, after)

    def _duplicate(
        self,
        topic: Topic,
        message: SnsMessage,
        subscribers: list[Subscription],
        same_id: bool,
        after_s: float,
    ) -> None:
        self.duplicates_same_id += same_id
        self.duplicates_new_id += not same_id

        def again() -> None:
            copy = message if same_id else self._message(topic, message.text, time.time())
            self._put(copy, subscribers, None)

        self.schedule.after(after_s, again)

    def _message(self, topic: Topic, text: str, at: float) -> SnsMessage:
        return sns_envelopes.notification(topic, text, subject=SUBJECT, now=at)

    def _put(
        self, message: SnsMessage, subscribers: list[Subscription], tries: _Tries | None
    ) -> None:
        for subscription in subscribers:
            tried = None if tries is None else tries.expect()
            self._deliveries.put(message, subscription, counted=True, tried=tried)

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
                    feedback_id=details.get("feedbackId"),
                )
            )


def _suppression_reason(event: EventType, outcome: Outcome) -> Reason | None:
    if not outcome.suppresses:
        return None
    if event is EventType.BOUNCE and outcome.bounce_type == "Permanent":
        return Reason.BOUNCE
    return Reason.COMPLAINT if event is EventType.COMPLAINT else None
