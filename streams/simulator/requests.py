"""Requests as the wire had them."""

from aiohttp import web

from streams.simulator.refusals import RefusedError
from streams.simulator.sigv4 import SignedRequest


async def read_body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise RefusedError(
            code="RequestEntityTooLargeException", status=413, message="Request is too large."
        ) from error


def signed_request(request: web.BaseRequest, body: bytes) -> SignedRequest:
    """What Signature Version 4 covers; path and query are taken undecoded from the request line."""
    path, _, query = request.raw_path.partition("?")
    return SignedRequest(
        method=request.method,
        path=path,
        query=query,
        headers={name.lower(): value for name, value in request.headers.items()},
        body=body,
    )
