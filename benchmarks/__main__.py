"""`python -m benchmarks [NAME ...] [--quick]`: all benchmarks, or those named. The last line of each is one JSON object."""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any, Final

import devservers
from benchmarks import (
    api,
    claims,
    events,
    polling,
    relay,
    rolling_restart,
    soak,
    suppression_table,
    takeover,
)

BENCHMARKS: Final[dict[str, Callable[..., dict[str, Any]]]] = {
    events.NAME: events.run,
    claims.NAME: claims.run,
    api.NAME: api.run,
    relay.NAME: relay.run,
    polling.NAME: polling.run,
    rolling_restart.NAME: rolling_restart.run,
    suppression_table.NAME: suppression_table.run,
    soak.NAME: soak.run,
    takeover.NAME: takeover.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: shows that it runs, measures nothing"
    )
    parser.add_argument(
        "--rows", type=int, help="of each backlog of the benchmarks relay and polling"
    )
    parser.add_argument("--minutes", type=float, help="of the benchmark soak")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - BENCHMARKS.keys())
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    if options.rows is not None and (
        options.names not in ([relay.NAME], [polling.NAME]) or options.rows < 1
    ):
        parser.error(f"--rows is a number of rows for {relay.NAME!r} or {polling.NAME!r} alone")
    if options.minutes is not None and (options.names != [soak.NAME] or options.minutes <= 0):
        parser.error(f"--minutes is a number of minutes for {soak.NAME!r} alone")
    sizes: dict[str, Any] = {} if options.rows is None else {"rows": options.rows}
    sizes |= {} if options.minutes is None else {"minutes": options.minutes}
    for name in options.names or BENCHMARKS:
        try:
            numbers = BENCHMARKS[name](quick=options.quick, **sizes)
        except devservers.DevServersError as error:
            print(f"benchmarks: {error}", file=sys.stderr)
            return 2
        print(json.dumps(numbers), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
