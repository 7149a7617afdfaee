"""Which tests cover the cases of kind scenario: test_<id in lower case>_*.py, wherever it stands."""

from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]


def covering_test(case: str) -> str | None:
    """The path of the test of this case, as seen from the repository; None if there is none."""
    found = sorted(TESTS.rglob(f"test_{case.lower()}_*.py"))
    return str(found[0].relative_to(TESTS.parent)) if found else None
