"""Collects what is wrong in a case file, and where."""

from collections.abc import Iterable
from typing import Any

from tests.cases import words


class Checker:
    """Collects what is wrong in one place of a file; `at` goes one step down."""

    def __init__(self, where: str = "", errors: list[str] | None = None) -> None:
        self._where = where
        self.errors: list[str] = [] if errors is None else errors

    def at(self, step: str) -> "Checker":
        return Checker(f"{self._where}: {step}" if self._where else step, self.errors)

    def wrong(self, what: str) -> None:
        self.errors.append(f"{self._where}: {what}" if self._where else what)

    def keys(self, value: Any, must: Iterable[str], may: Iterable[str] = ()) -> bool:
        """Whether it is an object with all of these keys; unknown ones are errors too."""
        if not isinstance(value, dict):
            self.wrong(f"must be an object, is {value!r:.80}")
            return False
        must, may = frozenset(must), frozenset(may)
        for key in sorted(must - value.keys()):
            self.at(key).wrong("key is missing")
        for key in sorted(value.keys() - must - may):
            self.at(key).wrong("unknown key")
        return must <= value.keys()

    def list_of(self, value: Any) -> list[Any]:
        if isinstance(value, list):
            return value
        self.wrong(f"must be a list, is {value!r:.80}")
        return []

    def text(self, value: Any, *, empty: bool = False) -> bool:
        good = isinstance(value, str) and (empty or bool(value.strip()))
        if not good:
            self.wrong(f"must be a text, is {value!r:.80}")
        return good

    def texts(self, value: Any) -> None:
        for number, item in enumerate(self.list_of(value), 1):
            self.at(str(number)).text(item)

    def word(self, value: Any, allowed: Iterable[Any]) -> None:
        # A list, since True == 1 and unhashable values must not matter.
        if not any(value is a or (type(value) is type(a) and value == a) for a in allowed):
            self.wrong(f"unknown word {value!r:.80}")

    def one_of(self, value: Any, allowed: Iterable[Any]) -> None:
        if not isinstance(value, list) or not value:
            self.wrong(f"must be a list of allowed values, is {value!r:.80}")
            return
        for item in value:
            self.word(item, list(allowed))

    def count(self, value: Any) -> None:
        if not words.is_count(value):
            self.wrong(f"must be a count or [min, max], is {value!r:.80}")

    def positive(self, value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.wrong(f"must be a positive whole number, is {value!r:.80}")
