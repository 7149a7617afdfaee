"""What becomes of one envelope of SNS: check, believe, read, publish. HTTP is one way to it, a queue can be another."""

import logging
import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from streams.domain.delivery_events import CONTENT_TYPE, DeliveryEvent, EventType, encode
from streams.domain.errors import BadMessage, Misconfigured, Unavailable
from streams.domain.records import NewRecord, Record
from streams.domain.ses_events import Notice, NoticeKind, read_notice
from streams.domain.sns import (
    SIGNATURE_VERSIONS,
    Envelope,
    EnvelopeType,
    Reason,
    Refusal,
    TopicArn,
    is_genuine,
    read_envelope,
)
from streams.domain.sns_certificates import fault_of_url
from streams.domain.topics import Topics
from streams.ports.events import SigningCertificates, SubscriptionConfirmer
from streams.ports.kafka_writing import EventPublisher, SetAside
from streams.runtime import metrics
from streams.runtime.settings import Settings

log = logging.getLogger(__name__)

CLOCK_TOLERANCE = timedelta(minutes=5)
TOKEN_LIFE = timedelta(days=2)
NO_POSITION = -1
_MESSAGE_ID = re.compile(r"[0-9A-Fa-f-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeSettings:
    """max_age None: no limit, for the redrive of dead letters. salt: that of the recipient keys. events_topic: where events go."""

    topics: frozenset[str]
    signature_versions: frozenset[str]
    max_age: timedelta | None
    salt: bytes
    events_topic: str

    @classmethod
    def of(cls, settings: Settings) -> "IntakeSettings":
        """Misconfigured names the variable that is missing or wrong."""
        if not settings.sns_topics:
            raise Misconfigured(
                "MAILSTREAMS_SNS_TOPICS is empty: set it to the ARNs of the topics that SES publishes to, separated by commas"
            )
        for arn in settings.sns_topics:
            if TopicArn.parse(arn) is None:
                raise Misconfigured(
                    f"MAILSTREAMS_SNS_TOPICS has {arn!r}, which is not the ARN of a standard SNS topic, "
                    "such as arn:aws:sns:eu-central-1:111122223333:ses-events"
                )
        if not settings.sns_signature_versions or not SIGNATURE_VERSIONS.issuperset(
            settings.sns_signature_versions
        ):
            raise Misconfigured("MAILSTREAMS_SNS_SIGNATURE_VERSIONS has to be 1, 2 or 1,2")
        return cls(
            topics=frozenset(settings.sns_topics),
            signature_versions=frozenset(settings.sns_signature_versions),
            max_age=timedelta(seconds=settings.sns_max_age_s),
            salt=settings.salt(),
            events_topic=Topics(prefix=settings.topic_prefix).delivery_events,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a request. topic stands there once it is known to be one of ours, message_id once SNS is known to have sent it.
    claimed_topic is what an unknown topic calls itself: any text of any length, which nobody has verified."""

    reason: Reason
    detail: str = ""
    topic: str | None = None
    message_id: str | None = None
    claimed_topic: str | None = None


_ACCEPTED = Verdict(reason=Reason.ACCEPTED)


def _unknown_topic(claimed: str) -> Verdict:
    return Verdict(
        reason=Reason.UNKNOWN_TOPIC,
        detail="the topic is not in MAILSTREAMS_SNS_TOPICS",
        claimed_topic=claimed,
    )


class Intake:
    """Handles envelopes one by one; calls may overlap. An event is acknowledged only after Kafka did (I8), and nothing is
    believed or fetched before its turn (I9)."""

    def __init__(
        self,
        settings: IntakeSettings,
        publisher: EventPublisher,
        unreadable: SetAside,
        certificates: SigningCertificates,
        confirmer: SubscriptionConfirmer,
    ) -> None:
        self._settings = settings
        self._publisher = publisher
        self._unreadable = unreadable
        self._certificates = certificates
        self._confirmer = confirmer
        self._notices = {kind: metrics.EVENTS_NOTICES.labels(kind=kind) for kind in NoticeKind}
        self._published = {
            kind: metrics.EVENTS_PUBLISHED.labels(type=kind)
            for kind in EventType
            if not kind.is_life_cycle
        }

    async def receive(self, body: bytes, *, now: datetime, raw_delivery: bool = False) -> Verdict:
        """Never raises for what the body holds."""
        envelope = read_envelope(body, raw_delivery=raw_delivery)
        if isinstance(envelope, Refusal):
            return Verdict(
                reason=envelope.reason,
                detail=envelope.detail,
                claimed_topic=envelope.claimed_topic,
            )
        stranger = self._stranger(envelope)
        if stranger is not None:
            return stranger
        forgery = await self._forgery(envelope, now)
        if forgery is not None:
            return replace(forgery, topic=envelope.topic.text)
        verdict = self._untimely(envelope, now) or await self._handled(envelope, body, now)
        if verdict is _ACCEPTED:
            return verdict
        return replace(verdict, topic=envelope.topic.text, message_id=envelope.message_id)

    async def receive_raw(
        self, body: bytes, *, topic: str, message_id: str, now: datetime
    ) -> Verdict:
        """A message without its envelope, of a sender whom HTTP authentication has proven. topic and message_id are what the
        request's headers say: nothing is signed, and how old it is nobody knows."""
        if topic not in self._settings.topics:
            return _unknown_topic(topic)
        try:
            verdict = await self._notified(body.decode(), topic, body, now)
        except UnicodeDecodeError:
            verdict = await self._kept("not UTF-8", body, now)
        known = message_id if _MESSAGE_ID.fullmatch(message_id) else None
        return verdict if verdict is _ACCEPTED else replace(verdict, topic=topic, message_id=known)

    async def keep(self, body: bytes, *, why: str, now: datetime) -> None:
        """Sets aside what was refused for good, for those who cannot give it back; Unavailable if it is not kept."""
        await self._set_aside(body, why, now)

    def _stranger(self, envelope: Envelope) -> Verdict | None:
        """What is refused before anything is fetched."""
        if envelope.signature_version not in self._settings.signature_versions:
            return Verdict(
                reason=Reason.UNSUPPORTED_VERSION,
                detail="this SignatureVersion is not in MAILSTREAMS_SNS_SIGNATURE_VERSIONS",
            )
        fault = fault_of_url(envelope.certificate_url, envelope.topic)
        if fault is not None:
            return Verdict(reason=Reason.BAD_CERTIFICATE_URL, detail=fault)
        if envelope.topic.text not in self._settings.topics:
            return _unknown_topic(envelope.topic.text)
        return None

    async def _forgery(self, envelope: Envelope, now: datetime) -> Verdict | None:
        try:
            certificate = await self._certificates.get(envelope.certificate_url)
        except Unavailable as error:
            return Verdict(reason=Reason.CERTIFICATE_UNAVAILABLE, detail=str(error))
        except BadMessage as error:
            return Verdict(reason=Reason.BAD_CERTIFICATE, detail=str(error))
        if not certificate.valid_at(now):
            return Verdict(
                reason=Reason.BAD_CERTIFICATE,
                detail="the certificate has expired or is not yet valid",
            )
        if not is_genuine(envelope, certificate.key):
            return Verdict(reason=Reason.BAD_SIGNATURE, detail="the signature does not fit")
        return None

    def _untimely(self, envelope: Envelope, now: datetime) -> Verdict | None:
        """Too old is a replay. From the future is a wrong clock of ours, for which no event is given up."""
        age = now - envelope.timestamp
        metrics.EVENTS_AGE_SECONDS.observe(max(0.0, age.total_seconds()))
        if age < -CLOCK_TOLERANCE:
            metrics.EVENTS_AHEAD.inc()
        if self._settings.max_age is not None and age > self._settings.max_age:
            return Verdict(
                reason=Reason.STALE,
                detail="the message is older than MAILSTREAMS_SNS_MAX_AGE_S",
            )
        if envelope.type is EnvelopeType.SUBSCRIPTION_CONFIRMATION and age > TOKEN_LIFE:
            return Verdict(reason=Reason.STALE, detail="the token of the confirmation has expired")
        return None

    async def _handled(self, envelope: Envelope, body: bytes, now: datetime) -> Verdict:
        match envelope.type:
            case EnvelopeType.NOTIFICATION:
                return await self._notified(envelope.message, envelope.topic.text, body, now)
            case EnvelopeType.SUBSCRIPTION_CONFIRMATION:
                return await self._confirmed(envelope)
            case EnvelopeType.UNSUBSCRIBE_CONFIRMATION:
                return self._unsubscribed(envelope)

    async def _notified(self, message: str, topic: str, body: bytes, now: datetime) -> Verdict:
        notice = read_notice(message, salt=self._settings.salt, received=now)
        self._notices[notice.kind].inc()
        try:
            await self._publish(notice)
        except Unavailable as error:
            return Verdict(reason=Reason.PUBLISH_FAILED, detail=str(error))
        if notice.keep_raw is not None:
            return await self._kept(notice.keep_raw, body, now)
        if notice.kind is NoticeKind.INBOUND:
            log.error(
                "topic of mail events carries inbound mail, which is dropped",
                extra={"action": "events.inbound", "topic": topic},
            )
        return _ACCEPTED

    async def _kept(self, why: str, body: bytes, now: datetime) -> Verdict:
        try:
            await self._set_aside(body, why, now)
        except Unavailable as error:
            return Verdict(reason=Reason.PUBLISH_FAILED, detail=str(error))
        return Verdict(reason=Reason.UNREADABLE, detail=why)

    async def _publish(self, notice: Notice) -> None:
        if not notice.events:
            return
        trace = notice.traceparent
        headers = (CONTENT_TYPE, *(() if trace is None else (("traceparent", trace.encode()),)))
        await self._publisher.publish([self._record(event, headers) for event in notice.events])
        for event in notice.events:
            self._published[event.type].inc()

    def _record(self, event: DeliveryEvent, headers: tuple[tuple[str, bytes], ...]) -> NewRecord:
        return NewRecord(
            topic=self._settings.events_topic,
            key=event.recipient_key.encode(),
            value=encode(event),
            headers=headers,
        )

    async def _set_aside(self, body: bytes, why: str, now: datetime) -> None:
        """The whole of it, so that its signature can be checked again."""
        record = Record(
            topic=self._settings.events_topic,
            partition=NO_POSITION,
            offset=NO_POSITION,
            key=None,
            value=body,
            timestamp_ms=int(now.timestamp() * 1000),
        )
        await self._unreadable.put(record, reason=why)

    async def _confirmed(self, envelope: Envelope) -> Verdict:
        try:
            await self._confirmer.confirm(envelope.topic, envelope.token or "")
        except Unavailable as error:
            return Verdict(reason=Reason.CONFIRMATION_FAILED, detail=str(error))
        log.info(
            "subscription is confirmed",
            extra={"action": "events.confirmed", "topic": envelope.topic.text},
        )
        return _ACCEPTED

    def _unsubscribed(self, envelope: Envelope) -> Verdict:
        """A person decides: nothing subscribes again by itself."""
        metrics.EVENTS_UNSUBSCRIBED.inc()
        log.error(
            "subscription of this endpoint was removed, no more events will come: subscribe it again if that was not meant",
            extra={"action": "events.unsubscribed", "topic": envelope.topic.text},
        )
        return Verdict(reason=Reason.UNSUBSCRIBED)
