"""The sub-commands of `mailstreams`. Exit codes: 0 done, 1 failed while running, 2 something has to be set up or changed; more
in streams.commands.ending."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import typer

from streams.commands import ambiguous, dead_letters, keys, suppressions, tenants
from streams.commands.cancel import cancel
from streams.commands.doctor import doctor
from streams.commands.ending import Ending
from streams.commands.erase import erase
from streams.commands.pauses import pause_app, resume_app
from streams.commands.rebuild import rebuild
from streams.commands.reconcile import reconcile
from streams.commands.running import Json, run_async
from streams.commands.status import status
from streams.commands.tracing import trace
from streams.domain.errors import MailstreamsError, Misconfigured, Unavailable
from streams.domain.reclassification import CHANGES, Report

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A transactional e-mail pipeline on PostgreSQL, Kafka and Amazon SES.",
)
app.add_typer(suppressions.app, name="suppressions")
app.add_typer(ambiguous.app, name="ambiguous")
app.command()(ambiguous.duplicates)
app.add_typer(dead_letters.app, name="dlq")
app.add_typer(keys.app, name="keys")
app.add_typer(tenants.app, name="tenants")
app.add_typer(pause_app, name="pause")
app.add_typer(resume_app, name="resume")
app.command()(cancel)
app.command()(doctor)
app.command()(status)
app.command()(trace)
app.command()(reconcile)
app.command()(erase)
app.command()(rebuild)

STAGES: Final = ("relay", "sender", "events", "recipients", "scheduler")
NOT_BUILT: Final = {
    "console": "the web console; mailstreams trace tells the story of one message meanwhile",
    "replay": "replay by command; a pointer that is still in its topic is read again after resetting the offsets of the sender's group, which sends nothing twice",
}
# Reasons of the intake that are trouble of ours; a test holds them and their status together.
TEMPORARY: Final = (
    "certificate-unavailable",
    "confirmation-failed",
    "publish-failed",
    "overloaded",
)


def main() -> None:
    """Runs the command; an error that a person can mend is one sentence on standard error and exit code 2."""
    try:
        _check_text(sys.argv)
        app(standalone_mode=True)
    except Ending as end:
        print(f"mailstreams: {end}", file=sys.stderr)
        sys.exit(end.code)
    except Misconfigured as error:
        print(f"mailstreams: {error}", file=sys.stderr)
        sys.exit(2)
    except MailstreamsError as error:
        print(f"mailstreams: {error}", file=sys.stderr)
        sys.exit(1)


def _check_text(arguments: Sequence[str]) -> None:
    """What is no text in the shell's encoding reaches Python as lone surrogates, which no server takes."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            raise Misconfigured(f"{argument!a} is not text in UTF-8")


def _stage_command(names: Sequence[str]) -> Callable[[], None]:
    def command() -> None:
        from streams import wiring

        run_async(lambda: wiring.run(names))

    return command


for _name in (*STAGES, "api"):
    app.command(_name, help=f"Runs the stage {_name} until SIGTERM.")(_stage_command((_name,)))
app.command("all", help="Runs every stage in one process until SIGTERM.")(_stage_command(STAGES))


def _refusal(name: str, what: str) -> Callable[[], None]:
    def command() -> None:
        raise Misconfigured(f'"mailstreams {name}" is not built yet: {what}')

    return command


for _name, _what in NOT_BUILT.items():
    app.command(
        _name,
        hidden=True,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(_refusal(_name, _what))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
    help="Runs the simulator of SES and SNS (for development and tests); --help lists its options.",
)
def simulator(context: typer.Context) -> None:
    from streams.simulator.__main__ import main as run_simulator

    run_simulator(context.args)


@app.command()
def migrate(
    *,
    topics: Annotated[bool, typer.Option(help="Make the Kafka topics too.")] = True,
    as_json: Json = False,
) -> None:
    """Brings the database to today's schema and makes the replication slot and the topics, where they are missing."""
    from streams import wiring

    async def work() -> None:
        done = await wiring.migrate(with_topics=topics)
        if as_json:
            print(json.dumps(done))
            return
        for what, changed in done.items():
            print(f"{what}: {', '.join(changed) if changed else 'nothing to do'}")

    run_async(work)


@app.command()
def drain(
    queue_url: Annotated[str, typer.Argument(help="URL of the SQS queue.")],
    *,
    as_json: Json = False,
) -> None:
    """Takes the messages of an SQS queue, such as the dead letters of an SNS subscription, until none is left."""
    from streams import wiring

    async def work() -> None:
        counts = await wiring.drain(queue_url)
        if as_json:
            print(json.dumps(counts))
        for reason, count in () if as_json else sorted(counts.items()):
            print(f"{reason}: {count}")
        if not counts and not as_json:
            print("the queue is empty")
        if left := sum(counts.get(reason, 0) for reason in TEMPORARY):
            raise Unavailable(
                f"{left} messages could not be handled now and are left in the queue: try again"
            )

    run_async(work)


@app.command()
def reclassify(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change, change nothing.")
    ] = False,
    rules_version: Annotated[
        int | None, typer.Option(help="Version of the bounce rules; the newest by default.")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(help="Go on behind this recipient key, where a run was broken off."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Runs another version of the bounce rules over the stored evidence: suppresses what it finds, lifts what was wrong."""
    from streams import wiring

    def told(report: Report) -> None:
        if not as_json:
            print(f"\r{report.recipients} recipients, last {report.last}", end="", file=sys.stderr)

    async def work() -> None:
        done = await wiring.reclassify(
            rules_version=rules_version, dry_run=dry_run, after=after, told=told
        )
        if as_json:
            print(json.dumps(done.as_json()))
            return
        would = "would be " if done.dry_run else ""
        print(
            f"\nbounce rules v{done.rules_version}: {done.recipients} recipients looked at, {done.changed} {would}changed"
        )
        for what in CHANGES:
            for reason, rows in sorted(done.by_change[what].items()):
                print(f"{what:<9} {reason:<21} {rows}")

    run_async(work)
