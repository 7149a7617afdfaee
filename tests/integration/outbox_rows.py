"""Outbox rows in every state and the events about them, for the tests of the fold and of the scheduler."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from streams.adapters.postgres import Database
from streams.domain.addresses import RecipientKey, recipient_key
from streams.domain.bounce_classes import classify_bounce
from streams.domain.delivery_events import (
    Bounce,
    Complaint,
    DeliveryEvent,
    EventId,
    EventType,
)
from tests.conftest import SALT

START = datetime(2026, 1, 15, 10, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An outbox row and its latest attempt."""

    id: UUID
    attempt_id: UUID | None
    recipient: str
    provider_message_id: str | None = None

    @property
    def key(self) -> RecipientKey:
        return recipient_key(self.recipient, SALT)


async def execute(database: Database, sql: str, *args: Any) -> Any:
    """The first value that the statement returns; ids as Python's own UUID."""
    async with database.connection() as connection:
        value = await connection.fetchval(sql, *args, timeout=120)
    return UUID(bytes=value.bytes) if isinstance(value, UUID) else value


async def fetch(database: Database, sql: str, *args: Any) -> list[dict[str, Any]]:
    async with database.connection() as connection:
        return [dict(row) for row in await connection.fetch(sql, *args)]


FACTS = {
    "outcomes": "SELECT * FROM recipient_outcome ORDER BY outbox_id, recipient_key",
    "states": "SELECT * FROM recipient_state WHERE num_nonnulls(last_delivery, hard_bounce, complaint) > 0 OR soft_bounce_streak > 0 ORDER BY tenant, recipient_key",
    "suppressions": "SELECT recipient_key, tenant, lane, reason, evidence_id, evidence_at, unattributed, rule_version, expires FROM suppression ORDER BY 1, 2, 3, 4",
    "events": "SELECT event_id, recipient_key, type, at, tenant, outbox_id, attempt_id, provider_message_id, payload FROM email_event ORDER BY 1, 2",
    "rows": "SELECT id, state, reason, attempts FROM email_outbox ORDER BY id",
    "attempts": "SELECT id, outbox_id, number, outcome, provider_message_id FROM email_attempt ORDER BY id",
    "unsettled": "SELECT attempt_id, outbox_id FROM email_unsettled ORDER BY 1",
    "due": "SELECT id, why FROM email_due ORDER BY 1",
}


async def all_facts(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Everything that events lead to, without the times of our own doing. A recipient's row that says nothing is only a lock."""
    return {name: await fetch(database, sql) for name, sql in FACTS.items()}


async def make_row(
    database: Database,
    state: str = "pending",
    *,
    recipient: str = "user1@example.com",
    tenant: str = "shop",
    provider_message_id: str | None = None,
    attempt_id: UUID | None = None,
    lease_s: float = 60.0,
    since: str = "0 s",
    **columns: Any,
) -> Row:
    """A row in this state, made the way in which the stages make it; without a feed row of its own."""
    given = {"tenant": tenant, "recipient": recipient, "sender": "sender@example.com"}
    given |= {"subject": "Hello", "text": "Hi"} | columns
    names = ", ".join(given)
    places = ", ".join(f"${n}" for n in range(1, len(given) + 1))
    outbox_id = await execute(
        database,
        f"INSERT INTO email_outbox ({names}) VALUES ({places}) RETURNING id",
        *given.values(),
    )
    await execute(database, "DELETE FROM outbox_feed")
    if state == "pending":
        return Row(id=outbox_id, attempt_id=None, recipient=recipient)
    attempt_id = await _claim(database, outbox_id, attempt_id, lease_s)
    row = Row(
        id=outbox_id,
        attempt_id=attempt_id,
        recipient=recipient,
        provider_message_id=provider_message_id,
    )
    if state != "sending":
        await _end(database, row, state=state, since=since)
    return row


async def _claim(
    database: Database, outbox_id: UUID, attempt_id: UUID | None, lease_s: float
) -> UUID:
    attempt_id = await execute(
        database,
        "UPDATE email_outbox SET state = 'sending', attempt_id = coalesce($2, uuid_v7()), attempts = attempts + 1 WHERE id = $1 RETURNING attempt_id",
        outbox_id,
        attempt_id,
    )
    assert attempt_id is not None
    await execute(
        database,
        "INSERT INTO email_lease (id, attempt_id, expires) VALUES ($1, $2, clock_timestamp() + $3)",
        outbox_id,
        attempt_id,
        timedelta(seconds=lease_s),
    )
    await execute(database, "DELETE FROM email_due WHERE id = $1", outbox_id)
    return attempt_id


async def _end(database: Database, row: Row, *, state: str, since: str) -> None:
    await execute(
        database,
        "UPDATE email_outbox SET state = $2, attempt_id = NULL WHERE id = $1",
        row.id,
        state,
    )
    await execute(database, "DELETE FROM email_lease WHERE id = $1", row.id)
    outcomes = {"submitted": "accepted", "ambiguous": "unknown", "pending": "retry"}
    await execute(
        database,
        "INSERT INTO email_attempt (id, outbox_id, number, finished, outcome, provider_message_id) VALUES ($1, $2, 1, clock_timestamp(), $3, $4)",
        row.attempt_id,
        row.id,
        outcomes.get(state, "permanent"),
        row.provider_message_id,
    )
    if state == "ambiguous":
        await execute(
            database,
            "INSERT INTO email_unsettled (attempt_id, outbox_id, since) VALUES ($1, $2, clock_timestamp() - $3::text::interval)",
            row.attempt_id,
            row.id,
            since,
        )


def event(
    kind: EventType,
    row: Row | None = None,
    *,
    name: str | None = None,
    at_s: float = 0.0,
    recipient: str | None = None,
    tagged: bool = True,
    provider_message_id: str | None = None,
    **fields: Any,
) -> DeliveryEvent:
    """An event about the row's recipient, with its tags unless untagged. name tells events of one kind apart."""
    address = recipient or (row.recipient if row else "user1@example.com")
    key = recipient_key(address, SALT)
    provider = provider_message_id or (row.provider_message_id if row else None)
    tags = {}
    if row is not None and tagged:
        tags = {"outbox_id": row.id, "attempt_id": row.attempt_id}
    values: dict[str, Any] = {
        "id": EventId(f"{name or kind}-{key[:8]}-{row.id if row else provider}"),
        "type": kind,
        "time": START + timedelta(seconds=at_s),
        "recipient_key": key,
        "provider_message_id": provider,
        **tags,
        **fields,
    }
    return DeliveryEvent(**values)


def bounced(row: Row | None = None, *, label: str = "Permanent", **fields: Any) -> DeliveryEvent:
    """A bounce with the label of SES; hard unless another label is given."""
    subtype = fields.pop("subtype", "General")
    status = fields.pop("status", "5.1.1" if label == "Permanent" else "4.4.7")
    diagnostic = fields.pop("diagnostic", None)
    kind, reason = classify_bounce(
        label=label, subtype=subtype, status=status, diagnostic=diagnostic
    )
    bounce = Bounce(
        type=kind,
        reason=reason,
        provider_type=label,
        provider_subtype=subtype,
        status=status,
        diagnostic=diagnostic,
    )
    return event(EventType.BOUNCED, row, bounce=bounce, **fields)


def complained(
    row: Row | None = None, *, label: str | None = "abuse", **fields: Any
) -> DeliveryEvent:
    return event(EventType.COMPLAINED, row, complaint=Complaint(type=label), **fields)
