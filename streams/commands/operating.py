"""What the commands share that decide about messages: who and why, which ids, what is printed."""

import json
import sys
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from streams.commands.ending import Code
from streams.domain.by_hand import Decision, Page
from streams.domain.errors import Misconfigured

if TYPE_CHECKING:
    from streams.adapters.outbox_admin import OutboxAdmin
    from streams.runtime.settings import Settings

# Ids of one transaction.
BATCH = 500
Row = dict[str, Any]
Reason = Annotated[
    str, typer.Option("--reason", help="Why; kept in the audit log. No personal data.")
]
By = Annotated[str, typer.Option("--by", help="Who decides it.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Only those of this tenant.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000)]
After = Annotated[
    UUID | None, typer.Option("--after", help="Go on behind this id, as told at the end of a page.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would become of them, change nothing.")
]
Ids = Annotated[list[UUID] | None, typer.Argument(metavar="[ID]...", help="Ids of outbox rows.")]
File = Annotated[
    str | None,
    typer.Option("--file", help="One id of an outbox row a line; - for standard input."),
]


def decision(by_whom: str, why: str) -> Decision:
    for name, text in (("--by", by_whom), ("--reason", why)):
        if not text.strip():
            raise Misconfigured(
                f"{name} is empty: whoever looks at this later has to understand it"
            )
        if not text.isprintable():
            raise Misconfigured(f"{name} has characters that cannot be printed: write one line")
    return Decision(by_whom=by_whom.strip(), why=why.strip())


def chosen(ids: Sequence[UUID] | None, file: str | None) -> list[UUID]:
    """The ids of the arguments and of the file, each once."""
    found = dict.fromkeys(ids or ())
    if file is not None:
        found |= dict.fromkeys(_read(file))
    return list(found)


def _read(file: str) -> list[UUID]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise Misconfigured(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Misconfigured(f"{file} is not UTF-8 text") from error
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(UUID(line.strip()))
        except ValueError as error:
            raise Misconfigured(
                f"{file}: line {number} is no id of an outbox row, nothing was done"
            ) from error
    return found


def page(after: UUID | None, limit: int) -> Page:
    return Page(limit=limit) if after is None else Page(after=after, limit=limit)


def tell(document: Row, lines: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(document, default=_as_json))
        return
    for line in lines:
        print(line.rstrip())


def tell_rest(following: str | None, *, nothing: bool, as_json: bool) -> None:
    """Where the list goes on, or that it has nothing."""
    if as_json:
        return
    if following is not None:
        print(f"more may follow: go on with --after {following}", file=sys.stderr)
    elif nothing:
        print("none", file=sys.stderr)


def _as_json(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows had each outcome."""
    found: dict[str, int] = {}
    for row in rows:
        found[row["outcome"]] = found.get(row["outcome"], 0) + 1
    return found


def exit_of(found: dict[str, int], done: Collection[str]) -> Code:
    """How a command on single rows ends, by how many had which outcome: not well unless all are done."""
    if found.keys() <= set(done):
        return Code.DONE
    return Code.UNKNOWN if found.keys() == {"absent"} else Code.FAILED


def batches(ids: Sequence[UUID]) -> list[Sequence[UUID]]:
    return [ids[n : n + BATCH] for n in range(0, len(ids), BATCH)]


@asynccontextmanager
async def admin(command: str) -> AsyncIterator[tuple["OutboxAdmin", "Settings"]]:
    from streams import wiring

    async with wiring.outbox_admin(command) as opened:
        yield opened
