"""What commands show to a person: tables, and the progress of long work."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

# Into a file or a pipe nothing is folded.
_WIDE = 2000


class Steps(Protocol):
    """Told how much of the work is done."""

    def __call__(self, done: int, total: int | None = None) -> None: ...


def show_table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns with headings on standard output; folded to a terminal, never to a pipe."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    console = _console(error=False)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        print(line.rstrip())


def plain(value: object) -> str:
    """Times to the second, nothing as a hyphen, and no character that a terminal would obey."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    return "".join(c if c.isprintable() else "?" for c in str(value))


@contextmanager
def progress(what: str, *, quiet: bool) -> Iterator[Steps]:
    """A bar on standard error while a person looks on; nothing in a pipe, or if it is to be quiet."""
    if quiet or not sys.stderr.isatty():
        yield _unseen
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=_console(error=True)) as bar:
        task = bar.add_task(what, total=None)

        def told(done: int, total: int | None = None) -> None:
            bar.update(task, completed=done, total=total)

        yield told


def _unseen(done: int, total: int | None = None) -> None:
    """Nobody looks on."""


def _console(*, error: bool) -> "Console":
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else _WIDE,
        highlight=False,
        markup=False,
        soft_wrap=False,
    )
