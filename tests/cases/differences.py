"""What was expected and what was found, printed as a diff."""

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One key of a variant that is not as expected."""

    key: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        expected, found = _lines(self.expected), _lines(self.found)
        if len(expected) == len(found) == 1:
            return f"  {self.key}: expected {expected[0]}\n  {' ' * len(self.key)}     found {found[0]}"
        diff = list(difflib.unified_diff(expected, found, "expected", "found", lineterm="", n=99))
        return "\n".join(f"    {line}" for line in (f"{self.key}:", *(diff or found)))


def _lines(value: Any) -> list[str]:
    if isinstance(value, list | tuple) and value and all(isinstance(v, dict) for v in value):
        return [_text(item) for item in value]
    return [_text(value)]


def _text(value: Any) -> str:
    # A lone surrogate cannot be printed.
    text = json.dumps(value, default=str, sort_keys=True, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()


def report(file: str, variant: str, differences: Sequence[Difference]) -> str:
    """The failure's text."""
    return "\n".join([f"{file}: variant {variant!r}", *map(str, differences)])
