"""The SQL files and the code name each other, and keep the rule that claims rely on."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUERIES = sorted((ROOT / "sql" / "queries").glob("*.sql"))
CODE = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "streams").rglob("*.py"))


@pytest.mark.parametrize("path", QUERIES, ids=lambda p: p.stem)
def test_a_query_says_what_it_does_and_is_used(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("-- ")
    assert f'"{path.stem}"' in CODE


def test_the_code_asks_for_queries_that_exist() -> None:
    asked = set(re.findall(r'\b(?:rows|value|query)\(\s*"([a-z_0-9]+)"', CODE))
    assert asked
    assert asked <= {path.stem for path in QUERIES}


@pytest.mark.parametrize("path", QUERIES, ids=lambda p: p.stem)
def test_whoever_changes_an_outbox_row_says_when(path: Path) -> None:
    """A claim acts on a row only if it has not changed since the claim's snapshot, and knows that by this column."""
    for update in re.findall(
        r"UPDATE email_outbox.*?(?:WHERE|FROM)", path.read_text(encoding="utf-8"), re.S
    ):
        assert re.search(r"\bchanged = ", update)
