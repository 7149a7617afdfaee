"""The fuzz of the relay in its short form: killed, frozen and cut off, nothing is lost and every key stays in order."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relayfuzz.verdict import ZERO

pytestmark = pytest.mark.servers
ROOT = Path(__file__).resolve().parent.parent.parent
# The tests beside this one take the processor away: what is sent again may be older then.
BOUND_MS = "5000"


def fuzz(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the object of the last line, and everything that was printed."""
    run = subprocess.run(
        [sys.executable, "-m", "relayfuzz", "--bound-ms", BOUND_MS, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    printed = run.stdout + run.stderr
    assert run.stdout.strip(), printed
    return run.returncode, json.loads(run.stdout.strip().splitlines()[-1]), printed


@pytest.mark.parametrize(("mode", "kills"), [("wal", 6), ("poll", 4)])
def test_nothing_is_lost_or_out_of_order_while_everything_around_the_relay_is_killed(
    tmp_path: Path, mode: str, kills: int
) -> None:
    short = ("--kills", str(kills), "--mode", mode, "--resume", str(tmp_path))
    code, line, printed = fuzz(*short, "--seed", "5")
    assert code == 0, printed
    assert line["kills"] + line["cuts"] >= kills
    assert line["rows"] > 100
    assert {name: line[name] for name in ZERO} == dict.fromkeys(ZERO, 0), printed
    # Counts add up over runs: there is nothing left to do.
    again, added, _ = fuzz(*short, "--seed", "9")
    assert (again, added) == (0, line)
