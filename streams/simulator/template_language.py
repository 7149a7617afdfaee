"""The part of Handlebars that SES templates use: values, `if`, `unless`, `each`, `with`, `else`.

A value that is not in the data is a RenderingError; a condition on one is false.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Any

_TAG = re.compile(r"\{\{\{\s*(?P<raw>[^{}]*?)\s*\}\}\}|\{\{(?P<tag>[^{}]*)\}\}")
_PATH = re.compile(r"(?:\.\./)*(?:this|@index|@key|@first|@last|[\w.\-\[\]]+)")
_BLOCKS = ("if", "unless", "each", "with")
_MAX_DEPTH = 50
_MISSING = object()


class RenderingError(Exception):
    """The data does not fit the template; the text is what the event says."""


class TemplateSyntaxError(Exception):
    """The template itself cannot be read."""


@dataclass(frozen=True, slots=True)
class _Text:
    text: str


@dataclass(frozen=True, slots=True)
class _Value:
    path: str
    raw: bool


@dataclass(frozen=True, slots=True)
class _Block:
    kind: str
    path: str
    body: tuple["_Node", ...]
    otherwise: tuple["_Node", ...]


_Node = _Text | _Value | _Block


@dataclass(frozen=True, slots=True)
class _Scope:
    """What `this` is, the scope around it, and the names that a loop adds."""

    this: Any
    parent: "_Scope | None" = None
    loop: Mapping[str, Any] | None = None


def check_syntax(template: str, *, plain: bool = False) -> None:
    """Raise TemplateSyntaxError; `plain` allows values alone, as inline templates do."""
    nodes = _parse(template)
    if plain and any(isinstance(node, _Block) for node in nodes):
        raise TemplateSyntaxError("Inline template content supports simple substitution only.")


def render(template: str, data: Mapping[str, Any], *, html: bool) -> str:
    """The text with its values; in HTML they are escaped unless they stand in three braces."""
    return _write(_parse(template), _Scope(data), escape if html else str)


@lru_cache(maxsize=256)
def _parse(template: str) -> tuple[_Node, ...]:
    reader = _Reader(template)
    nodes, end = reader.read()
    if end:
        raise TemplateSyntaxError(f"'{{{{{end}}}}}' closes nothing.")
    return nodes


class _Reader:
    """Reads nodes until the tag that ends their block."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._at = 0
        self._depth = 0

    def read(self) -> tuple[tuple[_Node, ...], str]:
        nodes: list[_Node] = []
        while match := _TAG.search(self._template, self._at):
            self._text(nodes, match.start())
            self._at = match.end()
            if match["raw"] is not None:
                nodes.append(_Value(_path(match["raw"]), True))
                continue
            tag = match["tag"].strip().strip("~").strip()
            if tag == "else" or tag.startswith("/"):
                return tuple(nodes), tag
            if tag.startswith("#"):
                nodes.append(self._block(tag[1:]))
            elif not tag.startswith("!"):
                nodes.append(_Value(_path(tag.removeprefix("&").strip()), tag.startswith("&")))
        self._text(nodes, len(self._template))
        self._at = len(self._template)
        return tuple(nodes), ""

    def _text(self, nodes: list[_Node], end: int) -> None:
        if end > self._at:
            nodes.append(_Text(self._template[self._at : end]))

    def _block(self, tag: str) -> _Block:
        kind, _, path = tag.partition(" ")
        if kind not in _BLOCKS:
            raise TemplateSyntaxError(f"'{kind}' is no known helper.")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise TemplateSyntaxError(f"Blocks are nested deeper than {_MAX_DEPTH}.")
        body, end = self.read()
        otherwise: tuple[_Node, ...] = ()
        if end == "else":
            otherwise, end = self.read()
        if end != f"/{kind}":
            raise TemplateSyntaxError(f"'{{{{#{kind}}}}}' is not closed.")
        self._depth -= 1
        return _Block(kind, _path(path.strip()), body, otherwise)


def _path(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise TemplateSyntaxError(f"'{text}' is no name of a value.")
    return text


def _write(nodes: Sequence[_Node], scope: _Scope, quote: Callable[[str], str]) -> str:
    return "".join(_node(node, scope, quote) for node in nodes)


def _node(node: _Node, scope: _Scope, quote: Callable[[str], str]) -> str:
    match node:
        case _Text(text):
            return text
        case _Value(path, raw):
            value = _look_up(path, scope)
            if value is _MISSING:
                raise RenderingError(f"Attribute '{path}' is not present in the rendering data.")
            return _shown(value) if raw else quote(_shown(value))
        case _Block():
            return _block(node, scope, quote)


def _block(block: _Block, scope: _Scope, quote: Callable[[str], str]) -> str:
    value = _look_up(block.path, scope)
    true = value is not _MISSING and bool(value)
    if block.kind == "unless":
        true = not true
    if not true:
        return _write(block.otherwise, scope, quote)
    if block.kind == "with":
        return _write(block.body, _Scope(value, scope), quote)
    if block.kind != "each":
        return _write(block.body, scope, quote)
    return "".join(
        _write(block.body, _Scope(item, scope, names), quote) for item, names in _items(value)
    )


def _items(value: Any) -> list[tuple[Any, dict[str, Any]]]:
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    else:
        raise RenderingError("'each' needs a list or an object.")
    last = len(pairs) - 1
    return [
        (item, {"@key": key, "@index": place, "@first": place == 0, "@last": place == last})
        for place, (key, item) in enumerate(pairs)
    ]


def _look_up(path: str, scope: _Scope) -> Any:
    while path.startswith("../"):
        path = path.removeprefix("../")
        scope = scope.parent or scope
    if path.startswith("@"):
        return (scope.loop or {}).get(path, _MISSING)
    value = scope.this
    for name in path.split("."):
        if name == "this":
            continue
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.strip("[]").isdecimal():
            place = int(name.strip("[]"))
            value = value[place] if place < len(value) else _MISSING
        else:
            return _MISSING
    return value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
