"""The benchmarks run; what they measure here is nothing."""

import json
import os
import subprocess
import sys

import pytest

import devservers
from benchmarks import relay
from benchmarks.__main__ import BENCHMARKS
from devservers.connect import NO_MAVEN
from devservers.settings import DEV_MAVEN

pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_last_line_of_a_benchmark_is_one_json_object(
    servers: devservers.Servers, name: str
) -> None:
    if name == relay.NAME and os.environ.get(DEV_MAVEN) == NO_MAVEN:
        pytest.skip(f"{DEV_MAVEN} says that there is no Maven, and Debezium comes from there")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", name, "--quick"],
        env=os.environ | servers.environment(),
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    numbers = json.loads(done.stdout.strip().splitlines()[-1])
    assert (numbers["benchmark"], numbers["quick"]) == (name, True)
