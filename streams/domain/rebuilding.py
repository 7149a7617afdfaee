"""What a rebuild from the topic finds: where the live facts and the rebuilt ones differ, and what the topic is too young to tell."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from streams.domain.addresses import RecipientKey
from streams.domain.partitioner import partition_of

SAMPLES: Final = 10
KEPT: Final = 100_000


class Table(StrEnum):
    """What is compared, in this order."""

    EVENTS = "email_event"
    OUTCOMES = "recipient_outcome"
    STATES = "recipient_state"
    SUPPRESSIONS = "suppression"


class What(StrEnum):
    """How a live row stands to the rebuilt one. fuller: the live event knows its message, the rebuilt one does not."""

    MISSING = "missing"
    SURPLUS = "surplus"
    DIFFERENT = "different"
    FULLER = "fuller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One row. since: the time of the youngest fact in which both differ; row tells which one it is."""

    table: Table
    what: What
    recipient_key: RecipientKey
    since: datetime | None
    row: str

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what.value,
            "recipient_key": self.recipient_key,
            "since": None if self.since is None else self.since.isoformat(),
            "row": self.row,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """What the topic still knows, by partition: None, everything from its first record on; else everything younger than this."""

    oldest: Mapping[int, datetime | None]

    @property
    def is_open(self) -> bool:
        """The topic still has every record that was ever written to it."""
        return all(at is None for at in self.oldest.values())

    def hides(self, key: RecipientKey, since: datetime | None) -> bool:
        """A fact of this time may rest on records that the topic has dropped."""
        at = self.oldest[partition_of(key.encode(), len(self.oldest))]
        return at is not None and (since is None or since < at)

    def ends(self, key: RecipientKey) -> bool:
        """Records of this recipient may have been dropped."""
        return self.oldest[partition_of(key.encode(), len(self.oldest))] is not None


@dataclass(slots=True, kw_only=True)
class Compared:
    """One table. untold: rows that differ in what the topic cannot tell any more."""

    rebuilt: int = 0
    counts: Counter[What] = field(default_factory=Counter)
    untold: int = 0
    samples: list[Difference] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "rebuilt": self.rebuilt,
            "missing": self.counts[What.MISSING],
            "surplus": self.counts[What.SURPLUS],
            "different": self.counts[What.DIFFERENT],
            "untold": self.untold,
            "samples": [one.as_json() for one in self.samples],
        }


class Comparison:
    """Takes in differences, events before all other tables, and judges them by the horizon."""

    def __init__(self, horizon: Horizon) -> None:
        self._horizon = horizon
        # Recipients of whom the live facts know messages by records that are gone.
        self._untellable: set[RecipientKey] = set()
        self.tables: dict[Table, Compared] = {table: Compared() for table in Table}
        # At most so many, for mending.
        self.found: list[Difference] = []

    @property
    def is_equal(self) -> bool:
        return self.total == 0

    @property
    def total(self) -> int:
        """How many rows differ."""
        return sum(table.counts.total() for table in self.tables.values())

    def take(self, difference: Difference) -> None:
        """Counts it, or excuses it."""
        key = difference.recipient_key
        table = self.tables[difference.table]
        if difference.what is What.FULLER and self._horizon.ends(key):
            self._untellable.add(key)
            table.untold += 1
            return
        if key in self._untellable or self._horizon.hides(key, difference.since):
            table.untold += 1
            return
        what = What.DIFFERENT if difference.what is What.FULLER else difference.what
        table.counts[what] += 1
        if len(table.samples) < SAMPLES:
            table.samples.append(difference)
        if len(self.found) < KEPT:
            self.found.append(difference)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The end of it. mended: recipients whose facts were derived again; changed: those that new events reached meanwhile."""

    records: int
    unreadable: int
    horizon: Horizon
    comparison: Comparison
    changed: int
    folded: int | None = None
    mended: int | None = None

    @property
    def is_equal(self) -> bool:
        return self.comparison.is_equal

    def as_json(self) -> dict[str, Any]:
        ends = [at for at in self.horizon.oldest.values() if at is not None]
        return {
            "equal": self.is_equal,
            "applied": self.folded is not None,
            "records": self.records,
            "unreadable": self.unreadable,
            "topic_tells_since": max(ends).isoformat() if ends else None,
            "changed_meanwhile": self.changed,
            "folded": self.folded,
            "mended": self.mended,
            "tables": {name.value: one.as_json() for name, one in self.comparison.tables.items()},
        }


def pages(found: Sequence[Difference], table: Table, size: int) -> list[list[Difference]]:
    """The differences of one table, so many at a time, in the order of their recipients."""
    rows = sorted(
        (one for one in found if one.table is table), key=lambda one: (one.recipient_key, one.row)
    )
    return [rows[at : at + size] for at in range(0, len(rows), size)]
