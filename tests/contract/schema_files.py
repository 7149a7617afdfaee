"""The files of schemas/ and validators made of them."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

SCHEMAS: Final = Path(__file__).parents[2] / "schemas"
RELEASED: Final = SCHEMAS / "delivery-events" / "released"


def load(path: Path) -> Any:
    return json.loads(path.read_text())


@cache
def validator(path: Path) -> Draft202012Validator:
    schema = load(path)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


def current(folder: str) -> Draft202012Validator:
    """Today's schema of a topic's folder."""
    return validator(SCHEMAS / folder / "v1.json")


def faults(checked: Draft202012Validator, value: Any) -> list[str]:
    return [f"{'/'.join(map(str, e.path))}: {e.message}" for e in checked.iter_errors(value)]
