"""A record of mail.outbox.<lane>: what a sender must know to queue an outbox row, never content, never an address."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import orjson

from streams.domain.addresses import RecipientKey
from streams.domain.errors import BadMessage
from streams.domain.records import Record, TopicPartition
from streams.domain.topics import Lane

T = TypeVar("T")

_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """One outbox row to be looked at, with the position that it would commit.

    xid is the transaction that wrote the pointer: while it is not visible, neither is the row.
    """

    id: UUID
    tenant: str
    lane: Lane
    recipient_key: RecipientKey
    due: datetime
    expires: datetime | None
    recipients: int
    sender_domain: str
    template: str | None
    xid: int
    traceparent: str | None
    topic_partition: TopicPartition
    offset: int

    @property
    def partition(self) -> int:
        """The partition number, the same in every topic keyed by recipient."""
        return self.topic_partition.partition


def read_pointer(record: Record) -> Pointer:
    """The pointer in a record; unknown fields are ignored. BadMessage names the field, never its content."""
    body = _object(record.value)
    return Pointer(
        id=_read(body, "id", UUID),
        tenant=_read(body, "tenant", str),
        lane=_read(body, "lane", Lane),
        recipient_key=_key(record.key),
        due=_read(body, "due", _time),
        expires=_read_if_given(body, "expires", _time),
        recipients=_recipients(body.get("recipients")),
        sender_domain=_read(body, "sender_domain", str),
        template=_read_if_given(body, "template", str),
        xid=_read(body, "xid", _xid),
        traceparent=_read_if_given(body, "traceparent", str),
        topic_partition=record.topic_partition,
        offset=record.offset,
    )


def _object(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise BadMessage("not a pointer: the record has no value")
    try:
        body = orjson.loads(value)
    except ValueError as error:
        raise BadMessage("not a pointer: the value is not JSON") from error
    if not isinstance(body, dict):
        raise BadMessage("not a pointer: the value is not an object")
    return body


def _read(body: dict[str, Any], field: str, parse: Callable[[str], T]) -> T:
    value = body.get(field)
    if not isinstance(value, str) or not value:
        raise BadMessage(f"not a pointer: {field} is missing or no text")
    try:
        return parse(value)
    except ValueError as error:
        raise BadMessage(f"not a pointer: {field} has an unknown form") from error


def _read_if_given(body: dict[str, Any], field: str, parse: Callable[[str], T]) -> T | None:
    return None if body.get(field) is None else _read(body, field, parse)


def _recipients(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 50:
        raise BadMessage("not a pointer: recipients is not a number from 1 to 50")
    return value


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("no time zone")
    return time


def _xid(text: str) -> int:
    xid = int(text)
    if not 0 < xid < 1 << 64:
        raise ValueError("not a transaction id")
    return xid


def _key(key: bytes | None) -> RecipientKey:
    text = (key or b"").decode("ascii", "replace")
    if len(text) != 32 or not _HEX.issuperset(text):
        raise BadMessage("not a pointer: the record's key is not 32 hex digits")
    return RecipientKey(text)
