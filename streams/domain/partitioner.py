"""Which partition a key belongs to: Java's murmur2, as every Kafka client's default partitioner computes it."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
# Below so many keys numpy's fixed cost is more than hashing them one by one.
_FEW: Final = 12


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of one key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def positive_hashes(keys: Sequence[bytes]) -> list[int]:
    """The hash of each key, its sign bit cleared: modulo the number of partitions it is the partition."""
    if len(keys) < _FEW:
        return [murmur2(key) & 0x7FFFFFFF for key in keys]
    length = len(keys[0])
    if all(len(key) == length for key in keys):
        return _hash_equal_lengths(keys, length)
    return _hash_mixed_lengths(keys)


def murmur2(key: bytes) -> int:
    """org.apache.kafka.common.utils.Utils.murmur2, as an unsigned number."""
    length = len(key)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def _hash_mixed_lengths(keys: Sequence[bytes]) -> list[int]:
    places: defaultdict[int, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        places[len(key)].append(place)
    hashes = [0] * len(keys)
    for length, group in places.items():
        found = _hash_equal_lengths([keys[place] for place in group], length)
        for place, value in zip(group, found, strict=True):
            hashes[place] = value
    return hashes


def _hash_equal_lengths(keys: Sequence[bytes], length: int) -> list[int]:
    # Arithmetic on arrays of uint32 wraps, which is what Java's int does.
    count, whole = len(keys), length & ~3
    data: NDArray[np.uint8] = np.frombuffer(b"".join(keys), np.uint8).reshape(count, length)
    words = np.ascontiguousarray(data[:, :whole]).view("<u4")
    m = np.uint32(_M)
    h = np.full(count, (_SEED ^ length) & _MASK, np.uint32)
    for word in range(whole // 4):
        k = words[:, word] * m
        k ^= k >> np.uint32(24)
        k *= m
        h *= m
        h ^= k
    if whole < length:
        for place in range(whole, length):
            h ^= data[:, place].astype(np.uint32) << np.uint32(8 * (place - whole))
        h *= m
    h ^= h >> np.uint32(13)
    h *= m
    h ^= h >> np.uint32(15)
    positive: list[int] = (h & np.uint32(0x7FFFFFFF)).tolist()
    return positive
