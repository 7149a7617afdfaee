"""`mailstreams reconcile`: what SES took a day ago or earlier, and of which it has told nothing since."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from streams.commands.ending import Code
from streams.commands.operating import Row, tell, tell_rest
from streams.commands.running import Json, run_async
from streams.commands.showing import progress, show_table
from streams.domain.errors import Misconfigured
from streams.domain.reconciling import NEXT, Counted, Span, cause, moment_of, span_of

if TYPE_CHECKING:
    from streams.adapters.reconciliation import Reconciliation


def reconcile(
    *,
    days: Annotated[
        float, typer.Option("--days", help="How many days back, up to a day ago.")
    ] = 7.0,
    list_: Annotated[
        bool, typer.Option("--list", help="The messages one by one, not the days.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000)] = 100,
    after: Annotated[
        UUID | None,
        typer.Option("--after", help="With --list: go on behind this attempt id."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Counts by day what SES took and of which no event has come for 24 hours, and says what that looks like. Changes nothing.
    Exit code 1: there are such messages; 0: there are none."""
    span = span_of(datetime.now(UTC), days=days)
    if after is not None and not list_:
        raise Misconfigured("--after belongs to --list")

    async def work() -> None:
        from streams import wiring
        from streams.adapters.reconciliation import Reconciliation

        async with wiring.operating("reconcile") as (database, _):
            store = Reconciliation(database)
            if list_:
                found = await store.messages(span, after=after, limit=limit)
                _list(found, limit, as_json=as_json)
            else:
                found = await _days(store, span, as_json=as_json)
        if found:
            raise typer.Exit(Code.FAILED)

    run_async(work)


async def _days(store: "Reconciliation", span: Span, *, as_json: bool) -> list[Row]:
    counted = Counted()
    whole = round((span.end - span.start).total_seconds())
    with progress("seconds of calls", quiet=as_json) as told:
        async for last, page in store.days(span):
            counted.add(page)
            told(round((moment_of(last) - span.start).total_seconds()), whole)
    found: list[Row] = []
    for day in counted.silent:
        why = cause(day, await store.intake(day))
        row: Row = {"day": day.day, "accepted": day.accepted, "silent": day.silent}
        found.append(row | {"cause": why, "next": NEXT[why]})
    accepted = sum(day.accepted for day in counted.days.values())
    document = {"start": span.start, "end": span.end, "accepted": accepted, "days": found}
    if as_json:
        tell(document, (), as_json=True)
        return found
    names = ("day", "accepted", "silent", "cause", "next")
    if found:
        show_table(names, [[row[name] for name in names] for row in found])
    silent = sum(row["silent"] for row in found)
    print(f"{accepted} messages were taken, of {silent} of them nothing came")
    return found


def _list(found: list[Row], limit: int, *, as_json: bool) -> None:
    following = found[-1]["attempt_id"] if len(found) == limit else None
    names = ("attempt_id", "outbox_id", "tenant", "finished", "provider_message_id")
    if as_json:
        tell({"messages": found, "next": following}, (), as_json=True)
    elif found:
        show_table(names, [[row[name] for name in names] for row in found])
    tell_rest(following, nothing=not found, as_json=as_json)
