"""`mailstreams cancel`: messages that are not to go out any more."""

from typing import Final

import typer

from streams.commands.operating import (
    By,
    File,
    Ids,
    Reason,
    Row,
    admin,
    batches,
    chosen,
    counts,
    decision,
    exit_of,
    tell,
)
from streams.commands.running import Json, run_async
from streams.domain.errors import Misconfigured

_MEANING: Final = {
    "cancelled": "cancelled",
    "busy": "not cancelled: a call of SES is under way, or its outcome is being written; ask again in a moment",
    "absent": "there is no such row",
}


def cancel(
    ids: Ids = None, *, reason: Reason, by: By, file: File = None, as_json: Json = False
) -> None:
    """Cancels messages that are pending, or of unknown outcome: they are never sent again. The reason stands in the event that
    subscribers get."""
    who, given = decision(by, reason), chosen(ids, file)
    if not given:
        raise Misconfigured("name at least one id of an outbox row")

    async def work() -> None:
        async with admin("cancel") as (store, _):
            rows: list[Row] = []
            for some in batches(given):
                rows += await store.cancel(some, who)
        lines = [
            f"{row['outbox_id']}  {_MEANING.get(row['outcome'], 'too late: it is ' + row['outcome'])}"
            for row in rows
        ]
        tell({"cancelled": rows, "counts": counts(rows)}, lines, as_json=as_json)
        if code := exit_of(counts(rows), ("cancelled",)):
            raise typer.Exit(code)

    run_async(work)
