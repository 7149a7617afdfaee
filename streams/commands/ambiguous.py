"""`mailstreams ambiguous` and `mailstreams duplicates`: calls of unknown outcome, and what may have gone out twice."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer

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
    batches,
    chosen,
    counts,
    decision,
    exit_of,
    page,
    tell,
    tell_rest,
)
from streams.commands.running import Json, run_async
from streams.domain.by_hand import SETTLED, Page, next_step
from streams.domain.errors import Misconfigured
from streams.domain.schedule import Resending

if TYPE_CHECKING:
    from streams.adapters.outbox_admin import OutboxAdmin
    from streams.runtime.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Lists and settles messages of which it is not known whether SES took them.",
)
_MEANING: Final = {
    "submitted": "submitted, as SES took it",
    "pending": "sent again",
    "expired": "not sent again, its time is over",
    "evident": "left: there is evidence that SES took it, which settles it in a moment",
    "busy": "left: it is in other hands this moment, try again",
    "not-ambiguous": "left: it is not of unknown outcome",
    "absent": "there is no such row",
}


@app.command("list")
def list_(
    *,
    tenant: Tenant = None,
    limit: Limit = 100,
    after: After = None,
    as_json: Json = False,
) -> None:
    """Tells which calls have an unknown outcome, since when, and what will happen when no event comes."""

    async def work() -> None:
        async with admin("ambiguous") as (store, settings):
            asked = page(after, limit)
            rows = await store.ambiguous(asked, tenant=tenant)
        following = rows[-1]["attempt_id"] if len(rows) == limit else None
        now = datetime.now(UTC)
        found = [row | {"next": _next(row, settings, now)} for row in rows]
        lines = [
            f"{r['outbox_id']}  {r['tenant']:<12}  {r['policy']:<18}  since {r['since']:%Y-%m-%dT%H:%M:%SZ}  attempt {r['attempt_id']}  {r['next']}"
            for r in found
        ]
        tell({"ambiguous": found, "next": following}, lines, as_json=as_json)
        tell_rest(following, nothing=not rows, as_json=as_json)

    run_async(work)


@app.command()
def settle(
    ids: Ids = None,
    *,
    accepted: Annotated[
        bool | None,
        typer.Option(
            "--accepted/--not-accepted",
            help="SES took them: submitted. It did not: they are sent again, and written down as possible duplicates.",
        ),
    ] = None,
    reason: Reason,
    by: By,
    file: File = None,
    every: Annotated[
        bool, typer.Option("--all", help="All of them, or all that --tenant, --older-than name.")
    ] = False,
    tenant: Tenant = None,
    older_than: Annotated[
        float, typer.Option("--older-than", min=0, help="With --all: for so many hours at least.")
    ] = 0.0,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Settles messages of unknown outcome by hand, held ones too. Where there is evidence, it wins."""
    if accepted is None:
        raise Misconfigured("say --accepted or --not-accepted")
    who, given = decision(by, reason), chosen(ids, file)
    if every == bool(given):
        raise Misconfigured("name ids (arguments, --file) or say --all, one of the two")
    if not every and (tenant is not None or older_than):
        raise Misconfigured("--tenant and --older-than choose among all: say --all too")

    async def work() -> None:
        async with admin("ambiguous") as (store, _):
            if every:
                given.extend(await _all(store, tenant, timedelta(hours=older_than)))
            rows: list[Row] = []
            for some in batches(given):
                rows += await store.settle(some, who, accepted=accepted, dry_run=dry_run)
        lines = [f"{row['outbox_id']}  {_MEANING[row['outcome']]}" for row in rows]
        if dry_run:
            lines.append("nothing was changed")
        document = {"settled": rows, "counts": counts(rows), "dry_run": dry_run}
        tell(document, lines or ["none"], as_json=as_json)
        if code := exit_of(counts(rows), SETTLED):
            raise typer.Exit(code)

    run_async(work)


async def _all(store: "OutboxAdmin", tenant: str | None, older_than: timedelta) -> list[UUID]:
    """The rows of all open calls of unknown outcome, each once."""
    found: dict[UUID, None] = {}
    at = Page(limit=BATCH)
    while True:
        rows = await store.ambiguous(at, tenant=tenant, older_than=older_than)
        found |= dict.fromkeys(UUID(row["outbox_id"]) for row in rows)
        if len(rows) < BATCH:
            return list(found)
        at = Page(after=UUID(rows[-1]["attempt_id"]), limit=BATCH)


def _next(row: Row, settings: "Settings", now: datetime) -> str:
    return next_step(
        policy=row["policy"],
        since=row["since"],
        held=row["held"],
        can_be_sent=row["attempts"] < settings.sender_max_attempts
        and (row["expires_at"] is None or row["expires_at"] > now),
        resending=Resending(
            after=timedelta(seconds=settings.scheduler_resend_s),
            when_silent_after=timedelta(seconds=settings.scheduler_silent_s),
            most_attempts=settings.sender_max_attempts,
        ),
        hold_after=timedelta(seconds=settings.scheduler_hold_s),
    )


def duplicates(
    *,
    proven: Annotated[
        bool | None, typer.Option("--proven/--possible", help="Only the one kind.")
    ] = None,
    tenant: Tenant = None,
    limit: Limit = 100,
    after: After = None,
    as_json: Json = False,
) -> None:
    """Tells which messages may have gone out twice or have, by which calls, and why."""

    async def work() -> None:
        async with admin("duplicates") as (store, _):
            rows = await store.duplicates(page(after, limit), tenant=tenant, proven=proven)
        following = rows[-1]["attempt_id"] if len(rows) == limit else None
        lines = [line for row in rows for line in _story(row)]
        tell({"duplicates": rows, "next": following}, lines, as_json=as_json)
        tell_rest(following, nothing=not rows, as_json=as_json)

    run_async(work)


def _story(row: Row) -> list[str]:
    kind = "possible" if row["proven"] is None else "proven"
    head = f"{row['outbox_id']}  {kind:<8}  {row['why']:<18}  {row['tenant']}  since {row['since']:%Y-%m-%dT%H:%M:%SZ}  {row['state'] or 'purged'}"
    calls = [
        f"    {call['finished']}  attempt {call['attempt_id']}  {call['outcome']}  {call['provider_message_id'] or ''}"
        for call in row["calls"]
    ]
    return [head, *calls]
