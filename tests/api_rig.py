"""The accept API on a database of the test: the stage in this process, keys, and a client."""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from streams.adapters.accept_store import PostgresAcceptStore, sessions
from streams.adapters.api_admin import ApiAdmin
from streams.adapters.postgres import Database
from streams.api import Api, ApiSettings
from streams.domain.api_keys import RANDOM_BYTES, NewKey, Scope, new_key
from tests.conftest import SALT

Json = dict[str, Any]
EMAIL: Json = {
    "from": "Shop <shop@example.com>",
    "to": "ann@example.com",
    "subject": "Your order 1042",
    "text": "Thank you.",
}


@asynccontextmanager
async def api_on(
    dsn: str, *, pool_size: int = 8, timeout_s: float = 6.0, **settings: Any
) -> AsyncIterator[Api]:
    """The stage, started."""
    pool = Database(
        dsn,
        pool_size=pool_size,
        timeout_s=timeout_s,
        name="api",
        server_settings=sessions(timeout_s),
    )
    given = ApiSettings(salt=SALT, connections=pool_size, **settings)
    stage = Api(given, PostgresAcceptStore(pool))
    try:
        await stage.start()
        yield stage
    finally:
        await stage.stop()


async def make_key(
    database: Database,
    tenant: str = "shop",
    *,
    test: bool = False,
    scopes: Sequence[str] = tuple(Scope),
    **more: Any,
) -> NewKey:
    key = new_key(secrets.token_bytes(RANDOM_BYTES), test=test)
    await ApiAdmin(database).create_key(
        key,
        tenant=tenant,
        label="test",
        test=test,
        scopes=scopes,
        expires=more.get("expires"),
        by_whom="test",
    )
    return key


class Client:
    """Asks the API with a key."""

    def __init__(self, session: aiohttp.ClientSession, address: str, key: NewKey | None) -> None:
        self._session = session
        self._base = f"http://{address}"
        self._key = key

    async def ask(self, method: str, path: str, **request: Any) -> tuple[int, Json, Any]:
        """Status, document and headers."""
        headers = dict(request.pop("headers", {}))
        if self._key is not None:
            headers.setdefault("Authorization", f"Bearer {self._key.text}")
        async with self._session.request(
            method, self._base + path, headers=headers, **request
        ) as answer:
            return answer.status, await answer.json(content_type=None), answer.headers

    async def post(self, path: str, body: Any, **request: Any) -> tuple[int, Json, Any]:
        return await self.ask("POST", path, json=body, **request)

    async def get(self, path: str, **request: Any) -> tuple[int, Json, Any]:
        return await self.ask("GET", path, **request)


@asynccontextmanager
async def client(address: str, key: NewKey | None) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield Client(session, address, key)


async def rows(database: Database, query: str, *args: Any) -> list[Json]:
    async with database.connection() as connection:
        return [dict(row) for row in await connection.fetch(query, *args)]
