"""docs/commands.md tells the commands and exit codes that there are."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.main import get_command

from streams import cli
from streams.commands.ending import Code

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "commands.md").read_text(encoding="utf-8")
# Told elsewhere: what runs for long, what sets up, and development.
ELSEWHERE = {*cli.STAGES, "all", "api", "simulator", "migrate", "drain"}


def commands() -> dict[str, Any]:
    found: dict[str, Any] = vars(get_command(cli.app))["commands"]
    return {name: command for name, command in found.items() if not command.hidden}


def test_every_command_of_an_operator_is_told_of() -> None:
    named = set(re.findall(r"`([a-z-]+)", PAGE)) | set(re.findall(r"^## (.+)$", PAGE, re.M))
    named |= {part for heading in named for part in heading.split(", ")}
    assert commands().keys() - ELSEWHERE - named - {"keys", "tenants"} == set()


def test_every_command_that_is_shown_exists() -> None:
    shown = set(re.findall(r"^\$ mailstreams ([a-z]+)", PAGE, re.M))
    assert len(shown) >= 7
    assert shown <= commands().keys()


def test_the_options_that_are_named_exist() -> None:
    known = {"--install-completion"}
    waiting = list(commands().values())
    while waiting:
        command = waiting.pop()
        waiting += vars(command).get("commands", {}).values()
        known |= {option for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"(?<!-)(--[a-z][a-z-]*)", PAGE)) <= known


def test_a_command_starts_without_what_only_some_need() -> None:
    heavy = ("numpy", "rich", "pydantic", "asyncpg", "aiokafka", "aiohttp", "botocore")
    code = f"import sys, streams.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_exit_codes_are_those_of_the_code() -> None:
    told = re.findall(r"^\| (\d) \| ", PAGE, re.M)
    assert [int(code) for code in told] == sorted(Code)
