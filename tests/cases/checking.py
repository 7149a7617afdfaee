"""Checks case files against FORMAT.md: every error names the variant and the key, and none stops the check."""

from collections.abc import Callable
from typing import Any, Final

from tests.cases import placeholders, words
from tests.cases.checker import Checker
from tests.cases.checking_event import check_event
from tests.cases.checking_http import check_http
from tests.cases.checking_send import check_send

_COMMON: Final = frozenset({"id", "title", "sources", "right", "naive", "kind"})
_VARIANTS: Final[dict[str, Callable[[Checker, dict[str, Any], bool], None]]] = {
    "sns_http": check_http,
    "ses_event": check_event,
    "ses_send": check_send,
}


def check(case: Any, name: str) -> list[str]:
    """What is wrong with the content of <name>.json; empty if nothing is."""
    root = Checker()
    if not isinstance(case, dict):
        root.wrong("the file is not one JSON object")
        return root.errors
    kind = case.get("kind")
    if kind not in words.KINDS:
        root.at("kind").wrong(f"unknown kind {kind!r:.80}")
        return root.errors
    body = {"given", "do"} if kind == "scenario" else {"variants"}
    root.keys(case, _COMMON | body)
    if case.get("id") != name:
        root.at("id").wrong(f"is {case.get('id')!r:.80}, but the file is {name}.json")
    for key in ("title", "right", "naive"):
        if key in case:
            root.at(key).text(case[key])
    root.at("sources").texts(case.get("sources"))
    if kind == "scenario":
        root.at("given").text(case.get("given"))
        root.at("do").texts(case.get("do"))
    else:
        _check_variants(root, kind, case.get("variants"))
    return root.errors


def _check_variants(root: Checker, kind: str, variants: Any) -> None:
    listed = root.at("variants").list_of(variants)
    if not listed:
        root.at("variants").wrong("there is none")
    seen: set[str] = set()
    for number, variant in enumerate(listed, 1):
        name = variant.get("name") if isinstance(variant, dict) else None
        at = root.at(f"variant {name!r}" if isinstance(name, str) else f"variant {number}")
        if isinstance(name, str) and name in seen:
            at.at("name").wrong("is not unique")
        if isinstance(name, str):
            seen.add(name)
        if not isinstance(variant, dict):
            at.wrong("must be an object")
            continue
        at.at("name").text(name)
        _VARIANTS[kind](at, variant, number == 1)
        for placeholder in placeholders.unknown(kind, variant):
            at.wrong(f"unknown placeholder <{placeholder}>")
