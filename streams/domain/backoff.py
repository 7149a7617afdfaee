"""How long to wait before trying again. Randomness is an argument: a number in [0, 1)."""

from typing import Final

LONGEST_RETRY_S: Final = 900.0
LONGEST_THROTTLE_S: Final = 10.0


def retry_delay_s(attempt: int, random: float) -> float:
    """After the attempt of this number (from 1): min(1 s * 2^(n-1), 15 min), jittered to [0.5, 1.0) of it."""
    return min(2.0 ** min(attempt - 1, 20), LONGEST_RETRY_S) * _jitter(random)


def throttle_delay_s(in_a_row: int, random: float) -> float:
    """After so many throttled answers in a row (from 1): 0.5 s, doubling up to 10 s, jittered likewise."""
    return min(0.5 * 2.0 ** min(in_a_row - 1, 20), LONGEST_THROTTLE_S) * _jitter(random)


def _jitter(random: float) -> float:
    return 0.5 + random / 2
