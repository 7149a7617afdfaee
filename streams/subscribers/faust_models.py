"""The contract as models of Faust (extra `faust`). Words are texts, so that a new one is no error; unknown members are ignored.

topic = app.topic("mail.delivery-events", value_serializer="raw")

@app.agent(topic)
async def handle(values):
    async for value in values:
        event = read(value)  # None for what is no event: with value_type=DeliveryEvent it would crash the agent
"""

from datetime import datetime
from typing import Any

import faust
import orjson

from streams.domain.delivery_events import TYPE_PREFIX, interpret
from streams.domain.errors import BadMessage


class Bounce(faust.Record, include_metadata=False):
    """See streams.domain.delivery_events.Bounce."""

    type: str
    reason: str
    provider_type: str | None = None
    provider_subtype: str | None = None
    status: str | None = None
    diagnostic: str | None = None


class Complaint(faust.Record, include_metadata=False):
    """See streams.domain.delivery_events.Complaint."""

    type: str | None = None
    subtype: str | None = None


class Data(faust.Record, include_metadata=False):
    """The data of an event: streams.domain.delivery_events.DeliveryEvent without its envelope; ids are texts."""

    recipient_key: str
    tenant: str | None = None
    outbox_id: str | None = None
    attempt_id: str | None = None
    provider_message_id: str | None = None
    sender_domain: str | None = None
    dedup_key: str | None = None
    bounce: Bounce | None = None
    complaint: Complaint | None = None
    reason: str | None = None
    raw: dict[str, Any] | None = None


class DeliveryEvent(faust.Record, include_metadata=False, serializer="json", coerce=True):
    """A CloudEvent of mail.delivery-events."""

    id: str
    source: str
    type: str
    time: datetime
    data: Data
    subject: str | None = None
    specversion: str = "1.0"
    datacontenttype: str | None = None
    dataschema: str | None = None

    @property
    def kind(self) -> str:
        """The type without its prefix: bounced, delivered, ..."""
        return str(self.type).removeprefix(TYPE_PREFIX)


def read(value: bytes | None) -> DeliveryEvent | None:
    """The event of a record's value, of whatever type; None if it is none of this version."""
    try:
        body = orjson.loads(value or b"")
        interpret(body)
    except (orjson.JSONDecodeError, BadMessage):
        return None
    found: DeliveryEvent = DeliveryEvent.from_data(body)
    return found
