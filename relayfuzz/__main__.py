"""`python -m relayfuzz`: exit code 0 if the relay kept every promise whatever was killed and cut, 1 if one was broken, 2 if nothing could be shown."""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import devservers
from crash.campaign import commit_of_code
from crash.control import NotWorking
from crash.report import write_parts
from crash.running import servers
from relayfuzz import rounds
from relayfuzz.campaign import ROUND_DISTURBANCES, ROUND_S, Goal, State
from relayfuzz.campaign import run as run_campaign
from relayfuzz.focus import Found, find
from relayfuzz.mutations import MUTATIONS
from relayfuzz.plan import Plan, plan
from relayfuzz.repeats import BOUND_S
from relayfuzz.report import campaign_part, mutations_part
from relayfuzz.rounds import Round
from relayfuzz.story import MOST, keep, story
from relayfuzz.system import Stand

REPORT: Final = Path(__file__).resolve().parent.parent / "docs" / "proof.md"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="mailstreams-relayfuzz-"))
    try:
        return asyncio.run(_run(options, scratch))
    except (NotWorking, devservers.DevServersError) as error:
        print(f"relayfuzz: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m relayfuzz", description=__doc__)
    add = parser.add_argument
    add("--kills", type=int, default=2_000, help="kills and cuts, at least so many")
    add("--minutes", type=float, help="begins no further round after so long")
    add("--seed", type=int, default=1)
    add("--mode", choices=("wal", "poll"), default="wal", help="how the relay reads the feed")
    add("--resume", type=Path, metavar="FOLDER", help="keeps the counts there, and adds to them")
    add("--round", type=int, metavar="N", help="this round of the seed alone, at full size")
    add("--replay", type=Path, metavar="FILE", help="one round as the file says")
    add("--report", action="store_true", help="writes its parts of docs/proof.md")
    add(
        "--bound-ms",
        type=float,
        default=BOUND_S * 1000,
        help="how old what is sent again may be when it is disturbed; a machine full of other work needs more",
    )
    names = ", ".join(MUTATIONS)
    add(
        "--mutation",
        metavar="NAME",
        help=f"puts faults in and has to find each: {names}, several with commas, or all",
    )
    return parser.parse_args(arguments)


class Runner:
    """Performs rounds on systems of their own, and keeps the evidence of those that broke a promise."""

    def __init__(self, stand: Stand, *, bound_s: float) -> None:
        self._stand = stand
        self._bound_s = bound_s
        self._count = 0

    async def __call__(self, chosen: Plan) -> Round:
        self._count += 1
        name = f"relayfuzz_{os.getpid()}_{self._count}"
        done = await rounds.run(self._stand, chosen, name=name, bound_s=self._bound_s)
        directory = self._stand.directory / name
        if not done.holds and chosen.mutation is None:
            kept = keep(done, directory)
            print(f"evidence and stories: {kept}")
            print(f"python -m relayfuzz --replay {kept / 'plan.json'}")
        shutil.rmtree(directory, ignore_errors=True)
        return done


async def _run(options: argparse.Namespace, scratch: Path) -> int:
    names = _names(options)
    if unknown := set(names) - MUTATIONS.keys():
        raise NotWorking(f"there is no mutation {min(unknown)!r}: {', '.join(MUTATIONS)}")
    state = _state(options)
    goal = Goal(kills=options.kills, minutes=options.minutes, mode=options.mode)
    alone = options.round is not None or options.replay is not None
    if not names and not alone and goal.reached(state):
        print(json.dumps(state.last_line))
        return 0 if state.holds else 1
    print("starting PostgreSQL and Kafka", flush=True)
    async with servers(scratch) as (started, port):
        stand = Stand(started, port, scratch)
        try:
            await stand.start()
            runner = Runner(stand, bound_s=options.bound_ms / 1000)
            if names:
                return await _mutations(options, runner, names)
            if alone:
                return await _one(options, runner)
            return await _campaign(options, runner, state, goal)
        finally:
            await stand.stop()


async def _campaign(options: argparse.Namespace, runner: Runner, state: State, goal: Goal) -> int:
    print(f"seed {state.seed}, round {state.next_round}, commit {commit_of_code()}", flush=True)
    await run_campaign(runner, state, goal, told=_told, folder=options.resume)
    if options.report:
        write_parts(REPORT, {_part(options): campaign_part(state, goal)})
    print(json.dumps(state.last_line))
    return 0 if state.holds else 1


async def _one(options: argparse.Namespace, runner: Runner) -> int:
    if options.replay is not None:
        chosen = Plan.read(options.replay)
    else:
        chosen = plan(
            options.seed,
            options.round,
            disturbances=ROUND_DISTURBANCES,
            lasting_s=ROUND_S,
            mode=options.mode,
        )
    state = State(seed=chosen.seed)
    done = await runner(chosen)
    state.add(done, commit_of_code())
    _told(done)
    print(json.dumps(state.last_line))
    return 0 if done.holds else 1


async def _mutations(options: argparse.Namespace, runner: Runner, names: Sequence[str]) -> int:
    results: list[Found] = []
    for name in names:
        found, last = await find(runner, name, seed=options.seed)
        results.append(found)
        verdict = "found" if found.kinds else "NOT FOUND"
        print(
            f"{name}: {verdict} after {found.seconds:g} s, {found.rounds} rounds, as {found.kinds}"
        )
        print(f"  {found.example}", flush=True)
        if not found.kinds or len(names) == 1:
            _told(last)
        if options.report:
            write_parts(REPORT, {"relay-mutations": mutations_part(results)})
    missed = [found.mutation for found in results if not found.kinds]
    print(json.dumps({"mutations": [asdict(r) for r in results], "missed": missed}))
    return 1 if missed else 0


# Telling --------------------------------------------------------------------------------------------------------------


def _part(options: argparse.Namespace) -> str:
    return "relay" if options.mode == "wal" else f"relay-{options.mode}"


def _names(options: argparse.Namespace) -> list[str]:
    if options.mutation is None:
        return []
    return list(MUTATIONS) if options.mutation == "all" else options.mutation.split(",")


def _state(options: argparse.Namespace) -> State:
    folder: Path | None = options.resume
    if folder is None:
        return State(seed=options.seed)
    folder.mkdir(parents=True, exist_ok=True)
    return State.read(folder) or State(seed=options.seed)


def _told(done: Round) -> None:
    numbers, verdict = done.verdict.numbers, done.verdict
    print(
        f"{time.strftime('%H:%M:%S')} round {done.plan.number}: {numbers['rows']} rows, {done.kills} kills, {done.cuts} cuts, "
        f"{numbers['duplicates']} duplicates ({numbers['duplicates_of_recoveries']} of recoveries, oldest of the others "
        f"{verdict.oldest_duplicate_s * 1000:.0f} ms), {len(verdict.offences)} offences, {done.seconds:.0f} s",
        flush=True,
    )
    if done.stopped:
        print(f"  {done.stopped}")
    for offence in verdict.offences[:MOST]:
        print(story(done.evidence, offence))


if __name__ == "__main__":
    sys.exit(main())
