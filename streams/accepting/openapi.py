"""The OpenAPI 3.1 document, from the models that check the requests."""

from collections.abc import Sequence

import orjson

from streams.accepting.routes import Route


def document(found: Sequence[Route]) -> bytes:
    return orjson.dumps({"openapi": "3.1.0", "paths": {route.path: {} for route in found}})
