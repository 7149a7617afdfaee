"""The simulator as a process of its own."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.simulator_rig import Control, client, endpoint, simple_mail, until


@asynccontextmanager
async def process(*options: str, ready: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "streams.simulator",
        "--ready-file",
        str(ready),
        "--key-bits",
        "1024",
        *options,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await until(lambda: ready.exists() or started.returncode is not None, within_s=30)
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


def url_of(ready: Path) -> str:
    url: str = json.loads(ready.read_bytes())["url"]
    return url


async def test_it_says_where_it_listens_and_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    async with process(ready=ready) as running, aiohttp.ClientSession() as session:
        async with session.get(url_of(ready) + "/health") as response:
            assert await response.json() == {"status": "ok"}
        running.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(running.communicate(), 10)
        assert running.returncode == 0
        lines = [json.loads(line) for line in errors.splitlines()]
        actions = [line["action"] for line in lines]
        assert actions == ["simulator_started", "simulator_stopped"]
        assert not ready.exists()


async def test_it_ends_on_sigterm_while_it_holds_an_answer(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    async with process(ready=ready) as running, aiohttp.ClientSession() as session:
        control = Control(session, url_of(ready))
        await control.post("hold", answers=True)
        ses = client("sesv2", url_of(ready))
        call = asyncio.create_task(asyncio.to_thread(ses.send_email, **simple_mail()))
        await control.until(lambda state: state["held"] == 1)
        running.send_signal(signal.SIGTERM)
        await asyncio.wait_for(running.communicate(), 10)
        assert running.returncode == 0
        await asyncio.wait([call])
        ses.close()


async def test_it_subscribes_an_endpoint_that_comes_later_and_signs_in_a_process(
    tmp_path: Path,
) -> None:
    ready = tmp_path / "ready.json"
    async with endpoint() as subscriber:
        options = ("--subscribe", subscriber.url, "--signing-processes", "1")
        async with process(*options, ready=ready) as running, aiohttp.ClientSession() as session:
            await until(lambda: subscriber.received)
            subscriber.simulator_url = url_of(ready)
            await until(lambda: any(r.kind == "Notification" for r in subscriber.received))
            ses = client("sesv2", url_of(ready))
            await asyncio.to_thread(ses.send_email, **simple_mail())
            ses.close()
            state = await Control(session, url_of(ready)).quiet()
            assert state["events"]["delivered"] == 2
            assert [s["state"] for s in state["subscriptions"]] == ["confirmed"]
            children = _children(running.pid)
            assert len(children) == 1
            running.send_signal(signal.SIGKILL)
            await running.communicate()
            await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()


async def test_a_port_that_is_taken_stops_it_with_a_clear_sentence(tmp_path: Path) -> None:
    async with endpoint() as taken:
        port = taken.url.rpartition(":")[2].partition("/")[0]
        async with process("--port", port, ready=tmp_path / "ready.json") as running:
            _, errors = await asyncio.wait_for(running.communicate(), 20)
    assert running.returncode == 1
    assert errors.decode().startswith("The simulator cannot start: ")
    assert len(errors.splitlines()) == 1


async def test_bad_rules_stop_it_with_a_clear_sentence(tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text('{"rules": [{"match": "*", "outcome": "vanish"}]}', encoding="utf-8")
    ready = tmp_path / "ready.json"
    async with process("--rules-file", str(rules), ready=ready) as running:
        _, errors = await asyncio.wait_for(running.communicate(), 20)
        assert running.returncode == 1
        assert errors.decode().startswith("The simulator cannot start: Field 'outcome' in rule 0")
    assert os.listdir(tmp_path) == ["rules.json"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--script-file", "{file}"),
            "script.json: In 'account': Unknown field 'rat'; known fields: ",
        ),
        (("--script-file", "{file}.gone"), "[Errno 2] No such file or directory: "),
        (
            ("--configuration-set", "a b"),
            "BadRequestException: ConfigurationSetName must be 1 to 64 ",
        ),
        (("--topic-name", "a b"), "InvalidParameter: Invalid parameter: Topic Name"),
    ],
)
async def test_what_it_cannot_set_up_stops_it_with_a_clear_sentence(
    tmp_path: Path, options: tuple[str, str], sentence: str
) -> None:
    file = tmp_path / "script.json"
    file.write_text('{"account": {"rat": 1}}', encoding="utf-8")
    given = [option.format(file=file) for option in options]
    async with process(*given, ready=tmp_path / "ready.json") as running:
        _, errors = await asyncio.wait_for(running.communicate(), 20)
    assert running.returncode == 1
    assert errors.decode().startswith("The simulator cannot start: " + sentence)
    assert len(errors.splitlines()) == 1
