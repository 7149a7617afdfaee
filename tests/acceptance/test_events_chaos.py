"""The short form of `python -m demo.events_chaos`: every fact of the simulator's ledger is in PostgreSQL exactly once."""

from pathlib import Path

import pytest

import devservers
from demo.events_chaos import KILLED, SETTINGS, Chaos
from tests.acceptance.conftest import system_on

pytestmark = [pytest.mark.servers, pytest.mark.timeout(420)]


def test_every_fact_is_kept_once_whatever_sns_does_and_however_often_stages_are_killed(
    servers: devservers.Servers, tmp_path: Path
) -> None:
    with system_on(servers, tmp_path, settings=SETTINGS) as system:
        faults, numbers = Chaos(system=system, messages=600, seed=7, say=print).run()
    assert faults == []
    assert numbers["accepted"] == numbers["messages"] == 600
    assert all(numbers["kills"][stage] >= 2 for stage in KILLED)
    assert numbers["unmatched"] == 0
