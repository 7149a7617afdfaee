"""A proof with the whole system of its own: started, judged, told, and its logs kept where it failed."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import devservers
from demo.system import STAGES, NotWorking, System


def prove(
    name: str,
    run: Callable[[System], tuple[Sequence[str], Mapping[str, Any]]],
    *,
    settings: Mapping[str, str] | None = None,
    stages: Sequence[str] = STAGES,
    way_to_ses: Callable[[str], str] = str,
) -> int:
    """run: what is wrong in words, and the numbers of the last line. The exit code: 0, 1 if something is wrong, 2 without servers."""
    directory = Path(tempfile.mkdtemp(prefix=f"mailstreams-{name}-"))
    database = f"{name}_{os.getpid()}"
    try:
        with devservers.running() as servers:
            dsn = servers.postgres.create_database(database)
            try:
                with System(
                    servers,
                    dsn=dsn,
                    directory=directory,
                    topic_prefix=f"{database}.",
                    settings=settings,
                    stages=stages,
                    way_to_ses=way_to_ses,
                ) as system:
                    wrong, numbers = run(system)
            finally:
                servers.postgres.drop_database(database)
    except (NotWorking, devservers.DevServersError) as error:
        print(f"{name}: {error}\nlogs: {directory}")
        return 1 if isinstance(error, NotWorking) else 2
    for fault in wrong:
        print(f"WRONG: {fault}")
    print(json.dumps({**numbers, "faults": len(wrong)}))
    if wrong:
        print(f"logs: {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0
