"""How a command runs what is asynchronous, and the option that all of them share."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]


def run_async(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs it on uvloop where there is one."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        from uvloop import new_event_loop as factory
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work())
