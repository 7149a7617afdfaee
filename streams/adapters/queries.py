"""The SQL files: one query a file in sql/queries/, named verb + noun."""

from functools import cache
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent.parent


@cache
def sql_folder() -> Path:
    """sql/ of the installed package, else of the checkout."""
    installed = _PACKAGE / "sql"
    return installed if installed.is_dir() else _PACKAGE.parent / "sql"


@cache
def query(name: str) -> str:
    """The text of sql/queries/<name>.sql."""
    return (sql_folder() / "queries" / f"{name}.sql").read_text(encoding="utf-8")
