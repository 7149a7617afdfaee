"""The suppressions of one partition in memory: what the compacted topic says of each recipient, exactly and small."""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from math import ceil
from typing import Any, Final, NamedTuple

import orjson

from streams.domain.errors import BadMessage
from streams.domain.topics import Lane

HEARTBEAT_PREFIX: Final = b"heartbeat-"
_ANY: Final = "*"
_LANES: Final = {_ANY: 0, Lane.TRANSACTIONAL.value: 1, Lane.BULK.value: 2}
_HEAD: Final = struct.Struct(">Q")
_RULE: Final = struct.Struct(">BIB")
_LATEST: Final = 2**32 - 1


class SuppressionRecord(NamedTuple):
    """One record as found. sequence is the header of the feed's sequence."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    sequence: bytes | None


class Applied(StrEnum):
    """What a record did to the table."""

    CHANGED = "changed"
    HEARTBEAT = "heartbeat"
    OLDER = "older"


class SuppressionSet:
    """One partition. An entry is a 16-byte key and some 22 bytes: the feed's sequence, then lane, expiry and tenant of each
    rule. A recipient without suppressions keeps its sequence, so that a record that comes late is known to be older."""

    __slots__ = ("_entries", "_in_force", "heartbeat")

    def __init__(self) -> None:
        self._entries: dict[bytes, bytes] = {}
        self._in_force = 0
        self.heartbeat: float | None = None

    def __len__(self) -> int:
        """Recipients with at least one suppression."""
        return self._in_force

    def apply(self, record: SuppressionRecord) -> Applied:
        """Takes a record in; BadMessage if it is none of this topic. An older one than is held changes nothing."""
        key = record.key or b""
        if key.startswith(HEARTBEAT_PREFIX):
            self._beat(record.value)
            return Applied.HEARTBEAT
        packed_key = _packed_key(key)
        held = self._entries.get(packed_key)
        held_sequence = _HEAD.unpack_from(held)[0] if held is not None else 0
        sequence = _sequence(record.sequence, held_sequence)
        if sequence < held_sequence:
            return Applied.OLDER
        entry = _HEAD.pack(sequence) + _packed_rules(record.value)
        self._in_force += _has_rules(entry) - (held is not None and _has_rules(held))
        self._entries[packed_key] = entry
        return Applied.CHANGED

    def _beat(self, value: bytes | None) -> None:
        try:
            text = orjson.loads(value or b"")["heartbeat"]
            at = _time(text).timestamp()
        except (ValueError, TypeError, KeyError) as error:
            raise BadMessage("not a heartbeat: its time is missing") from error
        self.heartbeat = max(at, self.heartbeat or at)

    def hit(self, key: str, tenant: str, lane: Lane, now: float) -> int | None:
        """The sequence of the recipient's set, if it has a suppression in force for this tenant and lane."""
        entry = self._entries.get(bytes.fromhex(key))
        if entry is None:
            return None
        code = _LANES[lane.value]
        for rule_lane, expires, rule_tenant in _rules(entry):
            if (
                rule_lane in (0, code)
                and rule_tenant in (_ANY, tenant)
                and (expires == 0 or expires > now)
            ):
                found: int = _HEAD.unpack_from(entry)[0]
                return found
        return None


def _packed_key(key: bytes) -> bytes:
    try:
        packed = bytes.fromhex(key.decode("ascii"))
    except ValueError as error:
        raise BadMessage("not a suppression: the record's key is not 32 hex digits") from error
    if len(packed) != 16:
        raise BadMessage("not a suppression: the record's key is not 32 hex digits")
    return packed


def _sequence(header: bytes | None, held: int) -> int:
    """The feed's sequence; without one the record counts as the newest, since to suppress is the safe side."""
    if header is None:
        return held
    if not header.isdigit() or len(header) > 19:
        raise BadMessage("not a suppression: header seq is not a number")
    return int(header)


def _packed_rules(value: bytes | None) -> bytes:
    if value is None:
        return b""
    try:
        body = orjson.loads(value)
        rules = [] if body is None else body["suppressions"]
        return b"".join(_packed_rule(rule) for rule in rules)
    except (ValueError, TypeError, KeyError, AttributeError, struct.error) as error:
        raise BadMessage("not a suppression: the value has an unknown form") from error


def _packed_rule(rule: dict[str, Any]) -> bytes:
    tenant: bytes = str(rule["tenant"]).encode()
    expires = rule.get("expires")
    at = 0 if expires is None else min(ceil(_time(expires).timestamp()), _LATEST)
    # A lane that this version does not know counts as every lane.
    return _RULE.pack(_LANES.get(rule["lane"], 0), at, len(tenant)) + tenant


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _has_rules(entry: bytes) -> bool:
    return len(entry) > _HEAD.size


def _rules(entry: bytes) -> Iterator[tuple[int, int, str]]:
    at = _HEAD.size
    while at < len(entry):
        lane, expires, length = _RULE.unpack_from(entry, at)
        at += _RULE.size
        yield lane, expires, entry[at : at + length].decode()
        at += length
