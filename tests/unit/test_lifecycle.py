"""The one loop runner, health, and the life of stages."""

import asyncio
import os
import signal

import pytest

from streams.domain.errors import Misconfigured, Unavailable
from streams.runtime.lifecycle import Health, run_duties, run_loop, run_stages
from streams.salt_check import SaltCheck


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_failing_step_is_tried_again_after_recovery() -> None:
    health, stopping, calls, recovered = Health("test"), asyncio.Event(), [], []

    async def step() -> float:
        calls.append(1)
        if len(calls) == 1:
            raise Unavailable("gone")
        stopping.set()
        return 0

    async def recover() -> None:
        recovered.append(1)
        assert "duty" in health.missing()

    await run_loop(step, name="duty", health=health, stopping=stopping, recover=recover)
    assert (len(calls), len(recovered), health.missing()) == (2, 1, {})


async def test_misconfiguration_ends_the_loop() -> None:
    async def step() -> float:
        raise Misconfigured("set it")

    with pytest.raises(Misconfigured):
        await run_loop(step, name="d", health=Health("t"), stopping=asyncio.Event())


async def test_a_bug_does_not_end_the_loop_but_shows() -> None:
    health, stopping, calls = Health("test"), asyncio.Event(), []

    async def step() -> float:
        calls.append(dict(health.missing()))
        if len(calls) < 3:
            raise ZeroDivisionError
        stopping.set()
        return 0

    await run_loop(step, name="duty", health=health, stopping=stopping)
    assert calls[0] == {}
    assert "ZeroDivisionError" in calls[1]["duty"]


async def test_an_error_of_one_duty_ends_all_and_is_raised() -> None:
    stopping, ended = asyncio.Event(), []

    async def wrong() -> float:
        raise Misconfigured("set it")

    async def other() -> float:
        await asyncio.sleep(0)
        ended.append(1)
        return 0

    with pytest.raises(Misconfigured):
        await run_duties({"other": other, "wrong": wrong}, health=Health("test"), stopping=stopping)
    assert stopping.is_set()
    assert ended


def test_liveness_is_progress() -> None:
    clock = Clock()
    health = Health("test", clock=clock, stuck_after_s=60)
    health.beat("duty")
    clock.now = 59
    assert health.stuck() == {}
    clock.now = 61
    assert health.stuck() == {"duty": 61}
    health.beat("duty")
    assert health.stuck() == {}


class FakeStage:
    def __init__(self, name: str, *, failures: int = 0, error: Exception | None = None) -> None:
        self.name, self.health = name, Health(name)
        self.failures, self.error = failures, error
        self.told: list[str] = []
        self.stopping = asyncio.Event()

    async def start(self) -> None:
        self.told.append("start")
        self.stopping.clear()
        if self.failures:
            self.failures -= 1
            raise Unavailable("not yet")

    async def run(self) -> None:
        self.told.append("run")
        if self.error:
            raise self.error
        os.kill(os.getpid(), signal.SIGTERM)
        await self.stopping.wait()

    async def stop(self) -> None:
        self.told.append("stop")
        self.stopping.set()


async def test_sigterm_stops_the_stages() -> None:
    stage = FakeStage("a")
    await run_stages([stage], start_patience_s=5, drain_s=5)
    assert stage.told == ["start", "run", "stop"]


async def test_a_server_that_is_late_is_waited_for() -> None:
    stage = FakeStage("a", failures=2)
    await run_stages([stage], start_patience_s=30, drain_s=5)
    assert stage.told[-2:] == ["run", "stop"]


async def test_a_server_that_never_comes_is_an_error() -> None:
    with pytest.raises(Unavailable):
        await run_stages([FakeStage("a", failures=99)], start_patience_s=0, drain_s=5)


async def test_an_error_of_one_stage_stops_all_and_is_raised() -> None:
    other = FakeStage("b")
    with pytest.raises(Misconfigured, match="set it"):
        await run_stages(
            [FakeStage("a", error=Misconfigured("set it")), other], start_patience_s=5, drain_s=5
        )
    assert other.told[-1] == "stop"


@pytest.mark.parametrize("error", [asyncio.CancelledError(), None])
async def test_a_stage_that_ends_by_itself_is_an_error(error: BaseException | None) -> None:
    class Ending(FakeStage):
        async def run(self) -> None:
            if error is not None:
                raise error

    with pytest.raises(RuntimeError, match="stage a ended"):
        await run_stages([Ending("a"), FakeStage("b")], start_patience_s=5, drain_s=5)


async def test_a_wrong_salt_ends_the_process_once_the_database_is_back() -> None:
    answers = [Unavailable("away"), Misconfigured("another salt")]

    async def compare() -> None:
        raise answers.pop(0)

    check = SaltCheck(compare)
    await check.start()
    assert "salt" in check.health.missing()
    with pytest.raises(Misconfigured, match="another salt"):
        await check.run()


async def test_a_compared_salt_is_ready() -> None:
    async def compare() -> None:
        asyncio.get_running_loop().call_soon(check_done.set)

    check_done = asyncio.Event()
    check = SaltCheck(compare)
    await check.start()
    running = asyncio.create_task(check.run())
    await check_done.wait()
    await check.stop()
    await running
    assert check.health.missing() == {}
