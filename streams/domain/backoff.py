"""How long to wait before trying again. Randomness is an argument: a number in [0, 1)."""

from typing import Final

LONGEST_THROTTLE_S: Final = 10.0
LONGEST_UNREACHABLE_S: Final = 60.0


def throttle_delay_s(in_a_row: int, random: float) -> float:
    """After so many throttled answers in a row (from 1): 0.5 s, doubling up to 10 s, jittered to [0.5, 1.0) of it."""
    return min(0.5 * 2.0 ** min(in_a_row - 1, 20), LONGEST_THROTTLE_S) * _jitter(random)


def unreachable_delay_s(in_a_row: int, random: float) -> float:
    """After SES was not reached so often in a row (from 1): 1 s, three times as long each time up to 60 s, jittered likewise.

    Five attempts of one message so span at least 20 s, and end within a minute.
    """
    return min(3.0 ** min(in_a_row - 1, 20), LONGEST_UNREACHABLE_S) * _jitter(random)


def _jitter(random: float) -> float:
    return 0.5 + random / 2
