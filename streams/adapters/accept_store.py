"""The accept API's side of PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import orjson

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.domain.address_lists import Recipient
from streams.domain.addresses import RecipientKey
from streams.domain.api_keys import ApiKey
from streams.domain.errors import BadMessage, Unavailable
from streams.ports.accepting import Accepted, AcceptRequest, Decision, EmailFilter, Row

# No request waits longer for the row of another: a dedup key that an open transaction has inserted, say.
LOCK_TIMEOUT_S: Final = 2.0
CLOSING_S: Final = 1.0
IDEMPOTENCY_KEPT: Final = timedelta(hours=24)
PURGED_AT_ONCE: Final = 5000
# Of the newest messages of a tenant so many are looked at for one page.
LOOKED_AT: Final = 5000
# The server has answered that it undid the statement, because of what one of its requests holds or waits for.
_FAULTY: Final = (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError)
_IN_THE_WAY: Final = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)


def sessions(timeout_s: float) -> dict[str, str]:
    """The settings of its sessions: the server gives up by itself, a little before we do."""
    return {
        # Whoever waited for a twin has to see its answer.
        "default_transaction_isolation": "read committed",
        "lock_timeout": f"{LOCK_TIMEOUT_S * 1000:.0f}",
        "statement_timeout": f"{timeout_s * 1000:.0f}",
    }


class PostgresAcceptStore:
    """Starts and stops its pool."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(self) -> None:
        await self._database.start()

    async def stop(self) -> None:
        """When nothing is under way any more: then it takes a moment, or the server does not answer."""
        await self._database.stop(within_s=CLOSING_S)

    async def find_key(self, key_id: str) -> ApiKey | None:
        rows = await self._database.rows("read_api_key", key_id)
        return _key(rows[0]) if rows else None

    async def accept(self, requests: Sequence[AcceptRequest]) -> Sequence[Accepted | Exception]:
        """All in one transaction; where one of them is in the way of the others, each in its own."""
        found = await self._accept(requests)
        if isinstance(found, list):
            return found
        if len(requests) == 1:
            return [_why(found)]
        return [await self._alone(request) for request in requests]

    async def _alone(self, request: AcceptRequest) -> Accepted | Exception:
        try:
            [answer] = await self.accept([request])
        except Unavailable as error:
            return error
        return answer

    async def _accept(
        self, requests: Sequence[AcceptRequest]
    ) -> list[Accepted | Exception] | asyncpg.PostgresError:
        """The answers, or why the server undid all of them."""
        try:
            rows = await self._database.rows(
                "accept_emails",
                [r.tenant for r in requests],
                [r.test for r in requests],
                [r.idempotency_key for r in requests],
                [r.digest for r in requests],
                [orjson.dumps(r.rows).decode() for r in requests],
            )
        except _FAULTY as error:
            return error
        except Unavailable as error:
            if isinstance(error.__cause__, _IN_THE_WAY):
                return error.__cause__
            raise
        return [_accepted(orjson.loads(row["answer"])) for row in rows]

    async def replay(self, tenant: str, key: str, *, test: bool) -> tuple[bytes, Accepted] | None:
        rows = await self._database.rows("read_idempotency_key", tenant, test, key)
        if not rows:
            return None
        emails = orjson.loads(rows[0]["answer"])
        return rows[0]["digest"], Accepted(decision=Decision.REPLAYED, emails=emails)

    async def read(self, tenant: str, id_: UUID) -> Row | None:
        rows = await self._database.rows("read_api_email", tenant, id_)
        if not rows:
            return None
        row = dict(rows[0])
        return row | {
            "tags": orjson.loads(row["tags"] or "{}"),
            "events": orjson.loads(row["events"]),
        }

    async def page(self, which: EmailFilter) -> tuple[list[Row], UUID | None]:
        *rows, last = await self._database.rows(
            "list_api_emails",
            *(which.tenant, which.before, which.state, which.lane, which.recipient),
            *(which.limit, LOOKED_AT),
        )
        return [dict(row) for row in rows], last["last_id"]

    async def cancel(self, tenant: str, id_: UUID, *, by_whom: str, why: str) -> str:
        return await self._outcome("cancel_api_email", tenant, id_, by_whom, why)

    async def reschedule(
        self, tenant: str, id_: UUID, send_after: datetime, *, by_whom: str
    ) -> str:
        try:
            return await self._outcome("reschedule_api_email", tenant, id_, by_whom, send_after)
        except asyncpg.CheckViolationError as error:
            raise _why(error) from None

    async def _outcome(self, name: str, *values: Any) -> str:
        return str(await self._database.value(name, *values) or "absent")

    async def suppressions(
        self, tenant: str, *, key: RecipientKey | None, after: str, limit: int
    ) -> list[Row]:
        rows = await self._database.rows("list_api_suppressions", tenant, key, after, limit)
        return [dict(row) for row in rows]

    async def suppress(
        self,
        tenant: str,
        key: RecipientKey,
        *,
        lane: str,
        by_whom: str,
        why: str,
        lasting: timedelta | None,
    ) -> str:
        async with self._database.transaction() as connection:
            # Before any row, as a lift does: in the other order each could wait for the other.
            await connection.fetch(query("lock_suppressions"), [key])
            done = await connection.fetchval(
                query("add_suppression"), key, tenant, lane, by_whom, why, lasting
            )
        return str(done)

    async def lift(
        self, tenant: str, who: Recipient, *, lane: str, by_whom: str, why: str
    ) -> list[Row]:
        rows = await self._database.rows(
            "lift_recipient", who.key, tenant, lane, "*", by_whom, why, who.address
        )
        return [dict(row) for row in rows]

    async def purge(self) -> int:
        return int(
            await self._database.value("purge_idempotency_keys", IDEMPOTENCY_KEPT, PURGED_AT_ONCE)
        )


def _key(row: asyncpg.Record) -> ApiKey:
    senders = row["senders"]
    return ApiKey(
        id=row["id"],
        tenant=row["tenant"],
        test=row["test"],
        scopes=frozenset(row["scopes"]),
        hash=row["hash"],
        expires=row["expires"],
        revoked=row["revoked"],
        senders=None if senders is None else tuple(senders),
    )


def _accepted(answer: Row) -> Accepted:
    return Accepted(
        decision=Decision(answer["outcome"]),
        emails=answer.get("emails") or (),
        wait_s=answer.get("wait_s") or 0.0,
        burst=answer.get("burst"),
        per_second=answer.get("per_second"),
        left=answer.get("left"),
    )


def _why(error: asyncpg.PostgresError) -> Exception:
    """Of one request alone: its fault, or somebody in its way. The row, which PostgreSQL may quote, is not repeated."""
    if isinstance(error, _IN_THE_WAY):
        return Unavailable("PostgreSQL: another transaction has inserted the same key")
    name = getattr(error, "constraint_name", None)
    if isinstance(error, asyncpg.CheckViolationError) and name:
        return BadMessage(f"this does not hold: {name.replace('_', ' ')}")
    return BadMessage("PostgreSQL cannot keep one of its values")
