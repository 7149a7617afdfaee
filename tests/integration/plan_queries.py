"""Which queries the tests of plans run, and why the others need none."""

import re
from pathlib import Path
from typing import Final

from tests.integration.plan_rows import LARGE

SQL: Final = Path(__file__).parents[2] / "sql" / "queries"
# Queries that read the large tables whole, or cannot run alone.
_SCRATCH: Final = "compares whole tables on purpose, in scratch tables of a rebuild"
_IMPORT: Final = "works off a temporary table of an import"
EXCEPTED: Final = {
    "compare_events": _SCRATCH,
    "compare_outcomes": _SCRATCH,
    "compare_states": _SCRATCH,
    "compare_suppressions": _SCRATCH,
    "count_rebuilt": _SCRATCH,
    "find_reached_meanwhile": _SCRATCH,
    "finish_scratch": _SCRATCH,
    "make_scratch": _SCRATCH,
    "import_suppressions": _IMPORT,
    "lock_imported": _IMPORT,
    "erase_recipient": "rare, by hand: the states of a recipient are found over all tenants",
    "list_suppressions": "by hand: a filter that matches little reads on to the end",
    "list_api_suppressions": "a page of a tenant that has few suppressions reads on to the end",
}


def named(name: str) -> bool:
    """Whether it names one of the tables that grow."""
    text = re.sub(r"--.*", "", (SQL / f"{name}.sql").read_text(encoding="utf-8"))
    return any(re.search(rf"\b{table}\b", text) for table in LARGE)


TESTED: Final = tuple(
    name
    for name in sorted(p.stem for p in SQL.glob("*.sql"))
    if named(name) and name not in EXCEPTED
)
