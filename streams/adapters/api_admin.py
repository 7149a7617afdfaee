"""What an operator does with keys and tenants of the accept API in PostgreSQL: each method one transaction, told in the audit log."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from streams.adapters.postgres import Database
from streams.domain.api_keys import NewKey
from streams.domain.by_hand import Decision

Row = dict[str, Any]


class ApiAdmin:
    """Uses a pool that is started."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create_key(
        self,
        key: NewKey,
        *,
        tenant: str,
        label: str,
        test: bool,
        scopes: Sequence[str],
        expires: datetime | None,
        by_whom: str,
    ) -> None:
        """Keeps the hash of the key, and makes its tenant if there is none."""
        await self._database.rows(
            "insert_api_key",
            *(key.id, tenant, label, key.hash, test, list(scopes), expires, by_whom),
        )

    async def keys(self, tenant: str | None) -> list[Row]:
        return [dict(row) for row in await self._database.rows("list_api_keys", tenant)]

    async def revoke(self, key_id: str, decision: Decision) -> Row | None:
        """None if there is no such key."""
        rows = await self._database.rows("revoke_api_key", key_id, decision.by_whom, decision.why)
        return dict(rows[0]) if rows else None

    async def set_tenant(
        self,
        name: str,
        decision: Decision,
        *,
        senders: Sequence[str] | None,
        per_second: float | None,
        burst: int | None,
        quota: int | None,
        quota_period: str | None,
    ) -> Row:
        """The tenant as it is now. None leaves a value as it is; no senders, 0 a second, a quota of -1: no bound."""
        rows = await self._database.rows(
            "set_tenant",
            *(name, None if senders is None else list(senders), per_second, burst),
            *(quota, quota_period, decision.by_whom, decision.why),
        )
        return dict(rows[0])

    async def tenants(self, name: str | None) -> list[Row]:
        return [dict(row) for row in await self._database.rows("list_tenants", name)]
