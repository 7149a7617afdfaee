"""How SNS posts to an endpoint, and what it makes of the answer."""

from enum import StrEnum
from functools import lru_cache
from urllib.parse import unquote, urlsplit, urlunsplit

import aiohttp
from yarl import URL


class Verdict(StrEnum):
    """What a try has come to."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REFUSED = "refused"


def verdict_of(status: int) -> Verdict:
    """2xx is delivered, 5xx and 1xx are tried again, everything else is given up at once."""
    if 200 <= status < 300:
        return Verdict.DELIVERED
    if status >= 500 or status < 200:
        return Verdict.RETRY
    return Verdict.REFUSED


async def post(
    session: aiohttp.ClientSession, endpoint: str, body: bytes, headers: dict[str, str]
) -> int:
    """The status of the answer; credentials in the URL are sent only when they are asked for."""
    url, credentials = split_credentials(endpoint)
    async with session.post(url, data=body, headers=headers, allow_redirects=False) as response:
        await response.read()
        challenge = response.headers.get("WWW-Authenticate", "")
        if response.status != 401 or credentials is None or "basic" not in challenge.lower():
            return response.status
    headers = {**headers, "Authorization": credentials}
    async with session.post(url, data=body, headers=headers, allow_redirects=False) as response:
        await response.read()
        return response.status


@lru_cache(maxsize=64)
def split_credentials(endpoint: str) -> tuple[URL, str | None]:
    """The URL without its user information, and that as an Authorization header."""
    parts = urlsplit(endpoint)
    url = URL(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))
    if parts.username is None:
        return url, None
    user, password = unquote(parts.username), unquote(parts.password or "")
    return url, aiohttp.encode_basic_auth(user, password)
