"""`mailstreams status`: is it healthy, what waits, since when and why, on one screen."""

from dataclasses import asdict

import typer

from streams.commands.ending import Code
from streams.commands.operating import tell
from streams.commands.running import Json, run_async
from streams.commands.showing import show_table
from streams.domain.overview import Level, verdict


def status(*, as_json: Json = False) -> None:
    """Tells whether it is healthy, what waits, since when and why. Changes nothing.
    Exit code 0: healthy; 1: something wants attention, or could not be looked at."""
    from streams import wiring

    async def work() -> None:
        lines = await wiring.overview()
        level = verdict(lines)
        if as_json:
            tell({"verdict": level, "parts": [asdict(line) for line in lines]}, (), as_json=True)
        else:
            rows = [(one.level, one.part, one.told, one.next or "") for one in lines]
            show_table(("", "part", "what is known", "look at"), rows)
            wrong = sum(one.level is not Level.OK for one in lines)
            print("healthy" if level is Level.OK else f"{wrong} of {len(lines)} want attention")
        if level is not Level.OK:
            raise typer.Exit(Code.FAILED)

    run_async(work)
