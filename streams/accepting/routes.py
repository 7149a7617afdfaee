"""The addresses of the accept API: what each takes, which scope it asks for, who answers."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pydantic import BaseModel

from streams.accepting.calls import Answer, Call
from streams.accepting.posting import Posting
from streams.accepting.reading import Reading
from streams.accepting.suppressing import Suppressing
from streams.domain.api_keys import Scope
from streams.domain.api_requests import EmailQuery, NoQuery, SuppressionQuery

Handler = Callable[[Call], Awaitable[Answer]]
_UUID: Final = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one address. body: whether there is one, must be, or may be. keyed: it heeds Idempotency-Key."""

    name: str
    method: str
    path: str
    scope: Scope
    handler: Handler
    query: type[BaseModel] = NoQuery
    body: str = "none"
    keyed: bool = False


def routes(posting: Posting, reading: Reading, suppressing: Suppressing) -> list[Route]:
    """Every route that asks for a key."""
    send, read = Scope.EMAILS_SEND, Scope.EMAILS_READ
    see, change = Scope.SUPPRESSIONS_READ, Scope.SUPPRESSIONS_WRITE
    one = "/v1/emails/{id}"
    return [
        _post("post_email", "/v1/emails", send, posting.post, keyed=True),
        _post("post_batch", "/v1/emails/batch", send, posting.post_batch, keyed=True),
        _get("list_emails", "/v1/emails", read, reading.page, query=EmailQuery),
        _get("get_email", one, read, reading.get),
        _post("cancel_email", f"{one}/cancel", send, reading.cancel, body="optional"),
        _post("reschedule_email", f"{one}/reschedule", send, reading.reschedule),
        _get(
            "list_suppressions", "/v1/suppressions", see, suppressing.page, query=SuppressionQuery
        ),
        _post("add_suppression", "/v1/suppressions", change, suppressing.add),
        _post("lift_suppression", "/v1/suppressions/lift", change, suppressing.lift),
    ]


def _post(
    name: str,
    path: str,
    scope: Scope,
    handler: Handler,
    *,
    body: str = "required",
    keyed: bool = False,
) -> Route:
    return Route(
        name=name,
        method="POST",
        path=path,
        scope=scope,
        handler=handler,
        body=body,
        keyed=keyed,
    )


def _get(
    name: str, path: str, scope: Scope, handler: Handler, *, query: type[BaseModel] = NoQuery
) -> Route:
    return Route(name=name, method="GET", path=path, scope=scope, handler=handler, query=query)


class Router:
    """Finds the route of a path and method."""

    def __init__(self, found: Sequence[Route]) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Route]]] = []
        by_path: dict[str, dict[str, Route]] = {}
        for route in found:
            by_path.setdefault(route.path, {})[route.method] = route
        for path, methods in by_path.items():
            if "{id}" in path:
                pattern = re.compile(re.escape(path).replace(r"\{id\}", f"({_UUID})"))
                self._patterns.append((pattern, methods))
            else:
                self._exact[path] = methods

    def find(self, path: str) -> tuple[Mapping[str, Route], UUID | None]:
        """The routes of the path by method, and the id in it; no route if there is nothing of this name."""
        exact = self._exact.get(path)
        if exact is not None:
            return exact, None
        for pattern, methods in self._patterns:
            found = pattern.fullmatch(path)
            if found is not None:
                return methods, UUID(found[1])
        return {}, None
