"""The suppressions of one partition in memory: what the compacted topic says of each recipient, exactly and small."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from streams.domain.addresses import RecipientKey
from streams.domain.errors import BadMessage
from streams.domain.packed_table import Entries, PackedTable
from streams.domain.suppression_keys import (
    BAD,
    MISSING,
    key_halves,
    key_text,
    read_keys,
    read_sequences,
)
from streams.domain.suppression_values import (
    EVERY,
    LANES,
    NEVER,
    Places,
    Rules,
    Scope,
    kinds_of,
    time_of,
)
from streams.domain.topics import Lane

HEARTBEAT_PREFIX: Final = b"heartbeat-"
# In a heartbeat: before it, everything that the database says was put into the topic again.
REPUBLISHED: Final = "republished"
# Codes of what a recipient has: no rule, rules of several scopes; from _SCOPES on, the place of its one rule's scope.
_NOBODY: Final = 1
_SEVERAL: Final = 2
_SCOPES: Final = 3


class SuppressionPage(NamedTuple):
    """Records of one partition as found, column by column, and the position behind them, which also passes offsets that
    carry no record any more. sequences are the headers of the feed's sequence."""

    partition: int
    position: int
    offsets: Sequence[int] = ()
    keys: Sequence[bytes | None] = ()
    values: Sequence[bytes | None] = ()
    sequences: Sequence[bytes | None] = ()


class PartitionLost(NamedTuple):
    """What was read of the partition is no longer what the topic holds."""

    partition: int
    why: str


class Span(NamedTuple):
    """The first offset of a partition that is still there, and its end."""

    start: int
    end: int


class Applied(NamedTuple):
    """What a page did to the table: counts of records, and offset and reason of those that are unreadable."""

    changed: int
    older: int
    heartbeats: int
    unreadable: Sequence[tuple[int, str]]


class SuppressionSet:
    """One partition. An entry is a 16-byte key, the feed's sequence, and scope and expiry of its rule; the few recipients with
    rules of several scopes have theirs beside it. A recipient without suppressions keeps its sequence, so that a record that
    comes late is known to be older."""

    __slots__ = (
        "_codes",
        "_entries",
        "_in_force",
        "_scopes",
        "_several",
        "heartbeat",
        "overtaken",
        "republished",
    )

    def __init__(self) -> None:
        self._entries = PackedTable()
        self._in_force = 0
        self._scopes: list[Scope] = []
        self._codes: dict[Scope, int] = {}
        self._several: dict[tuple[int, int], Rules] = {}
        self.heartbeat: float | None = None
        # The time of the newest heartbeat that said REPUBLISHED.
        self.republished: float | None = None
        # Recipients whose last record in the topic is older than what is held, and the sequence that is held: compaction will
        # keep the wrong one.
        self.overtaken: dict[RecipientKey, int] = {}

    def __len__(self) -> int:
        """Recipients with at least one suppression."""
        return self._in_force

    def apply(self, page: SuppressionPage) -> Applied:
        """Takes the records in, in their order: an older one than is held changes nothing, one that is none of this topic neither."""
        keys = read_keys(page.keys)
        sequences = read_sequences(page.sequences)
        kinds, which = kinds_of(page.values)
        codes, times = self._coded(kinds, which)
        usable = keys.usable & (sequences != BAD) & (codes != 0)
        heartbeats, unreadable = 0, []
        for place in np.flatnonzero(~usable).tolist():
            try:
                self._take_other(page, place, kinds[which[place]], is_key=bool(keys.usable[place]))
                heartbeats += 1
            except BadMessage as error:
                unreadable.append((page.offsets[place], str(error)))
        rows = np.flatnonzero(usable)
        entries = Entries(
            keys.high[rows],
            keys.low[rows],
            np.maximum(sequences[rows], 0).astype(np.uint64),
            codes[rows],
            times[rows],
            sequences[rows] == MISSING,
        )
        several = {
            place: kind
            for place in np.flatnonzero(entries.codes == _SEVERAL).tolist()
            if isinstance(kind := kinds[which[rows[place]]], dict)
        }
        older = self._put(entries, several)
        return Applied(len(rows) - older, older, heartbeats, unreadable)

    def _coded(
        self, kinds: Sequence[Rules | BadMessage], which: Places
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Code and time of each value; code 0 if it cannot be read."""
        coded = np.array([self._code(kind) for kind in kinds], np.uint32).reshape(-1, 2)
        return coded[which, 0], coded[which, 1]

    def _code(self, kind: Rules | BadMessage) -> tuple[int, int]:
        if isinstance(kind, BadMessage):
            return 0, NEVER
        if not kind:
            return _NOBODY, NEVER
        if len(kind) > 1:
            return _SEVERAL, NEVER
        [(scope, expires)] = kind.items()
        code = self._codes.get(scope)
        if code is None:
            code = self._codes[scope] = _SCOPES + len(self._scopes)
            self._scopes.append(scope)
        return code, expires

    def _take_other(
        self, page: SuppressionPage, place: int, kind: Rules | BadMessage, *, is_key: bool
    ) -> None:
        """A heartbeat; BadMessage says what is wrong with anything else."""
        if (page.keys[place] or b"").startswith(HEARTBEAT_PREFIX):
            self._beat(page.values[place])
        elif not is_key:
            raise BadMessage("not a suppression: the record's key is not 32 hex digits")
        elif isinstance(kind, BadMessage):
            raise kind
        else:
            raise BadMessage("not a suppression: header seq is not a number")

    def _beat(self, value: bytes | None) -> None:
        try:
            body = orjson.loads(value or b"")
            at = time_of(body["heartbeat"]).timestamp()
        except (ValueError, TypeError, KeyError) as error:
            raise BadMessage("not a heartbeat: its time is missing") from error
        self.heartbeat = max(at, self.heartbeat or at)
        if REPUBLISHED in body:
            self.republished = max(at, self.republished or at)

    def _put(self, entries: Entries, several: dict[int, Rules]) -> int:
        """How many are older than what is held."""
        older = 0
        turns, is_last = _turns(entries)
        for turn in turns:
            put = self._entries.put(entries.at(turn))
            older += int(put.older.sum())
            newer = turn[~put.older]
            held = put.held[~put.older]
            self._in_force += int((entries.codes[newer] > _NOBODY).sum() - (held > _NOBODY).sum())
            for place in newer[(held == _SEVERAL) | (entries.codes[newer] == _SEVERAL)].tolist():
                numbers = _numbers(entries, place)
                if place in several:
                    self._several[numbers] = several[place]
                else:
                    self._several.pop(numbers, None)
            if self.overtaken:
                for place in newer.tolist():
                    self.overtaken.pop(_key(entries, place), None)
            for place in turn[put.older & is_last[turn]].tolist():
                found = self._entries.get(*_numbers(entries, place))
                self.overtaken[_key(entries, place)] = found[0] if found else 0
        return older

    def hit(self, key: str, tenant: str, lane: Lane, now: float) -> int | None:
        """The sequence of the recipient's set, if it has a suppression in force for this tenant and lane."""
        numbers = key_halves(key)
        found = self._entries.get(*numbers)
        if found is None or found[1] == _NOBODY:
            return None
        sequence, code, expires = found
        rules = (
            self._several[numbers] if code == _SEVERAL else {self._scopes[code - _SCOPES]: expires}
        )
        wanted = LANES[lane.value]
        for (rule_lane, rule_tenant), until in rules.items():
            if (
                rule_lane in (LANES[EVERY], wanted)
                and rule_tenant in (EVERY, tenant)
                and (until == NEVER or until > now)
            ):
                return sequence
        return None


def _turns(entries: Entries) -> tuple[list[Places], NDArray[np.bool_]]:
    """Rows of which no two have one key: first those that are the first of their key, and so on. And which are the last of it."""
    count = len(entries.high)
    order = np.lexsort((entries.low, entries.high))
    high, low = entries.high[order], entries.low[order]
    again = np.zeros(count, np.bool_)
    again[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    is_last = np.ones(count, np.bool_)
    is_last[order[:-1][again[1:]]] = False
    if not again.any():
        return [np.arange(count)], is_last
    starts = np.maximum.accumulate(np.where(again, 0, np.arange(count)))
    ranks = np.empty(count, np.int64)
    ranks[order] = np.arange(count) - starts
    return [np.flatnonzero(ranks == turn) for turn in range(int(ranks.max()) + 1)], is_last


def _numbers(entries: Entries, place: int) -> tuple[int, int]:
    return int(entries.high[place]), int(entries.low[place])


def _key(entries: Entries, place: int) -> RecipientKey:
    return RecipientKey(key_text(*_numbers(entries, place)))
