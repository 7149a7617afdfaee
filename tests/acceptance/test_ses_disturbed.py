"""The short forms of `make outage` and `make timeouts`, on real processes."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

import devservers

pytestmark = [pytest.mark.servers, pytest.mark.timeout(420)]


def run(servers: devservers.Servers, module: str, *options: str) -> dict[str, Any]:
    """The last line of a run that found nothing wrong."""
    done = subprocess.run(
        [sys.executable, "-m", module, *options],
        env=os.environ | servers.environment(),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def test_while_ses_is_down_mail_waits_and_then_goes_out(servers: devservers.Servers) -> None:
    found = run(servers, "demo.outage", "--messages", "300", "--minutes", "10", "--scale", "0.02")
    assert found["submitted"] + found["ambiguous"] == 500
    assert found["ever_ambiguous"] <= 50


def test_calls_without_an_answer_are_settled_by_events(servers: devservers.Servers) -> None:
    found = run(servers, "demo.timeouts", "--messages", "400")
    assert found["settled_by_events"] == found["unanswered"] > 0
