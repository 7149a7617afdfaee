"""Messages with chosen defects, posted once to the subscribers of a topic or to one endpoint."""

import asyncio
import base64
import secrets
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson
from cryptography.hazmat.primitives.asymmetric import rsa

from streams.simulator import sns_envelopes
from streams.simulator.clock import iso_milliseconds
from streams.simulator.dead_letters import enqueue
from streams.simulator.event_publisher import SUBJECT
from streams.simulator.identifiers import random_uuid
from streams.simulator.regions import sns_host
from streams.simulator.sns_delivery import SnsDeliveries
from streams.simulator.sns_signing import Signer, sign, text_to_sign
from streams.simulator.sns_topic import Subscription, SubscriptionAttributes, Topic
from streams.simulator.sqs_queue import Queues
from streams.simulator.strict import BadDocumentError, Fields

STALE_S = 48 * 3600.0
FOREIGN_TOPIC = "arn:aws:sns:eu-central-1:444455556666:stranger"
_TYPES = ("Notification", "SubscriptionConfirmation", "UnsubscribeConfirmation")
_SIGNATURE = ("SignatureVersion", "Signature", "SigningCertURL")


class Defect(StrEnum):
    """What is wrong with a message; the rest of it is genuine."""

    BAD_SIGNATURE = "bad-signature"
    FOREIGN_KEY = "foreign-key"
    """Signed with a key that is not the certificate's."""
    FOREIGN_TOPIC = "foreign-topic"
    """Another account's topic, rightly signed."""
    FOREIGN_CERTIFICATE_HOST = "foreign-certificate-host"
    FOREIGN_REGION = "foreign-region"
    """The certificate is said to be of SNS in another region."""
    VERSION_2_LABEL = "version-2-label"
    """A SHA-1 signature that says it is of version 2."""
    VERSION_1_LABEL = "version-1-label"
    STALE = "stale"
    """Two days old, rightly signed."""
    UNSIGNED = "unsigned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgery:
    """One message as it is asked for; `fields` are laid over it before it is signed, `envelope`
    and `omit` change it afterwards, `body` is posted in its place."""

    topic: Topic
    endpoint: str | None
    type: str
    text: str
    subject: str | None
    version: str
    age_s: float
    defects: frozenset[Defect]
    fields: dict[str, Any]
    envelope: dict[str, Any]
    omit: tuple[str, ...]
    headers: dict[str, Any]
    body: str | None


def read_forgery(fields: Fields, topic_of: Callable[[Fields], Topic]) -> Forgery:
    topic = topic_of(fields)
    if ("message" in fields) == ("record" in fields):
        raise BadDocumentError("The message needs either 'message', a string, or 'record'.")
    defects = fields.texts("defects") if "defects" in fields else []
    if set(defects) - set(Defect):
        raise BadDocumentError(f"Field 'defects' must hold some of {', '.join(Defect)}.")
    is_record = "record" in fields
    text = orjson.dumps(fields.document("record")).decode() if is_record else fields.text("message")
    result = Forgery(
        topic=topic,
        endpoint=fields.text("endpoint") if "endpoint" in fields else None,
        type=fields.choice("type", _TYPES, "Notification"),
        text=text,
        subject=fields.text("subject", SUBJECT) or None,
        version=fields.choice("signature_version", ("1", "2"), topic.versions.next()),
        age_s=fields.number("age_s", STALE_S if Defect.STALE in defects else 0.0),
        defects=frozenset(Defect(defect) for defect in defects),
        fields=_object(fields, "fields"),
        envelope=_object(fields, "envelope"),
        omit=tuple(fields.texts("omit")) if "omit" in fields else (),
        headers=_object(fields, "headers"),
        body=fields.text("body") if "body" in fields else None,
    )
    fields.done()
    if not all(isinstance(value, str) for value in {**result.fields, **result.headers}.values()):
        raise BadDocumentError("Fields 'fields' and 'headers' must hold strings only.")
    return result


def _object(fields: Fields, name: str) -> dict[str, Any]:
    return fields.document(name) if name in fields else {}


class Forger:
    """Builds, signs as far as the defects allow, posts, and tells what was answered."""

    def __init__(self, *, deliveries: SnsDeliveries, signer: Signer, queues: Queues) -> None:
        self._deliveries = deliveries
        self._signer = signer
        self._queues = queues

    async def publish(self, forgery: Forgery) -> dict[str, Any]:
        fields = _fields(forgery)
        signature = await self._signature(forgery, fields)
        posts: list[Coroutine[Any, Any, dict[str, Any]]] = []
        for subscription in self._subscribers(forgery):
            envelope = self._envelope(forgery, fields, signature, subscription.arn)
            posts.append(self._post(forgery, envelope, subscription))
        return {
            "message_id": fields["MessageId"],
            "deliveries": await asyncio.gather(*posts),
        }

    def _subscribers(self, forgery: Forgery) -> list[Subscription]:
        """The confirmed ones, or the one endpoint that is named, subscribed or not."""
        if forgery.endpoint is None:
            return forgery.topic.confirmed
        return [_unknown_subscription(forgery.topic, forgery.endpoint)]

    async def _signature(self, forgery: Forgery, fields: dict[str, str]) -> str:
        text = text_to_sign(fields)
        version = forgery.version
        if Defect.VERSION_2_LABEL in forgery.defects:
            version = "1"
        elif Defect.VERSION_1_LABEL in forgery.defects:
            version = "2"
        if Defect.FOREIGN_KEY in forgery.defects:
            signature = sign(_foreign_key(), text, version)
        else:
            signature = await self._signer.sign(text, version)
        if Defect.BAD_SIGNATURE in forgery.defects:
            signature = signature[:-1] + bytes([signature[-1] ^ 1])
        return base64.b64encode(signature).decode()

    def _envelope(
        self, forgery: Forgery, fields: dict[str, str], signature: str, subscription_arn: str
    ) -> dict[str, Any]:
        message = sns_envelopes.SnsMessage(
            fields=fields, signature_version=_label(forgery), signature=signature
        )
        document: dict[str, Any] = {**self._deliveries.envelope(message, subscription_arn)}
        url: str = document["SigningCertURL"]
        if Defect.FOREIGN_CERTIFICATE_HOST in forgery.defects:
            document["SigningCertURL"] = url.replace("amazonaws.com", "amazonaws.com.example.com")
        elif Defect.FOREIGN_REGION in forgery.defects:
            other = "us-west-2" if ".us-west-2." not in url else "eu-west-1"
            document["SigningCertURL"] = sns_host(other) + urlsplit(url).path
        document |= forgery.envelope
        omitted = (*forgery.omit, *(_SIGNATURE if Defect.UNSIGNED in forgery.defects else ()))
        return {name: value for name, value in document.items() if name not in omitted}

    async def _post(
        self, forgery: Forgery, envelope: dict[str, Any], subscription: Subscription
    ) -> dict[str, Any]:
        body = orjson.dumps(envelope) if forgery.body is None else forgery.body.encode()
        told = {"endpoint": subscription.endpoint, "status": None, "error": None}
        if subscription.protocol == "sqs":
            queued = enqueue(self._queues, subscription.endpoint, body)
            return {**told, "status": 200 if queued else 404}
        named = {name: str(envelope.get(name, "")) for name in ("Type", "MessageId")}
        message = sns_envelopes.SnsMessage(fields=named, signature_version="")
        headers = {
            **sns_envelopes.headers(message, subscription),
            "x-amz-sns-topic-arn": str(envelope.get("TopicArn", subscription.topic_arn)),
            **forgery.headers,
        }
        try:
            status = await self._deliveries.post(subscription.endpoint, body, headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return {**told, "error": type(error).__name__}
        return {**told, "status": status}


def _fields(forgery: Forgery) -> dict[str, str]:
    """What is signed, in SNS's order."""
    topic_arn = FOREIGN_TOPIC if Defect.FOREIGN_TOPIC in forgery.defects else forgery.topic.arn
    fields = {"Type": forgery.type, "MessageId": random_uuid()}
    if forgery.type == "Notification":
        fields["TopicArn"] = topic_arn
        if forgery.subject is not None:
            fields["Subject"] = forgery.subject
        fields["Message"] = forgery.text
    else:
        token = secrets.token_hex(128)
        fields |= {
            "Token": token,
            "TopicArn": topic_arn,
            "Message": forgery.text,
            "SubscribeURL": forgery.topic.subscribe_url(token),
        }
    fields["Timestamp"] = iso_milliseconds(time.time() - forgery.age_s)
    return fields | forgery.fields


def _label(forgery: Forgery) -> str:
    if Defect.VERSION_2_LABEL in forgery.defects:
        return "2"
    return "1" if Defect.VERSION_1_LABEL in forgery.defects else forgery.version


def _unknown_subscription(topic: Topic, endpoint: str) -> Subscription:
    """An endpoint as if it were subscribed."""
    return Subscription(
        arn=f"{topic.arn}:{random_uuid()}",
        topic=topic,
        protocol="sqs" if endpoint.startswith("arn:") else endpoint.partition(":")[0],
        endpoint=endpoint,
        token="",
        token_expires_at=0.0,
        attributes=SubscriptionAttributes(),
    )


@lru_cache(maxsize=1)
def _foreign_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)
