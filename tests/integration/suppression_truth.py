"""What the feed and the topic must say of every recipient: exactly what table suppression holds."""

from typing import Any

import orjson

from streams.adapters.postgres import Database

# Written a second time here on purpose, from the columns of the table.
_TRUTH = """
SELECT recipient_key, jsonb_build_object('suppressions', jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
    'tenant', tenant, 'lane', lane, 'reason', reason, 'evidence_id', evidence_id, 'rule_version', rule_version,
    'created', to_char(created AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    'expires', to_char(expires AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))) ORDER BY tenant, lane, reason)) AS value
FROM suppression WHERE expires IS NULL OR expires > now() GROUP BY recipient_key
"""
_DIFFERENT = f"""
WITH last AS (
  SELECT DISTINCT ON (aggregateid) aggregateid, payload FROM outbox_feed
  WHERE aggregatetype = 'suppressions' AND aggregateid NOT LIKE 'heartbeat-%'
  ORDER BY aggregateid, seq DESC
),
truth AS ({_TRUTH})
SELECT count(*) FROM last FULL JOIN truth ON recipient_key = aggregateid WHERE payload IS DISTINCT FROM value
"""


async def keys_whose_last_record_differs(database: Database) -> int:
    """Keys whose last record of the feed, by its sequence, is not what the table holds."""
    async with database.connection() as connection:
        return int(await connection.fetchval(_DIFFERENT, timeout=600))


async def truth(database: Database) -> dict[str, Any]:
    """By recipient key what its record must carry; a key without suppressions is not in it."""
    async with database.connection() as connection:
        rows = await connection.fetch(_TRUTH)
    return {row["recipient_key"]: orjson.loads(row["value"]) for row in rows}
