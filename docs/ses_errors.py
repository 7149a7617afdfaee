"""Writes docs/ses-errors.md from the table in the code. A test compares both."""

from pathlib import Path

from streams.domain.ses_error_table import TABLE
from streams.domain.ses_patterns import AnswerPattern, FaultPattern, Row

HEAD = """# What SES answers, and what that means

Made from the table in the code by `python docs/ses_errors.py`. The first row that matches decides. Not accepted is only what is
proven so: no byte of the request was written, or a complete answer of 4xx (408 excepted) with an error code of AWS was read.

- **accepted**: the row is `submitted`. **unknown**: it is `ambiguous` until events of SES settle it, or its policy acts.
- **retry**: it is tried again, with backing off, and the attempt is charged (not while SES cannot be reached at all).
- **throttled**: tried again at no cost, everybody slows down. **permanent**: it has `failed`, with the reason.
- **account-stop**: all sending of the account pauses, **misconfigured**: that of the sender, the tenant or the configuration set;
  no attempt is charged, one call at a time tries whether it may go on, and everything goes on by itself when it may.

The code and text of SES, without addresses, are added to the reason; to that of `clock-skew` by how many seconds our clock is off.

| class | when | outcome | pauses | reason | known from |
|---|---|---|---|---|---|
"""


def markdown() -> str:
    """The page."""
    return HEAD + "".join(_line(row) for row in TABLE)


def _line(row: Row) -> str:
    pause = "" if row.pause is None else f"{row.pause}, {row.pause_s:g} s at first"
    cells = (f"`{row.name}`", _when(row.when), row.kind, pause, row.reason, row.source)
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"


def _when(pattern: AnswerPattern | FaultPattern) -> str:
    if isinstance(pattern, FaultPattern):
        kinds = ", ".join(sorted(pattern.kinds)) if len(pattern.kinds) < 5 else "any fault"
        return f"{kinds}, {'a byte may be' if pattern.written else 'no byte was'} written"
    return ", ".join(_conditions(pattern))


def _conditions(pattern: AnswerPattern) -> list[str]:
    found = []
    if pattern.status != range(1000):
        first, last = pattern.status[0], pattern.status[-1]
        found.append(f"status {first}" if first == last else f"status {first} to {last}")
    if pattern.codes:
        found.append(" or ".join(f"`{code}`" for code in sorted(pattern.codes)))
    if pattern.text is not None:
        found.append(f"text like `{pattern.text.pattern}`")
    said = {
        "with a message id": pattern.has_id,
        "with an error code of AWS": pattern.has_code,
        "naming our sender": pattern.names_sender,
        "signed more than four minutes before it was sent": pattern.is_late,
    }
    for words, wanted in said.items():
        if wanted is not None:
            found.append(words if wanted else words.replace("with", "without", 1))
    return found


if __name__ == "__main__":
    Path(__file__).with_name("ses-errors.md").write_text(markdown(), encoding="utf-8")
