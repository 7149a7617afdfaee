"""`python -m crash`: exit code 0 if every promise held whatever was killed, 1 if one was broken, 2 if nothing could be shown."""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import devservers
from crash.campaign import Goal, State, commit_of_code
from crash.campaign import run as run_campaign
from crash.control import NotWorking
from crash.focus import Found, find
from crash.mutations import MUTATIONS
from crash.report import write_report
from crash.rounds import Round, Rounds
from crash.running import servers, system
from crash.scenario import Mix, Scenario
from crash.shrinking import shrink
from crash.story import tell
from crash.system import LocalServers, System

_SHOWN = 3
REPORT = Path(__file__).resolve().parent.parent / "docs" / "proof.md"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="mailstreams-crash-"))
    try:
        return asyncio.run(_run(options, scratch))
    except (NotWorking, devservers.DevServersError) as error:
        print(f"crash: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m crash", description=__doc__)
    add = parser.add_argument
    add("--messages", type=int, default=200_000, help="at least so many")
    add("--kills", type=int, default=2_000, help="at least so many")
    add("--minutes", type=float, help="begins no further round after so long")
    add("--seed", type=int, default=1)
    add("--per-second", type=float, default=150.0, help="messages that are committed a second")
    add("--resume", type=Path, metavar="FOLDER", help="keeps the counts there, and adds to them")
    add("--report", action="store_true", help="writes docs/proof.md")
    add("--tries", type=int, default=12, help="of replays that make a failure shorter; 0: none")
    add("--replay", type=Path, metavar="FILE", help="one round as the file says")
    names = ", ".join(MUTATIONS)
    add(
        "--mutation",
        metavar="NAME",
        help=f"puts faults in and has to find each: {names}, several with commas, or all",
    )
    return parser.parse_args(arguments)


async def _run(options: argparse.Namespace, scratch: Path) -> int:
    if unknown := set(_names(options)) - MUTATIONS.keys():
        raise NotWorking(f"there is no mutation {min(unknown)!r}: {', '.join(MUTATIONS)}")
    if options.mutation is None and options.replay is None:
        state = _state(options, options.resume)
        if _goal(options).reached(state):
            print(json.dumps(state.last_line))
            return 0 if state.holds else 1
    print("starting PostgreSQL and Kafka", flush=True)
    async with servers(scratch) as (started, port):
        if options.mutation is not None:
            return await _mutations(options, started, port)
        if options.replay is not None:
            return await _replay(options, started, port)
        return await _campaign(options, started, port)


# The three things that it does ---------------------------------------------------------------------------------------


async def _campaign(options: argparse.Namespace, started: LocalServers, port: int) -> int:
    folder: Path | None = options.resume
    state = _state(options, folder)
    print(f"seed {state.seed}, round {state.next_round}, commit {commit_of_code()}", flush=True)
    async with system(started, port, name="crash") as made:
        broken = await run_campaign(
            Rounds(made),
            state,
            _goal(options),
            per_second=options.per_second,
            mix=Mix(),
            told=_progress,
            folder=folder,
        )
        kept = None if broken is None else _keep(made, broken)
    if options.report:
        write_report(REPORT, campaign=state)
    if broken is not None and kept is not None:
        tell(broken, kept)
        await _shorten(broken, started, port, kept, tries=options.tries)
    print(json.dumps(state.last_line))
    return 0 if state.holds else 1


async def _mutations(options: argparse.Namespace, started: LocalServers, port: int) -> int:
    names = _names(options)
    results: list[Found] = []
    for name in names:
        async with system(started, port, name="mutant", mutation=name) as made:
            found, last = await find(Rounds(made), name, seed=options.seed)
            if surprising := sorted(set(found.kinds) - set(MUTATIONS[name].shows_as)):
                print(f"{name} shows as {surprising} too: {_keep(made, last)}")
        results.append(found)
        verdict = "found" if found.kinds else "NOT FOUND"
        print(
            f"{name}: {verdict} after {found.seconds:g} s, {found.rounds} rounds, as {found.kinds}"
        )
        print(f"  {found.example}", flush=True)
        if len(names) == 1:
            _progress(last)
        if options.report:
            write_report(REPORT, mutations=results)
    missed = [found.mutation for found in results if not found.kinds]
    print(json.dumps({"mutations": [asdict(r) for r in results], "missed": missed}))
    return 1 if missed else 0


async def _replay(options: argparse.Namespace, started: LocalServers, port: int) -> int:
    scenario = Scenario.read(options.replay)
    done = await _once(scenario, started, port)
    _progress(done)
    print(json.dumps(_line(done)))
    return 0 if done.holds else 1


async def _once(scenario: Scenario, started: LocalServers, port: int) -> Round:
    async with system(started, port, name="replay", mutation=scenario.mutation) as made:
        done = await Rounds(made).run(scenario)
        if not done.holds:
            tell(done, _keep(made, done))
    return done


async def _shorten(
    broken: Round, started: LocalServers, port: int, kept: Path, *, tries: int
) -> None:
    kinds = broken.kinds

    async def fails(scenario: Scenario) -> bool:
        async with system(started, port, name="shrink", mutation=scenario.mutation) as made:
            again = await Rounds(made).run(scenario)
        same = bool(kinds & again.kinds)
        print(
            f"  {len(scenario.disturbances)} disturbances, {scenario.messages} messages: {'fails' if same else 'holds'}",
            flush=True,
        )
        return same

    if tries > 0:
        print(f"making the scenario shorter, at most {tries} tries", flush=True)
        short = await shrink(broken.scenario, fails, tries=tries)
        short.write(kept / "short-scenario.json")
        print(f"python -m crash --replay {kept / 'short-scenario.json'}")


# Telling --------------------------------------------------------------------------------------------------------------


def _goal(options: argparse.Namespace) -> Goal:
    return Goal(messages=options.messages, kills=options.kills, minutes=options.minutes)


def _names(options: argparse.Namespace) -> list[str]:
    if options.mutation is None:
        return []
    return list(MUTATIONS) if options.mutation == "all" else options.mutation.split(",")


def _state(options: argparse.Namespace, folder: Path | None) -> State:
    if folder is None:
        return State(seed=options.seed)
    folder.mkdir(parents=True, exist_ok=True)
    return State.read(folder) or State(seed=options.seed)


def _progress(done: Round) -> None:
    numbers = done.verdict.numbers
    print(
        f"{time.strftime('%H:%M:%S')} round {done.scenario.number}: {numbers['messages']} messages, {done.kills} kills, "
        f"{numbers['ambiguous_ever']} ambiguous meanwhile, {len(done.verdict.offences)} offences, {done.seconds:.0f} s",
        flush=True,
    )
    if done.stopped:
        print(f"  {done.stopped}")
    for offence in done.verdict.offences[:_SHOWN]:
        print(f"  {offence.kind}: {offence.outbox_id or ''} {offence.words}")


def _line(done: Round) -> dict[str, Any]:
    return {"kills": done.kills, **done.verdict.numbers, "seed": done.scenario.seed}


def _keep(made: System, broken: Round) -> Path:
    """The evidence, where nothing removes it."""
    kept = Path(tempfile.mkdtemp(prefix="mailstreams-crash-evidence-"))
    shutil.copytree(made.directory / "workers", kept / "workers")
    shutil.copy(made.directory / "simulator.log", kept)
    replace(broken.scenario, mutation=made.mutation).write(kept / "scenario.json")
    (kept / "disturbances.log").write_text("\n".join(broken.log) + "\n", encoding="utf-8")
    return kept


if __name__ == "__main__":
    sys.exit(main())
