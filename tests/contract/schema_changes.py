"""What a change of a JSON Schema would do to a consumer that was built for the older one."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

_NOTES: Final = frozenset(("title", "description", "examples", "$comment"))
_Schema = Mapping[str, Any]


def breaking_changes(older: _Schema, newer: _Schema) -> list[str]:
    """Empty if only members, words and notes were added."""
    return list(_changes(older, newer, "value"))


def _changes(older: Any, newer: Any, at: str) -> Iterator[str]:
    if not isinstance(older, Mapping) or not isinstance(newer, Mapping):
        if older != newer:
            yield f"{at}: was {older!r}, is {newer!r}"
        return
    for name in sorted((older.keys() | newer.keys()) - _NOTES):
        if name not in newer:
            yield f"{at}: {name} is gone"
        elif name not in older:
            # A new rule of any kind may refuse what was right before, a new definition cannot.
            if name != "$defs":
                yield f"{at}: {name} is new"
        else:
            yield from _COMPARED.get(name, _changes)(older[name], newer[name], f"{at}/{name}")


def _members(older: _Schema, newer: _Schema, at: str) -> Iterator[str]:
    """Each stays with its meaning; new ones may come."""
    for name in older:
        if name not in newer:
            yield f"{at}: {name} is gone"
        else:
            yield from _changes(older[name], newer[name], f"{at}/{name}")


def _words(older: list[Any], newer: list[Any], at: str) -> Iterator[str]:
    for word in older:
        if word not in newer:
            yield f"{at}: {word!r} is gone"


def _sets(older: Any, newer: Any, at: str) -> Iterator[str]:
    if sorted(_listed(older)) != sorted(_listed(newer)):
        yield f"{at}: was {older!r}, is {newer!r}"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _alternatives(older: list[Any], newer: list[Any], at: str) -> Iterator[str]:
    if len(older) != len(newer):
        yield f"{at}: had {len(older)} alternatives, has {len(newer)}"
        return
    for number, (one, other) in enumerate(zip(older, newer, strict=True)):
        yield from _changes(one, other, f"{at}/{number}")


_COMPARED: Final[Mapping[str, Callable[[Any, Any, str], Iterator[str]]]] = {
    "properties": _members,
    "$defs": _members,
    "enum": _words,
    "required": _sets,
    "type": _sets,
    "anyOf": _alternatives,
    "allOf": _alternatives,
    "oneOf": _alternatives,
}
