"""`mailstreams dlq`: what failed for good, why, and how it is sent again."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer

from streams.commands.ending import Code, Ending
from streams.commands.operating import (
    BATCH,
    After,
    By,
    DryRun,
    File,
    Ids,
    Limit,
    Reason,
    Row,
    Tenant,
    admin,
    chosen,
    counts,
    decision,
    page,
    tell,
    tell_rest,
)
from streams.commands.running import Json, run_async
from streams.commands.showing import Steps, progress, show_table
from streams.domain.by_hand import Decision, LetterFilter, Page, Redrive, Redriving
from streams.domain.errors import Misconfigured
from streams.domain.topics import Lane

if TYPE_CHECKING:
    from streams.adapters.outbox_admin import OutboxAdmin

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Lists and redrives dead letters: messages that failed and need a person.",
)
Class = Annotated[str | None, typer.Option("--class", help="Only those of this error class.")]
OfReason = Annotated[
    str | None, typer.Option("--failed-because", help="Only those with exactly this reason.")
]
InLane = Annotated[str | None, typer.Option("--lane", help="transactional or bulk.")]
_UNKNOWN: Final = "none of these rows has a dead letter: what SES took, or what waits, is not sent again; mailstreams trace tells more"
_MEANING: Final = {
    Redriving.REDRIVEN: "sent again",
    Redriving.SUBMITTED: "not sent: SES had taken an earlier call, now submitted",
    Redriving.HELD: "left: SES may have taken them; --duplicates-possible sends them all the same",
    Redriving.EXPIRED: "left: their time is over; --new-life gives them another one",
    Redriving.PURGED: "left: their contents were removed",
    Redriving.BUSY: "left: in other hands this moment, try again",
    Redriving.NOT_FAILED: "left: not failed any more",
    Redriving.OLDER: "left: there is a younger dead letter of the same row",
    Redriving.ABSENT: "left: their rows are gone",
}


@app.command("list")
def list_(
    *,
    class_: Class = None,
    failed_because: OfReason = None,
    tenant: Tenant = None,
    lane: InLane = None,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """Tells how many there are of each class and reason, the most frequent first."""
    which = _which(class_, failed_because, tenant, lane)

    async def work() -> None:
        async with admin("dlq") as (store, _):
            rows = await store.dead_letter_groups(which, limit=limit)
        _show(
            {"groups": rows},
            ("rows", "class", "tenants", "oldest", "newest", "reason"),
            rows,
            as_json,
        )
        tell_rest(None, nothing=not rows, as_json=as_json)

    run_async(work)


@app.command()
def show(
    ids: Ids = None,
    *,
    class_: Class = None,
    failed_because: OfReason = None,
    tenant: Tenant = None,
    lane: InLane = None,
    limit: Limit = 100,
    after: After = None,
    as_json: Json = False,
) -> None:
    """Tells the dead letters one by one, oldest first; mailstreams trace tells the whole story of each row."""
    which = _which(class_, failed_because, tenant, lane, chosen(ids, None))

    async def work() -> None:
        async with admin("dlq") as (store, _):
            rows = await store.dead_letters(which, page(after, limit))
        if ids and not rows:
            raise Ending(Code.UNKNOWN, _UNKNOWN)
        following = rows[-1]["id"] if len(rows) == limit else None
        names = (
            "outbox_id",
            "created",
            "tenant",
            "lane",
            "class",
            "state",
            "attempts",
            "redrives",
            "reason",
        )
        told = [row | {"state": row["state"] or "gone"} for row in rows]
        _show({"dead_letters": rows, "next": following}, names, told, as_json)
        tell_rest(following, nothing=not rows, as_json=as_json)

    run_async(work)


@app.command()
def redrive(
    ids: Ids = None,
    *,
    reason: Reason,
    by: By,
    per_second: Annotated[
        float,
        typer.Option("--per-second", min=0.001, max=10_000, help="How many become due a second."),
    ] = 10.0,
    class_: Class = None,
    failed_because: OfReason = None,
    tenant: Tenant = None,
    lane: InLane = None,
    file: File = None,
    every: Annotated[bool, typer.Option("--all", help="All there are.")] = False,
    duplicates_possible: Annotated[
        bool,
        typer.Option(
            "--duplicates-possible",
            help="Also held ones, which SES may have taken: each is written down as a possible duplicate.",
        ),
    ] = False,
    new_life: Annotated[
        float | None,
        typer.Option(
            "--new-life", min=0.01, max=8760, help="Hours to live of those whose time is over."
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Sends dead letters again, so many a second, with all their attempts. The pace stands in the database: this command may
    be broken off at any time, and given again."""
    who = decision(by, reason)
    which = _which(class_, failed_because, tenant, lane, chosen(ids, file))
    if every != which.is_empty:
        raise Misconfigured("name ids, --class, --failed-because, --tenant or --lane, or say --all")
    live = None if new_life is None else timedelta(hours=new_life)
    how = Redrive(per_second=per_second, held=duplicates_possible, live=live, dry_run=dry_run)

    async def work() -> None:
        async with admin("dlq") as (store, _):
            with progress("dead letters", quiet=as_json) as told:
                rows = await _redrive(store, which, how, who, told)
        if not rows and which.outbox_ids:
            raise Ending(Code.UNKNOWN, _UNKNOWN)
        found = counts(rows)
        last = max((row["due"] for row in rows if row["due"] is not None), default=None)
        possible = sum(row["possible_duplicate"] for row in rows)
        lines = [f"{found[one]:>8}  {_MEANING[one]}" for one in Redriving if one in found]
        if possible:
            lines.append(f"{possible:>8}  of them may be duplicates")
        if last is not None:
            lines.append(f"the last one is due at {last:%Y-%m-%dT%H:%M:%SZ}")
        if dry_run:
            evident = found.get(Redriving.SUBMITTED, 0)
            lines.append(f"{evident} of {len(rows)} have evidence of delivery already")
            lines.append("nothing was changed")
        document = {"counts": found, "possible_duplicates": possible, "last_due": last}
        tell(document | {"dry_run": dry_run}, lines or ["none"], as_json=as_json)
        if not rows:
            raise typer.Exit(Code.NOTHING)

    run_async(work)


def _show(document: Row, names: Sequence[str], rows: Sequence[Row], as_json: bool) -> None:
    if as_json:
        tell(document, (), as_json=True)
    elif rows:
        show_table(names, [[row[name] for name in names] for row in rows])


async def _redrive(
    store: "OutboxAdmin", which: LetterFilter, how: Redrive, who: Decision, told: Steps
) -> list[Row]:
    """Page by page, each one transaction that goes on in time where the one before ended."""
    done: list[Row] = []
    at, start = Page(limit=BATCH), None
    while True:
        letters = await store.dead_letters(which, at)
        if letters:
            rows = await store.redrive(
                [UUID(letter["id"]) for letter in letters], how, who, start=start
            )
            start = _behind(rows, how, start)
            done += rows
            told(len(done))
        if len(letters) < BATCH:
            return done
        at = Page(after=UUID(letters[-1]["id"]), limit=BATCH)


def _behind(rows: list[Row], how: Redrive, start: datetime | None) -> datetime | None:
    """When the next one is due."""
    dues = [row["due"] for row in rows if row["due"] is not None]
    return max(dues) + timedelta(seconds=1 / how.per_second) if dues else start


def _which(
    class_: str | None,
    reason: str | None,
    tenant: str | None,
    lane: str | None,
    ids: list[UUID] | None = None,
) -> LetterFilter:
    if lane is not None and lane not in tuple(Lane):
        raise Misconfigured(f"--lane {lane!r}: the lanes are {', '.join(Lane)}")
    return LetterFilter(
        class_=class_,
        reason=reason,
        tenant=tenant,
        lane=lane,
        outbox_ids=tuple(ids) if ids else None,
    )
