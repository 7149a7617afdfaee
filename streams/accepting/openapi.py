"""The OpenAPI 3.1 document, from the models that check the requests."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

import orjson
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from streams.accepting.routes import Route
from streams.domain.api_answers import (
    AcceptedAnswer,
    BatchAnswer,
    CancelledAnswer,
    EmailDetailsAnswer,
    EmailPageAnswer,
    LiftedAnswer,
    ProblemAnswer,
    RescheduledAnswer,
    SuppressedAnswer,
    SuppressionPageAnswer,
)
from streams.domain.api_email import PostedEmail
from streams.domain.api_requests import (
    MOST_IN_A_BATCH,
    PostedCancel,
    PostedLift,
    PostedReschedule,
    PostedSuppression,
)

Json = dict[str, Any]
_REF: Final = "#/components/schemas/{model}"
_BODIES: Final[Mapping[str, type[BaseModel]]] = {
    "post_email": PostedEmail,
    "post_batch": PostedEmail,
    "cancel_email": PostedCancel,
    "reschedule_email": PostedReschedule,
    "add_suppression": PostedSuppression,
    "lift_suppression": PostedLift,
}
_ANSWERS: Final[Mapping[str, Mapping[int, type[BaseModel]]]] = {
    "post_email": {202: AcceptedAnswer},
    "post_batch": {202: BatchAnswer},
    "list_emails": {200: EmailPageAnswer},
    "get_email": {200: EmailDetailsAnswer},
    "cancel_email": {200: CancelledAnswer},
    "reschedule_email": {200: RescheduledAnswer},
    "list_suppressions": {200: SuppressionPageAnswer},
    "add_suppression": {200: SuppressedAnswer, 201: SuppressedAnswer},
    "lift_suppression": {200: LiftedAnswer},
}
_MEANINGS: Final = {
    200: "Done.",
    201: "Made.",
    202: "Committed: it will be sent, or its end told.",
    400: "It cannot be read.",
    401: "The API key is missing or not valid.",
    403: "The API key may not do this.",
    404: "The tenant has nothing of this name.",
    409: "It contradicts what is there.",
    413: "The body is too large.",
    415: "The body has to be plain JSON.",
    422: "It has faults, or the recipient is suppressed.",
    429: "The tenant posts faster, or more, than it may.",
    500: "A bug of ours.",
    503: "The database is away or slow, or too many wait.",
}
# What can be done with a message that was posted.
_LINKED: Final = ("get_email", "reschedule_email", "cancel_email")
_EVERYWHERE: Final = (400, 401, 403, 422, 500, 503)
_RETRY_AFTER: Final = {
    "description": "Seconds until asking again makes sense.",
    "schema": {"type": "integer", "minimum": 1},
}


def document(routes: Sequence[Route]) -> bytes:
    """The document as it is served."""
    models: set[type[BaseModel]] = {PostedEmail, ProblemAnswer, *_BODIES.values()}
    models |= {model for answers in _ANSWERS.values() for model in answers.values()}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, schemas = models_json_schema([(model, "validation") for model in ordered], ref_template=_REF)
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    found = {
        "openapi": "3.1.0",
        "info": {
            "title": "mailstreams",
            "version": version("mailstreams"),
            "summary": "Accepts e-mails, tells what became of them, and keeps suppressions.",
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "ms_live_... or ms_test_...",
                }
            },
        },
    }
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS)


def _operation(route: Route) -> Json:
    found: Json = {
        "operationId": route.name,
        "summary": (route.handler.__doc__ or "").strip(),
        "description": f"Scope: `{route.scope}`.",
        "responses": {str(status): answer for status, answer in _responses(route).items()},
    }
    if parameters := _parameters(route):
        found["parameters"] = parameters
    if route.body != "none":
        found["requestBody"] = {
            "required": route.body == "required",
            "content": {"application/json": {"schema": _body(route)}},
        }
    return found


def _body(route: Route) -> Json:
    one = _named(_BODIES[route.name])
    if route.name != "post_batch":
        return one
    return {"type": "array", "items": one, "minItems": 1, "maxItems": MOST_IN_A_BATCH}


def _named(model: type[BaseModel]) -> Json:
    return {"$ref": _REF.format(model=model.__name__)}


def _parameters(route: Route) -> list[Json]:
    found = []
    if "{id}" in route.path:
        schema = {"type": "string", "format": "uuid"}
        found.append({"name": "id", "in": "path", "required": True, "schema": schema})
    for name, field in (
        route.query.model_json_schema(ref_template=_REF).get("properties", {}).items()
    ):
        schema = {k: v for k, v in _not_null(field).items() if k not in ("description", "title")}
        found.append(
            {
                "name": name,
                "in": "query",
                "description": field.get("description", ""),
                "schema": schema,
            }
        )
    if route.keyed:
        found.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "The same key and body within a day get the first answer again, and make nothing anew.",
                "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
            }
        )
    return found


def _not_null(schema: Json) -> Json:
    """A parameter that is left out is not null."""
    return next((s for s in schema.get("anyOf", ()) if s.get("type") != "null"), schema)


def _responses(route: Route) -> dict[int, Json]:
    statuses = {*_EVERYWHERE}
    if route.body != "none":
        statuses |= {413, 415}
    if "{id}" in route.path:
        statuses.add(404)
    if route.keyed:
        statuses |= {409, 429}
    if route.name in ("cancel_email", "reschedule_email"):
        statuses.add(409)
    found: dict[int, Json] = {
        status: {
            "description": _MEANINGS[status],
            "content": {"application/json": {"schema": _named(model)}},
        }
        for status, model in _ANSWERS[route.name].items()
    }
    if route.name == "post_email":
        found[202]["links"] = {
            name: {"operationId": name, "parameters": {"id": "$response.body#/id"}}
            for name in _LINKED
        }
    for status in sorted(statuses):
        found[status] = {
            "description": _MEANINGS[status],
            "content": {"application/problem+json": {"schema": _named(ProblemAnswer)}},
        }
        if status in (429, 503):
            found[status]["headers"] = {"Retry-After": _RETRY_AFTER}
    return found
