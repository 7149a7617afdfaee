"""Nothing that the development servers start outlives its owner."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from devservers.errors import PrerequisiteMissing, ProcessGone
from devservers.processes import spawn
from tests.integration.process_table import REPOSITORY, eventually, python_path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

TREE = ["sh", "-c", "sleep 1000 & setsid sleep 1000 & wait"]
OWNER = """
    import sys, time
    from pathlib import Path
    from devservers.processes import spawn
    kept = spawn({argv!r}, name="tree", log_path=Path("log"), cwd=Path.cwd())
    print("started", flush=True)
    time.sleep(1000)
"""


def processes_in(directory: Path) -> set[int]:
    """The processes whose working directory is there or below, and that are more than zombies."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                place = (entry / "cwd").readlink()
            except OSError:
                continue
            if place == directory or directory in place.parents:
                found.add(int(entry.name))
    return found


def start_owner(directory: Path, argv: list[str]) -> subprocess.Popen[str]:
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER.format(argv=argv))],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": python_path(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "started\n"
    return owner


def end(owner: subprocess.Popen[str], number: int) -> None:
    owner.send_signal(number)
    owner.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_tree_ends_with_its_owner_however_that_ends(tmp_path: Path, number: int) -> None:
    owner = start_owner(tmp_path, TREE)
    eventually(lambda: len(processes_in(tmp_path)) == 5)  # owner, watchdog, shell, two sleeps
    end(owner, number)
    eventually(lambda: not processes_in(tmp_path))


def test_a_program_that_ignores_the_stop_signal_is_killed_after_its_grace(tmp_path: Path) -> None:
    with spawn(
        ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"],
        name="stubborn",
        log_path=tmp_path / "log",
        grace=0.2,
    ) as process:
        eventually(lambda: "ready" in (tmp_path / "log").read_text())
        assert process.stop() == -signal.SIGKILL


def test_a_frozen_tree_ends_with_its_owner(tmp_path: Path) -> None:
    owner = start_owner(tmp_path, TREE)
    eventually(lambda: len(processes_in(tmp_path)) == 5)
    for pid in processes_in(tmp_path) - {owner.pid}:
        if "watchdog" not in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGSTOP)
    end(owner, signal.SIGKILL)
    eventually(lambda: not processes_in(tmp_path))


def test_a_program_ends_with_its_watchdog(tmp_path: Path) -> None:
    owner = start_owner(tmp_path, ["sleep", "1000"])
    eventually(lambda: len(processes_in(tmp_path)) == 3)
    (program,) = [
        pid
        for pid in processes_in(tmp_path)
        if Path(f"/proc/{pid}/cmdline").read_text() == "sleep\0" + "1000\0"
    ]
    (watchdog,) = processes_in(tmp_path) - {owner.pid, program}
    os.kill(watchdog, signal.SIGKILL)
    eventually(lambda: program not in processes_in(tmp_path))
    end(owner, signal.SIGKILL)


def test_a_forked_copy_of_the_owner_does_not_keep_a_tree_alive(tmp_path: Path) -> None:
    script = OWNER.replace("time.sleep(1000)", "import os; os.fork(); time.sleep(1000)")
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script.format(argv=["sleep", "1000"]))],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": python_path(REPOSITORY)},
        stdout=subprocess.DEVNULL,
    )
    eventually(lambda: len(processes_in(tmp_path)) == 4)
    owner.kill()
    owner.wait()
    eventually(lambda: len(processes_in(tmp_path)) == 1)  # the copy alone
    (copy,) = processes_in(tmp_path)
    os.kill(copy, signal.SIGKILL)
    eventually(lambda: not processes_in(tmp_path))


def test_what_a_program_leaves_behind_is_ended_and_its_exit_code_is_kept(tmp_path: Path) -> None:
    with spawn(
        ["sh", "-c", "setsid sleep 1000 & exit 7"],
        name="shell",
        log_path=tmp_path / "log",
        cwd=tmp_path,
    ) as process:
        assert process.wait(15) == 7
        assert not processes_in(tmp_path)


def test_kill_ends_the_whole_tree_before_wait_returns(tmp_path: Path) -> None:
    with spawn(TREE, name="tree", log_path=tmp_path / "log", cwd=tmp_path) as process:
        eventually(lambda: len(processes_in(tmp_path)) == 3)
        process.kill()
        assert process.wait(15) == -signal.SIGKILL
        assert not processes_in(tmp_path)
        assert not process.alive


def test_pause_freezes_the_whole_tree_and_cont_lets_it_go_on(tmp_path: Path) -> None:
    def states() -> set[str]:
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in processes_in(tmp_path)]
        return {stat.rpartition(")")[2].split()[0] for stat in stats}

    with spawn(TREE, name="tree", log_path=tmp_path / "log", cwd=tmp_path) as process:
        eventually(lambda: len(processes_in(tmp_path)) == 3)
        process.pause()
        eventually(lambda: states() == {"T"})
        process.cont()
        eventually(lambda: states() == {"S"})


def test_a_process_that_has_ended_is_not_signalled(tmp_path: Path) -> None:
    with spawn(["true"], name="true", log_path=tmp_path / "log") as process:
        assert process.wait(15) == 0
        process.kill()
        process.terminate()
        with pytest.raises(ProcessGone):
            process.pause()


def test_a_program_that_is_not_there_is_named_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteMissing, match=r"^thing could not be started \(No such file"):
        spawn(["/nowhere/program"], name="thing", log_path=tmp_path / "log")
