"""Keys and sequences of the records of mail.suppressions, whole pages of them at once."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_LENGTH: Final = 32
_NO_DIGIT: Final = 16
_LONGEST: Final = 18
# The header is missing, or is no number.
MISSING: Final = -1
BAD: Final = -2


def _digits() -> NDArray[np.uint8]:
    table = np.full(256, _NO_DIGIT, np.uint8)
    for value in range(16):
        for digit in (f"{value:x}", f"{value:X}"):
            table[ord(digit)] = value
    return table


_DIGITS: Final = _digits()


class Keys(NamedTuple):
    """The two halves of each key, and which records have a recipient key at all."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    usable: NDArray[np.bool_]


def read_keys(keys: Sequence[bytes | None]) -> Keys:
    """A recipient key is 32 hex digits."""
    try:
        text = b"".join(keys)  # type: ignore[arg-type] # None is a TypeError
        regular = len(text) == _LENGTH * len(keys) and set(map(len, keys)) <= {_LENGTH}  # type: ignore[arg-type]
    except TypeError:
        regular = False
    if regular:
        long_enough = np.ones(len(keys), np.bool_)
    else:
        whole = [key if key is not None and len(key) == _LENGTH else None for key in keys]
        long_enough = np.array([key is not None for key in whole], np.bool_)
        text = b"".join(key or bytes(_LENGTH) for key in whole)
    digits = _DIGITS[np.frombuffer(text, np.uint8)].reshape(len(keys), _LENGTH)
    usable = long_enough & (digits < _NO_DIGIT).all(axis=1)
    packed = (digits[:, ::2] << 4) | (digits[:, 1::2] & 15)
    halves = np.ascontiguousarray(packed).view(">u8").astype(np.uint64)
    return Keys(halves[:, 0], halves[:, 1], usable)


def key_text(high: int, low: int) -> str:
    """The recipient key of two halves."""
    return f"{high:016x}{low:016x}"


def key_halves(key: str) -> tuple[int, int]:
    """Of a recipient key."""
    return int(key[:16], 16), int(key[16:], 16)


def read_sequences(headers: Sequence[bytes | None]) -> NDArray[np.int64]:
    """The feed's sequence of each record, MISSING or BAD."""
    try:
        if b"".join(headers).isdigit() and max(map(len, headers)) <= _LONGEST:  # type: ignore[arg-type]
            return np.array(list(map(int, headers)), np.int64)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # one is missing or empty
        pass
    return np.array([_sequence(header) for header in headers], np.int64)


def _sequence(header: bytes | None) -> int:
    if header is None:
        return MISSING
    return int(header) if header.isdigit() and len(header) <= _LONGEST else BAD
