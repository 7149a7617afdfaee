"""Lists of addresses as people have them: one a line, or a table with commas, semicolons or tabs between its columns."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from streams.domain.addresses import RecipientKey, recipient_key
from streams.domain.errors import BadMessage
from streams.domain.mailboxes import bare_address

_DELIMITERS: Final = ",;\t"
_NAMES: Final = frozenset(("email", "emailaddress", "mail", "address", "recipient"))
_KEY: Final = re.compile(r"[0-9a-f]{32}")


class Recipient(NamedTuple):
    """Whom a person means; the address only where it was told."""

    key: RecipientKey
    address: str | None


class BadLine(NamedTuple):
    """A line without a mail address; its content is nobody's business."""

    number: int


def is_recipient_key(text: str) -> bool:
    """It is written as a recipient key is."""
    return _KEY.fullmatch(text) is not None


def recipient_named(text: str, *, salt: bytes) -> Recipient:
    """An address, or a recipient key of 32 hex digits. BadMessage if it is neither."""
    text = text.strip()
    if is_recipient_key(text):
        return Recipient(RecipientKey(text), None)
    address = bare_address(text)
    if address is None:
        raise BadMessage(f"{text!r} is neither a mail address nor a recipient key of 32 hex digits")
    return Recipient(recipient_key(address, salt), address)


def read_keys(
    lines: Iterable[str], *, salt: bytes, column: str | None = None
) -> Iterator[RecipientKey | BadLine]:
    """The recipient key of each line that is not empty. BadMessage if it cannot be told where the addresses are."""
    rows = _rows(lines)
    first = next(rows, None)
    if first is None:
        return
    place = _place(first[1], column)
    if not _is_heading(first[1], column):
        yield _key(first, place, salt)
    for row in rows:
        yield _key(row, place, salt)


def _rows(lines: Iterable[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """The number of the line and its cells."""
    numbered = ((n, line.strip("\r\n\ufeff")) for n, line in enumerate(lines, start=1))
    filled = ((n, line) for n, line in numbered if line.strip())
    delimiter: str | None = None
    for n, line in filled:
        if delimiter is None:
            delimiter = max(_DELIMITERS, key=line.count)
            delimiter = delimiter if delimiter in line else ""
        yield n, _cells(line, delimiter)


def _cells(line: str, delimiter: str) -> Sequence[str]:
    if not delimiter:
        return (line,)
    try:
        return next(csv.reader((line,), delimiter=delimiter), ())
    except csv.Error:
        return ()


def _is_heading(cells: Sequence[str], column: str | None) -> bool:
    return column is not None or not any("@" in cell for cell in cells)


def _place(cells: Sequence[str], column: str | None) -> int:
    """Which cell holds the address."""
    if column is not None:
        if column not in (names := [cell.strip() for cell in cells]):
            raise BadMessage(f"there is no column {column!r} in the first line")
        return names.index(column)
    if not _is_heading(cells, column):
        addresses = [n for n, cell in enumerate(cells) if bare_address(cell) is not None]
        if len(addresses) > 1:
            raise BadMessage(
                "the first line has several addresses: write one a line, or headings above them and name one with --column"
            )
        return next(iter(addresses), next(n for n, cell in enumerate(cells) if "@" in cell))
    names = [re.sub("[^a-z]", "", cell.lower()) for cell in cells]
    named = [n for n, name in enumerate(names) if name in _NAMES]
    if len(named) != 1:
        raise BadMessage(
            "the first line has neither an address nor one column that is called email: name it with --column"
        )
    return named[0]


def _key(row: tuple[int, Sequence[str]], place: int, salt: bytes) -> RecipientKey | BadLine:
    number, cells = row
    address = bare_address(cells[place]) if place < len(cells) else None
    return BadLine(number) if address is None else recipient_key(address, salt)
