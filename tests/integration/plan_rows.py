"""Tables as full as PLAN_ROWS says (50,000 messages without it), for the tests of plans. Triggers are off while they are filled."""

import os
from typing import Final

from streams.adapters.postgres import Connection

ROWS: Final = int(os.environ.get("PLAN_ROWS", "50000"))
# Those that grow with the mail.
LARGE: Final = frozenset(
    (
        *("email_outbox", "email_attempt", "email_event", "recipient_outcome", "recipient_state"),
        *("suppression", "suppressed_recipient"),
    )
)
_ID: Final = "(lpad(to_hex((extract(epoch FROM now() - interval '30 days') * 1000 + n::float8 / {rows} * 2592000000)::bigint), 12, '0') || '{kind}8000' || lpad(to_hex(n), 12, '0'))::uuid"
_KEY: Final = "md5(n::text)"
_AT: Final = "now() - interval '30 days' * (1 - n::float8 / {rows})"
_STATE: Final = "CASE WHEN n % 200 = 0 THEN 'ambiguous' WHEN n % 100 = 0 THEN 'pending' WHEN n % 1000 = 1 THEN 'failed' ELSE 'submitted' END"
_FILLING: Final = (
    f"""INSERT INTO email_outbox (id, tenant, lane, recipient, recipient_key, sender, subject, text, state, attempts, created, changed)
        SELECT {_ID}, 't' || n % 50, 'transactional', 'u' || n || '@example.com', {_KEY}, 's@example.com', 'Hello', 'Hi', {_STATE}, 1, {_AT}, {_AT}
        FROM generate_series(1, {{rows}}) AS n""",
    f"""INSERT INTO email_attempt (id, outbox_id, number, finished, outcome, provider_message_id)
        SELECT {_ID.replace("{kind}", "7001")}, {_ID}, 1, {_AT}, CASE WHEN n % 200 = 0 THEN 'unknown' ELSE 'accepted' END, 'p' || n
        FROM generate_series(1, {{rows}}) AS n WHERE n % 100 <> 0 OR n % 200 = 0""",
    f"""INSERT INTO email_event (event_id, recipient_key, type, at, tenant, outbox_id, provider_message_id, payload, received)
        SELECT 'e' || n, {_KEY}, CASE WHEN n % 50 = 3 THEN 'bounced' ELSE 'delivered' END, {_AT}, 't' || n % 50,
          CASE WHEN n % 500 <> 7 THEN {_ID} END, 'p' || n, '{{{{}}}}', {_AT}
        FROM generate_series(1, {{rows}}) AS n WHERE n % 100 <> 0""",
    f"INSERT INTO recipient_outcome (outbox_id, recipient_key, delivered_at) SELECT {_ID}, {_KEY}, {_AT} FROM generate_series(1, {{rows}}) AS n",
    f"INSERT INTO recipient_state (tenant, recipient_key, last_delivery) SELECT 't' || n % 50, {_KEY}, {_AT} FROM generate_series(1, {{rows}}) AS n",
    f"INSERT INTO suppressed_recipient (recipient_key) SELECT {_KEY} FROM generate_series(1, {{rows}}) AS n",
    f"INSERT INTO suppression (recipient_key, reason, expires) SELECT {_KEY}, 'manual', CASE WHEN n % 100 = 0 THEN now() + interval '1 day' END FROM generate_series(1, {{rows}}, 2) AS n",
    f"INSERT INTO email_unsettled (attempt_id, outbox_id, since) SELECT {_ID.replace('{kind}', '7001')}, {_ID}, now() - interval '1 hour' FROM generate_series(200, {{rows}}, 200) AS n",
    f"INSERT INTO email_due (id, due, tenant, lane, why) SELECT {_ID}, now() + interval '1 hour' * (n % 100 - 1), 't' || n % 50, 'transactional', 'retry' FROM generate_series(100, {{rows}}, 200) AS n",
    "INSERT INTO scheduler_duty (name) VALUES ('duty')",
    f"INSERT INTO dead_letter (outbox_id, tenant, lane, class, reason) SELECT {_ID}, 't' || n % 50, 'transactional', 'permanent', 'no' FROM generate_series(1, {{rows}}, 1000) AS n",
)


async def fill(connection: Connection, rows: int = ROWS) -> None:
    """So many messages over the last 30 days, nearly all delivered, and what was written about them."""
    await connection.execute("SET session_replication_role = replica")
    for statement in _FILLING:
        text = statement.replace("{kind}", "7000").replace("{rows}", str(rows))
        await connection.execute(text.replace("{{}}", "{}"), timeout=36_000)
    await connection.execute("SET session_replication_role = DEFAULT")
    await connection.execute("VACUUM (ANALYZE)", timeout=36_000)
