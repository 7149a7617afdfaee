"""How long nothing comes when the relay that streams ends or falls silent: from the signal to the standby's first acknowledged record."""

import signal
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks import machine
from benchmarks.takeover_stand import TakeoverStand

NAME: Final = "takeover"
TIMES: Final = 20
PER_SECOND: Final = 200.0
TARGETS_S: Final = {"kill": 15.0, "term": 3.0, "frozen": 15.0, "swallowed": 15.0}
_LONGEST_S: Final = 60.0


def run(*, quick: bool) -> dict[str, Any]:
    """The numbers; what is done is told on the way."""
    times = 1 if quick else TIMES
    cases: dict[str, Callable[[TakeoverStand, str], Callable[[], None]]] = {
        "kill": _kill,
        "term": _term,
        **({} if quick else {"frozen": _freeze, "swallowed": _swallow}),
    }
    found: dict[str, list[float]] = {}
    with TakeoverStand() as stand, stand.load(PER_SECOND):
        for name, disturb in cases.items():
            found[name] = [_once(stand, disturb) for _ in range(times)]
            print(f"{name}: {_summary(found[name], TARGETS_S[name])}", flush=True)
    return {
        "benchmark": NAME,
        "quick": quick,
        "times": times,
        "rows_per_s": PER_SECOND,
        **{name: _summary(seconds, TARGETS_S[name]) for name, seconds in found.items()},
        "all_s": {name: [round(s, 2) for s in seconds] for name, seconds in found.items()},
        **machine.description(),
    }


def _once(
    stand: TakeoverStand, disturb: Callable[[TakeoverStand, str], Callable[[], None]]
) -> float:
    """One takeover, and both relays run again."""
    active, standby = stand.settled()
    stand.until_acknowledged(active, more_than=stand.acknowledged(active), within_s=_LONGEST_S)
    before = stand.acknowledged(standby)
    begun = time.monotonic()
    repair = disturb(stand, active)
    ended = stand.until_acknowledged(standby, more_than=before, within_s=_LONGEST_S)
    repair()
    return ended - begun


def _kill(stand: TakeoverStand, active: str) -> Callable[[], None]:
    stand.process(active).kill()
    return _start_again(stand, active)


def _term(stand: TakeoverStand, active: str) -> Callable[[], None]:
    stand.process(active).terminate()
    return _start_again(stand, active)


def _freeze(stand: TakeoverStand, active: str) -> Callable[[], None]:
    """Its connections stay open and say nothing."""
    stand.process(active).signal(signal.SIGSTOP)
    return lambda: stand.process(active).signal(signal.SIGCONT)


def _swallow(stand: TakeoverStand, active: str) -> Callable[[], None]:
    """Killed while the network between it and PostgreSQL loses everything, so that PostgreSQL hears of no end."""
    way = stand.ways[active]
    way.swallowing = True
    stand.process(active).kill()

    def repair() -> None:
        way.reset()
        way.swallowing = False
        _start_again(stand, active)()

    return repair


def _start_again(stand: TakeoverStand, relay: str) -> Callable[[], None]:
    def start() -> None:
        stand.process(relay).wait(_LONGEST_S)
        stand.start(relay)

    return start


def _summary(seconds: list[float], target_s: float) -> dict[str, float]:
    return {
        "min_s": round(min(seconds), 2),
        "median_s": round(statistics.median(seconds), 2),
        "max_s": round(max(seconds), 2),
        "target_s": target_s,
    }
