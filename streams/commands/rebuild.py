"""`mailstreams rebuild`: facts and suppressions once more from the topic."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from streams.commands.running import Json, run_async

if TYPE_CHECKING:
    from streams.domain.rebuilding import Rebuilt


def rebuild(
    *,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Fold what is missing into the live tables, and derive again what differs.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Rebuilds facts and suppressions from the topic mail.delivery-events and compares them with the live ones.

    Without --apply nothing is changed. Exit code 1 if they differ in anything that the topic still tells.
    """
    from streams import wiring
    from streams.rebuild import Progress

    def told(progress: Progress) -> None:
        if not as_json and sys.stderr.isatty():
            line = f"\r{progress.records} of {progress.of} records {progress.what}"
            print(line, end="", file=sys.stderr)

    async def work() -> None:
        done = await wiring.rebuild(apply=apply, told=told)
        if as_json:
            print(json.dumps(done.as_json()))
        else:
            _print(done)
        if not done.is_equal:
            raise typer.Exit(1)

    run_async(work)


def _print(done: "Rebuilt") -> None:
    from streams.domain.rebuilding import What

    print(f"{done.records} records, {done.unreadable} of them unreadable")
    ends = [at for at in done.horizon.oldest.values() if at is not None]
    if ends:
        print(f"the topic has dropped older records: it tells everything since {max(ends)}")
    if done.folded is not None:
        print(f"{done.folded} records folded into the live tables, {done.mended} recipients mended")
    print(
        f"{'table':<18} {'rebuilt':>9} {'missing':>9} {'surplus':>9} {'different':>9} {'untold':>9}"
    )
    for name, table in done.comparison.tables.items():
        counts = [table.counts[what] for what in (What.MISSING, What.SURPLUS, What.DIFFERENT)]
        numbers = "".join(f" {n:>9}" for n in (table.rebuilt, *counts, table.untold))
        print(f"{name.value:<18}{numbers}")
    for table in done.comparison.tables.values():
        for one in table.samples:
            print(
                f"{one.table.value} {one.what.value}: {one.recipient_key} {one.row} ({one.since})"
            )
    if done.changed:
        print(f"{done.changed} recipients are left out, since new events reached them meanwhile")
    print("equal" if done.is_equal else "NOT equal")
