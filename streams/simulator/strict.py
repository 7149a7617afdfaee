"""Reading the control API's documents: what is unknown or of a wrong type is named in one sentence."""

import math
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import orjson

Document = dict[str, Any]
Value = TypeVar("Value")


class BadDocumentError(Exception):
    """A document that the control API does not take; the text says what to change."""


def read_document(body: bytes) -> Document:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadDocumentError("The body must be a JSON object.") from error
    if not isinstance(document, dict):
        raise BadDocumentError("The body must be a JSON object.")
    return document


class Fields:
    """Takes fields out of one document; `done` refuses what nobody took."""

    def __init__(self, document: Document, *, where: str = "") -> None:
        self._document = dict(document)
        self._known: list[str] = []
        self._where = f" in {where}" if where else ""

    def __contains__(self, name: str) -> bool:
        return name in self._document

    def text(self, name: str, default: str | None = None) -> str:
        return self._take(name, default, lambda value: isinstance(value, str), "a string")

    def flag(self, name: str, default: bool | None = None) -> bool:
        return self._take(name, default, lambda value: isinstance(value, bool), "true or false")

    def whole(self, name: str, default: int | None = None, *, least: int = 0) -> int:
        return self._take(
            name,
            default,
            lambda value: _is_number(value) and isinstance(value, int) and value >= least,
            f"a whole number of at least {least}",
        )

    def number(self, name: str, default: float | None = None, *, least: float = 0.0) -> float:
        value: float = self._take(
            name,
            default,
            lambda value: _is_number(value) and value >= least,
            f"a number of at least {least:g}",
        )
        return float(value)

    def share(self, name: str, default: float | None = None) -> float:
        value: float = self._take(
            name, default, lambda value: _is_number(value) and 0 <= value <= 1, "between 0 and 1"
        )
        return float(value)

    def choice(self, name: str, among: Collection[str], default: str | None = None) -> str:
        return self._take(
            name,
            default,
            lambda value: isinstance(value, str) and value in among,
            f"one of {', '.join(sorted(among))}",
        )

    def document(self, name: str) -> Document:
        return self._take(name, None, lambda value: isinstance(value, dict), "an object")

    def documents(self, name: str) -> list[Document]:
        return self._take(
            name,
            None,
            lambda value: isinstance(value, list) and all(isinstance(i, dict) for i in value),
            "a list of objects",
        )

    def texts(self, name: str) -> list[str]:
        return self._take(
            name,
            None,
            lambda value: isinstance(value, list) and all(isinstance(i, str) for i in value),
            "a list of strings",
        )

    def range_ms(self, name: str, default: tuple[int, int]) -> tuple[int, int]:
        value = self._take(name, list(default), _is_range, "two whole milliseconds, from and to")
        return int(value[0]), int(value[1])

    def moment_ms(self, name: str, default: int) -> tuple[int, int]:
        """One whole number of milliseconds, or two, from and to."""
        value: int | list[int] = self._take(
            name,
            default,
            lambda value: _is_range([value, value]) or _is_range(value),
            "whole milliseconds, or two of them, from and to",
        )
        return (value, value) if isinstance(value, int) else (value[0], value[1])

    def done(self) -> None:
        if self._document:
            name = min(self._document)
            known = ", ".join(self._known) or "none"
            raise BadDocumentError(f"Unknown field '{name}'{self._where}; known fields: {known}.")

    def _take(
        self, name: str, default: Value | None, valid: Callable[[Any], bool], wanted: str
    ) -> Value:
        self._known.append(name)
        if name not in self._document:
            if default is None:
                raise BadDocumentError(f"Field '{name}' is missing{self._where}.")
            return default
        value: Value = self._document.pop(name)
        if not valid(value):
            raise BadDocumentError(f"Field '{name}'{self._where} must be {wanted}.")
        return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_range(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(item, int) and not isinstance(item, bool) for item in value)
        and 0 <= value[0] <= value[1]
    )
