"""Which tests cover the cases of kind scenario: a function test_<id in lower case>_<what>, in whatever file of the tests."""

import re
from functools import cache
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
_TEST: Final = re.compile(r"^\s*(?:async )?def (test_([a-z]\d\d)_\w+)", re.MULTILINE)


def covering_test(case: str) -> str | None:
    """The file and name of a test of this case, as pytest takes them; None if there is none."""
    return _named_by_case().get(case.lower())


@cache
def _named_by_case() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, case in _TEST.findall(path.read_text(encoding="utf-8")):
            found.setdefault(case, f"{path.relative_to(TESTS.parent)}::{name}")
    return found
