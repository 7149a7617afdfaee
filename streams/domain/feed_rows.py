"""Rows of outbox_feed and the Kafka record that each becomes: the contract of Debezium's Outbox Event Router.

ops/debezium/ holds the connector configuration that says the same; a test keeps the two in step.
"""

import re
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

from streams.domain.acknowledgement import Transaction
from streams.domain.errors import BadMessage

# The columns that a record is made of, in the order of a FeedRow after its transaction. Others are not read.
COLUMNS: Final = (
    "id",
    "aggregatetype",
    "aggregateid",
    "type",
    "payload",
    "tracingspancontext",
    "seq",
)
# The record's headers in their order; traceparent only where the row has one.
HEADERS: Final = ("id", "type", "seq", "traceparent")

# A plain tuple, since a catch-up makes a hundred thousand a second: its transaction, then COLUMNS as PostgreSQL's text.
FeedRow: TypeAlias = tuple[
    Transaction,
    bytes | None,
    bytes | None,
    bytes | None,
    bytes | None,
    bytes | None,
    bytes | None,
    bytes | None,
]
Header: TypeAlias = tuple[str, bytes | None]

_TOPIC_PART: Final = re.compile(rb"[A-Za-z0-9._-]{1,200}")


class Refusal(StrEnum):
    """Why a row can never become a record; it is set aside in relay_refused with this reason."""

    NO_KEY = "no-key"
    NO_TOPIC = "no-topic"
    TOO_LARGE = "too-large"
    REFUSED_BY_KAFKA = "refused-by-kafka"


class RecordRefused(BadMessage):
    """Kafka will never take the record of the row with this id."""

    def __init__(self, row_id: bytes | None, why: str) -> None:
        super().__init__(f"Kafka refuses the record of row {(row_id or b'').decode()}: {why}")
        self.row_id = row_id
        self.why = why


def headers(
    row_id: bytes | None, kind: bytes | None, seq: bytes | None, trace: bytes | None
) -> list[Header]:
    """The headers of a row's record."""
    if trace is None:
        return [("id", row_id), ("type", kind), ("seq", seq)]
    found = traceparent(trace)
    if found is None:
        return [("id", row_id), ("type", kind), ("seq", seq)]
    return [("id", row_id), ("type", kind), ("seq", seq), ("traceparent", found)]


def traceparent(context: bytes) -> bytes | None:
    """The property traceparent of a context in the text of java.util.Properties, or None."""
    # The usual case: one line, no escapes. A byte is searched five times as fast as a string of one byte.
    if context[:12] == b"traceparent=" and 0x0A not in context and 0x5C not in context:
        return context[12:].rstrip() or None
    for line in context.splitlines():
        name, separator, value = line.strip().partition(b"=")
        if separator and name.rstrip() == b"traceparent":
            return re.sub(rb"\\(.)", rb"\1", value.strip()) or None
    return None


def refusal(row: FeedRow, *, largest: int, refused_ids: Collection[bytes | None]) -> Refusal | None:
    """Why this row can never be a record, or None."""
    _, row_id, aggregate, key, _, payload, _, _ = row
    if not key:
        return Refusal.NO_KEY
    if aggregate is None or _TOPIC_PART.fullmatch(aggregate) is None:
        return Refusal.NO_TOPIC
    if payload is not None and len(payload) > largest:
        return Refusal.TOO_LARGE
    if row_id in refused_ids:
        return Refusal.REFUSED_BY_KAFKA
    return None


def sift(
    rows: Sequence[FeedRow], *, largest: int, refused_ids: Collection[bytes | None]
) -> tuple[list[FeedRow], list[tuple[FeedRow, Refusal]]]:
    """Parts the rows that can be records from those that never can."""
    good: list[FeedRow] = []
    refused: list[tuple[FeedRow, Refusal]] = []
    for row in rows:
        reason = refusal(row, largest=largest, refused_ids=refused_ids)
        if reason is None:
            good.append(row)
        else:
            refused.append((row, reason))
    return good, refused
