"""What the accept API asks goes by indexes, however large the tables are."""

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from tests.api_rig import EMAIL, api_on, client, make_key, rows

pytestmark = pytest.mark.servers
TABLES = ("email_outbox", "suppression", "template", "idempotency_key", "email_event", "email_attempt")  # fmt: skip
FILL = (
    """INSERT INTO email_outbox (tenant, recipient, sender, subject, text)
       SELECT CASE WHEN n % 1000 = 0 THEN 'shop' ELSE 'other' END, 'u' || n || '@example.com', 's@example.com', 'x', 'x'
       FROM generate_series(1, 12000) AS n""",
    """INSERT INTO suppression (recipient_key, reason)
       SELECT left(encode(sha256(n::text::bytea), 'hex'), 32), 'manual' FROM generate_series(1, 5000) AS n""",
    "INSERT INTO template (tenant, name, version, subject, text) SELECT 'other', 't' || n, 1, 'x', 'x' FROM generate_series(1, 5000) AS n",
    "INSERT INTO template (tenant, name, version, subject, text) VALUES ('shop', 'hello', 1, 'x', 'x')",
    """INSERT INTO idempotency_key (tenant, test, key, digest, answer)
       SELECT 'other', false, n::text, '', '[]' FROM generate_series(1, 5000) AS n""",
    """INSERT INTO email_attempt (id, outbox_id, number, finished, outcome) SELECT uuid_v7(), id, 1, now(), 'accepted' FROM email_outbox""",
    """INSERT INTO email_event (event_id, recipient_key, type, at, outbox_id, payload)
       SELECT id::text, recipient_key, 'accepted', now(), id, '{}' FROM email_outbox""",
)


async def whole_reads(database: Database) -> dict[str, int]:
    """How often each table was read from one end to the other, as far as its sessions have told."""
    left = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'mailstreams api'"
    while (await rows(database, left))[0]["count"]:  # noqa: ASYNC110 PostgreSQL has no event for it
        await asyncio.sleep(0.01)
    await rows(database, "SELECT pg_stat_force_next_flush()")
    await rows(database, "SELECT pg_stat_clear_snapshot()")
    found = await rows(
        database,
        "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE relname = ANY ($1)",
        TABLES,
    )
    return {row["relname"]: row["seq_scan"] for row in found}


async def test_no_request_reads_a_whole_table(database_dsn: str, database: Database) -> None:
    key = await make_key(database)
    for statement in FILL:
        await rows(database, statement)
    async with database.connection() as connection:
        await connection.execute("ANALYZE")
    template = {"from": "s@example.com", "to": "ann@example.com", "template": "hello"}
    before = await whole_reads(database)
    async with api_on(database_dsn) as stage, client(stage.address, key) as shop:
        status, body, _ = await shop.post(
            "/v1/emails",
            EMAIL | {"dedup_key": "d", "send_after": "2099-01-01T00:00:00Z"},
            headers={"Idempotency-Key": "k"},
        )
        assert status == 202
        batch = [EMAIL, template, EMAIL | {"dedup_key": "d"}]
        assert (await shop.post("/v1/emails/batch", batch))[0] == 202
        for path in ("/v1/emails", "/v1/emails?to=x@example.com", f"/v1/emails/{body['id']}"):
            assert (await shop.get(path))[0] == 200
    # The sessions have ended, and with that told what they did.
    assert await whole_reads(database) == before
    assert before.keys() == set(TABLES)


async def test_a_page_of_a_small_tenant_is_found_by_its_index(database: Database) -> None:
    for statement in FILL[:1]:
        await rows(database, statement)
    async with database.connection() as connection:
        await connection.execute("ANALYZE email_outbox")
        found = await connection.fetchval(
            f"EXPLAIN (FORMAT JSON, ANALYZE) {query('list_api_emails')}",
            *("shop", UUID(int=2**128 - 1), None, None, None, 50, 5000),
        )
    plan: Any = json.loads(found)
    assert "email_outbox_tenant" in str(plan)
    assert plan[0]["Plan"]["Actual Rows"] == 13
