"""The heartbeats of mail.suppressions: one key a partition, so that every reader sees how old its newest record is."""

from itertools import count
from typing import Final

from streams.domain.partitioner import partition_of

PREFIX: Final = "heartbeat-"
_LENGTH: Final = 32


def heartbeat_keys(partitions: int) -> list[str]:
    """A key for each partition, in their order: as long as a recipient key and never one, placed by Java's murmur2."""
    found: dict[int, str] = {}
    for n in count():
        key = PREFIX + str(n).zfill(_LENGTH - len(PREFIX))
        found.setdefault(partition_of(key.encode(), partitions), key)
        if len(found) == partitions:
            break
    return [found[partition] for partition in range(partitions)]
