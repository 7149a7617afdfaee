"""A worker of the fuzz: the command `mailstreams relay`, with points, eyes and, if told so, one fault put around its classes."""

from pathlib import Path
from typing import Any

from crash import worker


def run(order: dict[str, Any]) -> int:
    """`mailstreams <arguments>` in this process; the exit code."""
    if order.get("trap"):
        from crash import points
        from crash.journal import Journal
        from crash.traps import Trap
        from relayfuzz import eyes
        from relayfuzz.mutations import MUTATIONS

        journal = Journal(Path(order["journal"]))
        if order.get("mutation"):
            MUTATIONS[order["mutation"]].put_in()
        points.install("relay", Trap(Path(order["trap"]), "relay"), journal)
        eyes.install(journal)
    return worker.command(order["argv"])
