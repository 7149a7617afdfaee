"""The demo's own path, with every stage killed once."""

import json
import os
import subprocess
import sys

import pytest

import devservers

pytestmark = pytest.mark.servers


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_sent_twice_while_every_stage_is_killed(
    servers: devservers.Servers,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--kill", "1"],
        env=os.environ | servers.environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    last = json.loads(done.stdout.strip().splitlines()[-1])
    zero = (
        "lost",
        "sent_twice",
        "sent_to_suppressed",
        "sent_uncommitted",
        "ambiguous",
        "facts_missing",
    )
    assert {name: last[name] for name in zero} == dict.fromkeys(zero, 0)
    assert (last["committed"], last["submitted"], last["suppressed"], last["failed"]) == (
        2000,
        1800,
        190,
        10,
    )
    assert last["kills"] == 5
