"""128-bit keys to a sequence, a code and a time, exactly, in some 60 bytes an entry: a hash table in arrays of numpy.

Whole pages are put in at once, which costs a tenth of entry by entry. Two parts grow by themselves, so that no growth
copies everything, and Python's garbage collector has nothing to look at.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
U32 = NDArray[np.uint32]
Flags = NDArray[np.bool_]
Places = NDArray[np.int64]

# Code of a place without an entry.
FREE: Final = 0
_PARTS: Final = 2
_BUCKET: Final = 8
_FIRST_BUCKETS: Final = 8
_GROWTH: Final = 1.5
# Fuller buckets would be passed on from one to the next too often.
_FULL: Final = 0.65
# Keys are random in their every bit, but nothing here relies on it.
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


class Entries(NamedTuple):
    """Columns of one length. No key may stand there twice. `anyway` marks those that replace what is held whatever its sequence
    is, and keep that sequence."""

    high: U64
    low: U64
    sequences: U64
    codes: U32
    times: U32
    anyway: Flags

    def at(self, rows: Places | Flags) -> "Entries":
        """Some of the rows."""
        return Entries(
            self.high[rows],
            self.low[rows],
            self.sequences[rows],
            self.codes[rows],
            self.times[rows],
            self.anyway[rows],
        )


class Put(NamedTuple):
    """Of each entry: whether it is older than what is held, so that nothing changed, and the code that was held (or FREE)."""

    older: Flags
    held: U32


class PackedTable:
    """Nothing can be taken out."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts = [_Part() for _ in range(_PARTS)]

    def __len__(self) -> int:
        return sum(part.length for part in self._parts)

    def get(self, high: int, low: int) -> tuple[int, int, int] | None:
        """Sequence, code and time of the key, None if there is none."""
        return self._parts[low % _PARTS].get(high, low)

    def put(self, entries: Entries) -> Put:
        """Takes entries in, unless the sequence that is held is higher."""
        older = np.zeros(len(entries.high), np.bool_)
        held = np.zeros(len(entries.high), np.uint32)
        numbers = entries.low % np.uint64(_PARTS)
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            put = self._parts[number].put(entries.at(rows))
            older[rows], held[rows] = put
        return Put(older, held)


class _Part:
    """Buckets of eight places, filled from the left; what finds its bucket full goes on to the next one."""

    __slots__ = ("_buckets", "codes", "high", "length", "low", "sequences", "times")

    def __init__(self) -> None:
        self.length = 0
        self._make(_FIRST_BUCKETS)

    def _make(self, buckets: int) -> None:
        self._buckets = buckets
        self.high = np.zeros((buckets, _BUCKET), np.uint64)
        self.low = np.zeros((buckets, _BUCKET), np.uint64)
        self.sequences = np.zeros((buckets, _BUCKET), np.uint64)
        self.codes = np.zeros((buckets, _BUCKET), np.uint32)
        self.times = np.zeros((buckets, _BUCKET), np.uint32)

    def get(self, high: int, low: int) -> tuple[int, int, int] | None:
        bucket = ((high ^ low) * int(_MIX) & 0xFFFFFFFFFFFFFFFF) % self._buckets
        while True:
            codes = self.codes[bucket].tolist()
            for place, found in enumerate(self.high[bucket].tolist()):
                if found == high and codes[place] != FREE and self.low.item(bucket, place) == low:
                    at = (bucket, place)
                    return self.sequences.item(at), codes[place], self.times.item(at)
            if codes[-1] == FREE:
                return None
            bucket = (bucket + 1) % self._buckets

    def put(self, entries: Entries) -> Put:
        count = len(entries.high)
        self._make_room(count)
        older = np.zeros(count, np.bool_)
        held = np.zeros(count, np.uint32)
        buckets = self._homes(entries)
        todo = np.arange(count)
        while len(todo):
            at = buckets[todo]
            codes = self.codes[at]
            same = (self.high[at] == entries.high[todo, None]) & (codes != FREE)
            # Nearly all that are new end here: the other half of the key is looked at where this one fits.
            likely = np.flatnonzero(_any(same))
            same[likely] &= self.low[at[likely]] == entries.low[todo[likely], None]
            is_held = _any(same)
            rows, places = todo[is_held], (at[is_held], same[is_held].argmax(axis=1))
            held[rows] = self.codes[places]
            older[rows] = self._replace(entries.at(rows), places)
            rows, at = todo[~is_held], at[~is_held]
            columns = (codes[~is_held] != FREE).sum(axis=1) + _ranks(at)
            fits = columns < _BUCKET
            self._write(entries.at(rows[fits]), (at[fits], columns[fits]))
            self.length += int(fits.sum())
            todo = rows[~fits]
            buckets[todo] = (buckets[todo] + 1) % self._buckets
        return Put(older, held)

    def _replace(self, entries: Entries, places: tuple[Places, Places]) -> Flags:
        """Writes what is not older; which are."""
        held = self.sequences[places]
        older = (entries.sequences < held) & ~entries.anyway
        entries = entries._replace(sequences=np.maximum(entries.sequences, held))
        newer = ~older
        self._write(entries.at(newer), (places[0][newer], places[1][newer]))
        return older

    def _write(self, entries: Entries, places: tuple[Places, Places]) -> None:
        self.high[places] = entries.high
        self.low[places] = entries.low
        self.sequences[places] = entries.sequences
        self.codes[places] = entries.codes
        self.times[places] = entries.times

    def _make_room(self, more: int) -> None:
        wanted = self.length + more
        if wanted <= self._buckets * _BUCKET * _FULL:
            return
        used = self.codes != FREE
        old = Entries(
            high=self.high[used],
            low=self.low[used],
            sequences=self.sequences[used],
            codes=self.codes[used],
            times=self.times[used],
            anyway=np.zeros(self.length, np.bool_),
        )
        self._make(max(int(self._buckets * _GROWTH), int(wanted / _FULL / _BUCKET) + 1) | 1)
        self._fill(old)

    def _fill(self, entries: Entries) -> None:
        """Of an empty table: each goes to the first place from its bucket on that those of earlier buckets leave."""
        buckets = self._homes(entries)
        order = np.argsort(buckets, kind="stable")
        numbers = np.arange(len(order))
        places = np.maximum.accumulate(buckets[order] * _BUCKET - numbers) + numbers
        fits = int(np.searchsorted(places, self._buckets * _BUCKET))
        self._write(entries.at(order[:fits]), np.divmod(places[:fits], _BUCKET))
        self.length = fits
        # Behind the last bucket comes the first one.
        self.put(entries.at(order[fits:]))

    def _homes(self, entries: Entries) -> Places:
        mixed = (entries.high ^ entries.low) * _MIX
        return np.asarray((mixed % np.uint64(self._buckets)).astype(np.int64))


def _any(flags: Flags) -> Flags:
    """Of each row of eight whether one is set: eight bytes that are one number."""
    return np.asarray(flags.view(np.uint64).ravel() != 0)


def _ranks(values: Places) -> Places:
    """Of each value, how many equal ones stand before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    numbers = np.arange(len(values))
    is_first = np.ones(len(values), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    ranks = np.empty(len(values), np.int64)
    ranks[order] = numbers - np.maximum.accumulate(np.where(is_first, numbers, 0))
    return ranks
