"""A record of mail.delivery-events as a subscriber sees it: an event, something to skip, or nothing of interest."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson
from aiokafka import ConsumerRecord

from streams.domain.delivery_events import TYPE_PREFIX, DeliveryEvent, UnknownEvent, interpret
from streams.domain.errors import BadMessage


class Why(StrEnum):
    """Why a record was skipped."""

    UNREADABLE = "unreadable"
    UNKNOWN_TYPE = "unknown-type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A record that became no event. detail names what is wrong, never a value; event stands there for an unknown type."""

    why: Why
    detail: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    event: UnknownEvent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a subscriber wants to see; None: all of it."""

    types: frozenset[str] | None = None
    tenants: frozenset[str] | None = None

    def read(self, record: ConsumerRecord) -> DeliveryEvent | Skipped | None:
        """The event of a record; None if it is not wanted. Never raises for what the record holds."""
        event: UnknownEvent | None = None
        try:
            body = _parsed(record.value)
            if not self._includes(body):
                return None
            found = interpret(body)
            if isinstance(found, DeliveryEvent):
                return found
            event, why, detail = found, Why.UNKNOWN_TYPE, "the type of the event is not known"
        except BadMessage as error:
            why, detail = Why.UNREADABLE, str(error)
        return Skipped(
            why=why,
            detail=detail,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=record.key,
            value=record.value,
            event=event,
        )

    def _includes(self, body: Any) -> bool:
        """Looks at two words before anything else is read. What has not the form of an event is not passed over silently."""
        if self.types is not None:
            name = body.get("type") if isinstance(body, dict) else None
            if isinstance(name, str) and name.removeprefix(TYPE_PREFIX) not in self.types:
                return False
        if self.tenants is not None:
            data = body.get("data") if isinstance(body, dict) else None
            tenant = data.get("tenant") if isinstance(data, dict) else ""
            return (
                tenant in self.tenants if isinstance(tenant, str) and tenant else tenant is not None
            )
        return True


def _parsed(value: bytes | None) -> Any:
    if value is None:
        raise BadMessage("not a delivery event: the record has no value")
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise BadMessage("not a delivery event: the value is not JSON") from error
