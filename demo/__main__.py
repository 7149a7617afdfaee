"""`make demo`: exit code 0 if every count is what the script of the run says it must be."""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

import devservers
from demo.plan import make_plan
from demo.run import Run
from demo.system import NotWorking, System
from demo.verdict import Verdict

MEANING: Final = {
    "committed": "rows that the application committed",
    "submitted": "accepted by SES",
    "suppressed": "not sent: the recipient is suppressed",
    "failed": "dead letters: the template is unknown",
    "expired": "too late",
    "ambiguous": "of unknown outcome",
    "lost": "committed and gone, or never sent",
    "sent_twice": "accepted by SES more than once",
    "sent_to_suppressed": "accepted by SES although suppressed",
    "sent_uncommitted": "sent although rolled back",
    "facts_missing": "facts of SES that PostgreSQL lacks",
    "twins_made_anew": "second calls under one dedup key that made another row",
    "ledger_accepted": "calls that SES accepted",
}


def main() -> int:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 150)
    directory = Path(tempfile.mkdtemp(prefix="mailstreams-demo-"))
    started = time.monotonic()
    try:
        verdict, settled = _run(options, console, directory)
    except (NotWorking, devservers.DevServersError) as error:
        console.print(f"demo: {error}\nlogs: {directory}", highlight=False)
        return 1 if isinstance(error, NotWorking) else 2
    _summary(console, verdict)
    print(
        json.dumps({**verdict.numbers, **settled, "seconds": round(time.monotonic() - started, 1)})
    )
    if verdict.faults:
        console.print(f"logs: {directory}", highlight=False, style="dim", end="\n")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--kill", type=int, default=0, choices=(0, 1), help="kill each stage once")
    parser.add_argument("--seed", type=int, default=1, help="of the script of the run")
    return parser.parse_args()


def _run(
    options: argparse.Namespace, console: Console, directory: Path
) -> tuple[Verdict, dict[str, object]]:
    plan = make_plan(options.seed)
    console.print("starting PostgreSQL and Kafka", highlight=False)
    with devservers.running() as servers:
        name = f"demo_{os.getpid()}"
        dsn = servers.postgres.create_database(name)
        try:
            console.print(
                "starting the simulator and every stage as a process of its own", highlight=False
            )
            with System(servers, dsn=dsn, directory=directory, topic_prefix=f"{name}.") as system:
                run = Run(system=system, plan=plan, console=console, with_kills=bool(options.kill))
                verdict = asyncio.run(run.run())
                _tell_story(console, system, run)
        finally:
            servers.postgres.drop_database(name)
    return verdict, {"kills": len(run.in_flight_at_kills)}


def _tell_story(console: Console, system: System, run: Run) -> None:
    """`mailstreams trace` of one message that bounced."""
    console.print("\nthe story of one message (mailstreams trace)", highlight=False)
    told = subprocess.run(
        [sys.executable, "-m", "streams", "trace", str(run.example())],
        env=dict(system.environment),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if told.returncode != 0:
        raise NotWorking(f"mailstreams trace failed: {told.stderr.strip()}")
    console.print(told.stdout, highlight=False, markup=False, soft_wrap=True)


def _summary(console: Console, verdict: Verdict) -> None:
    table = Table("count", "messages", "meaning", box=None, pad_edge=False)
    for name, meaning in MEANING.items():
        table.add_row(name, str(verdict.numbers[name]), meaning)
    console.print(table)
    for name in ("commit_to_ses_ms", "event_to_suppression_ms"):
        p50, p99 = (verdict.numbers[f"{name}_p{p}"] for p in (50, 99))
        console.print(
            f"{name.removesuffix('_ms').replace('_', ' ')}: p50 {p50} ms, p99 {p99} ms",
            highlight=False,
        )
    for fault in verdict.faults:
        console.print(f"WRONG: {fault}", style="bold red", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
