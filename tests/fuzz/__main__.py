"""The long form: `python -m tests.fuzz --inputs 100000`. Half of the inputs come from a fixed seed, half from a new one."""

import argparse
import asyncio
import logging
import secrets
import sys

from tests.fuzz.campaign import campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", help="run this seed alone")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    given = parser.parse_args()
    if given.inputs < 1:
        parser.error("--inputs has to be 1 or more")
    logging.getLogger().addHandler(logging.NullHandler())
    if given.seed is None:
        seeds = {"mailstreams": (given.inputs + 1) // 2, secrets.token_hex(8): given.inputs // 2}
    else:
        seeds = {given.seed: given.inputs}
    found = 0
    for seed, inputs in seeds.items():
        if not inputs:
            continue
        report = asyncio.run(campaign(seed, inputs, first=given.first))
        sys.stdout.write("\n".join(report.lines()) + "\n")
        sys.stdout.flush()
        found += report.found
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
