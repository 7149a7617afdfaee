"""The members of a JSON object, read one by one, each with the type that it must have."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

from streams.domain.errors import BadMessage

Word = TypeVar("Word", bound=StrEnum)


class Fields:
    """The members of one JSON object; whatever is not as it must be raises BadMessage, which names the field and never its value."""

    __slots__ = ("_body", "_of", "_where")

    def __init__(self, body: object, *, of: str, where: str = "") -> None:
        """of: what it should be; where: the path to the object, with a dot at its end."""
        if not isinstance(body, dict):
            raise BadMessage(f"not a {of}: {where.rstrip('.') or 'the value'} is not an object")
        self._body: dict[str, Any] = body
        self._of = of
        self._where = where

    def _wrong(self, name: str, what: str) -> BadMessage:
        return BadMessage(f"not a {self._of}: {self._where}{name} is not {what}")

    def text(self, name: str) -> str:
        value = self._body.get(name)
        if not isinstance(value, str) or not value:
            raise self._wrong(name, "a text")
        return value

    def optional(self, name: str) -> str | None:
        value = self._body.get(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, "a text or null")
        return value

    @property
    def members(self) -> Mapping[str, Any]:
        return self._body

    def word(
        self, name: str, words: type[Word], *, prefix: str = "", otherwise: Word | None = None
    ) -> Word:
        text = self.text(name)
        try:
            if not text.startswith(prefix):
                raise ValueError
            return words(text[len(prefix) :])
        except ValueError:
            if otherwise is not None:
                return otherwise
            raise self._wrong(name, f"one of the words of {words.__name__}") from None

    def time(self, name: str) -> datetime:
        try:
            value = datetime.fromisoformat(self.text(name))
        except ValueError:
            raise self._wrong(name, "a time") from None
        if value.tzinfo is None:
            raise self._wrong(name, "a time with a zone")
        return value

    def uuid(self, name: str) -> UUID | None:
        value = self.optional(name)
        try:
            return None if value is None else UUID(value)
        except ValueError:
            raise self._wrong(name, "a UUID or null") from None

    def object(self, name: str) -> Mapping[str, Any] | None:
        value = self._body.get(name)
        if value is not None and not isinstance(value, dict):
            raise self._wrong(name, "an object or null")
        return value

    def fields(self, name: str) -> "Fields | None":
        value = self._body.get(name)
        return None if value is None else self.inner(name)

    def inner(self, name: str) -> "Fields":
        return Fields(self._body.get(name), of=self._of, where=f"{self._where}{name}.")
