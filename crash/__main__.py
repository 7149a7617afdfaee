"""`python -m crash`: exit code 0 if every promise held whatever was killed, 1 if one was broken, 2 if nothing could be shown."""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import devservers
from crash.campaign import Goal, State
from crash.campaign import run as run_campaign
from crash.control import NotWorking
from crash.rounds import Round, Rounds
from crash.running import servers, system
from crash.scenario import Mix
from crash.story import tell

_SHOWN = 3


def main() -> int:
    options = _options()
    try:
        return asyncio.run(_campaign(options))
    except (NotWorking, devservers.DevServersError) as error:
        print(f"crash: {error}", file=sys.stderr)
        return 2


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m crash", description=__doc__)
    add = parser.add_argument
    add("--messages", type=int, default=200_000, help="at least so many")
    add("--kills", type=int, default=2_000, help="at least so many")
    add("--minutes", type=float, help="begins no further round after so long")
    add("--seed", type=int, default=1)
    add("--per-second", type=float, default=120.0, help="messages that are committed a second")
    add("--resume", type=Path, metavar="FOLDER", help="keeps the counts there, and adds to them")
    return parser.parse_args()


async def _campaign(options: argparse.Namespace) -> int:
    folder: Path | None = options.resume
    state = _state(options, folder)
    goal = Goal(messages=options.messages, kills=options.kills, minutes=options.minutes)
    scratch = Path(tempfile.mkdtemp(prefix="mailstreams-crash-"))
    print(f"starting PostgreSQL and Kafka; seed {state.seed}")
    async with servers(scratch) as (started, port), system(started, port, name="crash") as made:
        broken = await run_campaign(
            Rounds(made),
            state,
            goal,
            per_second=options.per_second,
            mix=Mix(),
            told=_progress,
            folder=folder,
        )
        if broken is not None:
            kept = _keep(made.directory, broken)
            tell(broken, kept)
    shutil.rmtree(scratch, ignore_errors=True)
    print(json.dumps(state.last_line))
    return 0 if state.holds else 1


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


def _keep(directory: Path, broken: Round) -> Path:
    """The evidence, where nothing removes it."""
    kept = Path(tempfile.mkdtemp(prefix="mailstreams-crash-evidence-"))
    shutil.copytree(directory / "workers", kept / "workers")
    shutil.copy(directory / "simulator.log", kept)
    broken.scenario.write(kept / "scenario.json")
    (kept / "disturbances.log").write_text("\n".join(broken.log) + "\n", encoding="utf-8")
    return kept


if __name__ == "__main__":
    sys.exit(main())
