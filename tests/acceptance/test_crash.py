"""The crash harness in its short form: real processes, killed, frozen and cut off, and every promise holds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crash.verdict import ZERO

pytestmark = pytest.mark.servers
ROOT = Path(__file__).resolve().parent.parent.parent


def crash(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the object of the last line, and everything that was printed."""
    run = subprocess.run(
        [sys.executable, "-m", "crash", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    printed = run.stdout + run.stderr
    assert run.stdout.strip(), printed
    return run.returncode, json.loads(run.stdout.strip().splitlines()[-1]), printed


@pytest.mark.timeout(1200)
def test_nothing_is_lost_or_sent_twice_while_every_stage_is_killed(tmp_path: Path) -> None:
    short = ("--messages", "180", "--kills", "12", "--per-second", "50", "--tries", "0")
    code, line, printed = crash(*short, "--seed", "5", "--resume", str(tmp_path))
    assert code == 0, printed
    assert line["kills"] >= 12
    assert line["messages"] >= 180
    assert {name: line[name] for name in ZERO} == dict.fromkeys(ZERO, 0), printed
    # Counts add up over runs: there is nothing left to do.
    again, added, _ = crash(*short, "--seed", "9", "--resume", str(tmp_path))
    assert (again, added) == (0, line)
