"""What the broker itself wrote down about a consumer group: its generations and its committed positions."""

import struct
from dataclasses import dataclass, field
from typing import Final

from tests.scenarios.topics import admin_of, partitions_of, records_of

OFFSETS_TOPIC: Final = "__consumer_offsets"
_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2


@dataclass(slots=True)
class GroupHistory:
    """In the order in which it happened."""

    generations: list[int] = field(default_factory=list)
    commits: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    @property
    def went_back(self) -> dict[tuple[str, int], list[int]]:
        """Partitions where a commit was behind the one before it, as one of a former owner is."""
        return {
            partition: offsets
            for partition, offsets in self.commits.items()
            if offsets != sorted(offsets)
        }


async def history(bootstrap_servers: str, group: str) -> GroupHistory:
    """Reads Kafka's own topic from its beginning; what was compacted meanwhile is missing."""
    found = GroupHistory()
    partitions = await partitions_of(bootstrap_servers, OFFSETS_TOPIC)
    for record in await records_of(bootstrap_servers, partitions):
        assert record.key is not None
        key = _Reader(record.key)
        kind = key.number(">h")
        if kind in _OFFSET_KEYS and key.text() == group:
            partition = (key.text(), key.number(">i"))
            if record.value is not None:
                found.commits.setdefault(partition, []).append(_committed(record.value))
        elif kind == _GROUP_KEY and key.text() == group and record.value is not None:
            value = _Reader(record.value)
            value.number(">h")
            value.text()
            found.generations.append(value.number(">i"))
    return found


async def members_when_stable(bootstrap_servers: str, group: str) -> int:
    """How many members it has; 0 while it is being formed anew."""
    async with admin_of(bootstrap_servers) as admin:
        [answer] = await admin.describe_consumer_groups([group])
    [(error, _, state, _, _, members, *_)] = answer.groups
    return len(members) if not error and state == "Stable" else 0


def _committed(value: bytes) -> int:
    """Every version of the value has a version number and then the offset."""
    return int(struct.unpack_from(">q", value, 2)[0])


class _Reader:
    """Numbers and texts one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        [value] = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def text(self) -> str:
        length = self.number(">h")
        found = self._data[self._at : self._at + length]
        self._at += length
        return found.decode()
