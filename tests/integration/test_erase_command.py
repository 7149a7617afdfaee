"""`mailstreams erase`: what is left of a recipient, and of others."""

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from streams.adapters.erasure import Erasure
from streams.adapters.postgres import Database
from streams.domain.addresses import recipient_key
from streams.domain.by_hand import Decision, Page
from streams.domain.delivery_events import EventType
from streams.domain.erasure import Erased, Kind
from tests.conftest import SALT
from tests.integration.outbox_rows import Row, bounced, event, execute, fetch, make_row
from tests.integration.test_outbox_commands import Command
from tests.integration.test_scheduler_plans import plan
from tests.integration.test_trace_command import KEYED, full, nodes
from tests.integration.test_unknown_by_hand import held
from tests.integration.test_unknown_policies import apply, state_of

__all__ = ["full"]
pytestmark = pytest.mark.servers

ADA = "Ada.Marker@example.com"
KEY = recipient_key(ADA, SALT)
BY = ("--by", "Ann", "--reason", "she asked")
CONTENT: dict[str, Any] = {
    "subject": "Hello marker",
    "text": "marker",
    "html": "<p>marker</p>",
    "headers": '{"X-Name": "marker"}',
    "tags": '{"name": "marker"}',
    "dedup_key": "for ada.marker@example.com",
}


@pytest.fixture
def command(database_dsn: str) -> Command:
    return Command(database_dsn)


async def places_with_marker(database: Database) -> list[str]:
    """The tables in which some value has it, in whatever form. The feed is dropped by the day."""
    tables = await fetch(
        database,
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname NOT LIKE 'outbox_feed%' ORDER BY 1",
    )
    found = []
    for table in (row["relname"] for row in tables):
        rows = await execute(
            database, f"SELECT count(*) FROM {table} AS t WHERE t::text ILIKE '%marker%'"
        )
        found += [table] if rows else []
    return found


async def history(database: Database) -> dict[str, Row]:
    """Messages to her in every state, what is known of them, and copies of others'."""
    rows = {
        "submitted": await make_row(
            database, "submitted", recipient=ADA, provider_message_id="m1", **CONTENT
        ),
        "failed": await held(database, recipient=ADA, text="marker"),
        "ambiguous": await make_row(database, "ambiguous", recipient=ADA, text="marker"),
        "pending": await make_row(database, recipient=ADA, text="marker", tenant="other"),
        "copy": await make_row(
            database, "submitted", recipient="bob@example.com", cc=[ADA, "eve@example.com"]
        ),
        "hidden": await make_row(
            database, "submitted", recipient="bob@example.com", bcc=["eve@example.com", ADA]
        ),
    }
    await apply(database, event(EventType.ACCEPTED, rows["submitted"]), bounced(rows["submitted"]))
    await apply(database, event(EventType.DELIVERED, rows["copy"], recipient=ADA))
    await apply(database, event(EventType.DELIVERED, rows["copy"], recipient="eve@example.com"))
    await apply(database, event(EventType.OPENED, recipient=ADA, provider_message_id="unknown"))
    await execute(
        database,
        "INSERT INTO provider_unlisting (recipient_key, address) VALUES ($1, $2)",
        KEY,
        ADA,
    )
    return rows


async def test_only_suppressions_stay_under_the_key(command: Command, database: Database) -> None:
    rows = await history(database)
    before = await fetch(database, "SELECT * FROM suppression")
    assert [row["reason"] for row in before] == ["hard-bounce"]
    tried = command.json("erase", ADA, "--dry-run", *BY)
    assert (tried["messages"], tried["copies"], tried["cancelled"]) == (4, 2, 2)
    assert "email_outbox" in await places_with_marker(database)
    assert await execute(database, "SELECT count(*) FROM audit_log") == 0

    done = command.json("erase", "ada.MARKER@example.com", *BY)
    assert {name: done[name] for name in ("messages", "copies", "cancelled", "left")} == {
        "messages": 4,
        "copies": 2,
        "cancelled": 2,
        "left": 0,
    }
    assert await places_with_marker(database) == []
    for table in ("email_event", "recipient_outcome", "recipient_state"):
        found = await execute(
            database, f"SELECT count(*) FROM {table} WHERE recipient_key = $1", KEY
        )
        assert (table, found) == (table, 0)
    assert await fetch(database, "SELECT * FROM suppression") == before
    states = {name: await state_of(database, row) for name, row in rows.items()}
    assert states["pending"] == states["ambiguous"] == "cancelled"
    assert (states["submitted"], states["failed"]) == ("submitted", "failed")
    audit = await fetch(database, "SELECT by_whom, action, why, recipient_key FROM audit_log")
    assert {tuple(row.values()) for row in audit} == {("Ann", "recipient.erased", "she asked", KEY)}
    told = await fetch(
        database, "SELECT payload FROM outbox_feed WHERE aggregatetype = 'delivery-events'"
    )
    assert sum('"reason": "erased"' in row["payload"] for row in told) == 2

    again = command.run("erase", ADA, *BY)
    assert (again.returncode, again.stdout) == (3, "")
    assert "nothing is kept of this recipient, but 1 suppressions, which stay" in again.stderr


async def test_what_belongs_to_others_stays(command: Command, database: Database) -> None:
    rows = await history(database)
    command.json("erase", KEY, *BY)
    (copy,) = await fetch(database, "SELECT * FROM email_outbox WHERE id = $1", rows["copy"].id)
    assert (copy["recipient"], copy["text"]) == ("bob@example.com", "Hi")
    assert copy["cc"] == ["erased@erased.invalid", "eve@example.com"]
    (hidden,) = await fetch(
        database, "SELECT bcc FROM email_outbox WHERE id = $1", rows["hidden"].id
    )
    assert hidden["bcc"] == ["eve@example.com", "erased@erased.invalid"]
    assert await execute(database, "SELECT count(*) FROM email_event") == 1


async def test_a_call_under_way_is_left_and_said_so(command: Command, database: Database) -> None:
    row = await make_row(database, "sending", recipient=ADA)
    waiting = await make_row(database, recipient="bob@example.com", cc=[ADA])
    done = command.run("erase", ADA, *BY)
    assert done.returncode == 1
    assert "2  left: a call is under way, or they wait for others" in done.stdout
    assert await state_of(database, row) == "sending"
    assert await state_of(database, waiting) == "pending"


async def test_evidence_of_a_cancelled_call_still_counts(
    command: Command, database: Database
) -> None:
    row = await make_row(database, "ambiguous", recipient=ADA)
    command.json("erase", ADA, *BY)
    await apply(database, event(EventType.COMPLAINED, row))
    assert await execute(database, "SELECT reason FROM suppression") == "complaint"
    assert await state_of(database, row) == "cancelled"


async def test_what_was_erased_is_not_sent_again(command: Command, database: Database) -> None:
    row = await held(database, recipient=ADA)
    command.json("erase", ADA, *BY)
    by = ("--by", "Ann", "--reason", "try")
    assert command.run("dlq", "redrive", str(row.id), "--duplicates-possible", *by).returncode == 3
    settled = command.json("ambiguous", "settle", str(row.id), "--not-accepted", *by, code=1)
    assert settled["counts"] == {"not-ambiguous": 1}


async def test_it_goes_on_where_it_was_broken_off(database: Database) -> None:
    rows = [await make_row(database, "submitted", recipient=ADA) for _ in range(5)]
    store = Erasure(database, KEY, Decision(by_whom="Ann", why="she asked"))
    first = await store.page(Kind.OWN, Page(limit=2))
    assert [row["id"] for row in first] == [row.id for row in rows[:2]]
    done = Erased()
    await store.erase(Kind.OWN, first, done)
    assert done.messages == 2
    rest = await store.page(Kind.OWN, Page(limit=10))
    assert [row["id"] for row in rest] == [row.id for row in rows[2:]]


@pytest.mark.parametrize("whom", ["nobody@example.com", "0" * 32])
async def test_nobody_known_has_an_exit_code_of_its_own(command: Command, whom: str) -> None:
    done = command.run("erase", whom, *BY)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "mailstreams: nothing is kept of this recipient\n"


async def test_an_address_under_another_salt_is_refused(
    command: Command, database: Database
) -> None:
    await make_row(database, recipient=ADA)
    command.environment["MAILSTREAMS_RECIPIENT_SALT"] = "another salt of 32 characters..."
    assert "is not the salt of this database" in command.refusal("erase", ADA, *BY)
    assert "is not the salt of this database" in command.refusal("trace", ADA)
    assert "neither a mail address nor" in command.refusal("erase", "a b", *BY)


# What the table allows

REFUSED = {
    "the recipient of a pending one": ("pending", "recipient = erased_address()"),
    "another recipient": ("submitted", "recipient = 'eve@example.com'"),
    "another copy": ("submitted", "cc = ARRAY['eve@example.com']"),
    "fewer copies": ("submitted", "cc = '{}'"),
    "the key": ("submitted", "recipient_key = md5('x'), recipient = erased_address()"),
    "contents of a pending one": ("pending", "purged = now(), subject = NULL, text = NULL"),
    "contents in part": ("submitted", "purged = now(), subject = NULL"),
    "contents without saying so": ("submitted", "subject = NULL, text = NULL"),
}


async def test_addresses_and_contents_leave_only_as_an_erasure_takes_them(
    database: Database,
) -> None:
    for state, change in REFUSED.values():
        row = await make_row(database, state, cc=["cc@example.com"])
        with pytest.raises(asyncpg.CheckViolationError):
            await execute(database, f"UPDATE email_outbox SET {change} WHERE id = $1", row.id)
    row = await make_row(database, "submitted")
    purge = "UPDATE email_outbox SET purged = {}, subject = NULL, text = NULL WHERE id = $1"
    await execute(database, purge.format("now()"), row.id)
    with pytest.raises(asyncpg.CheckViolationError):
        await execute(database, purge.format("NULL"), row.id)


async def test_a_producer_cannot_insert_a_purged_row(database: Database) -> None:
    row = await make_row(database, purged=None)
    assert isinstance(row.id, UUID)
    with pytest.raises(asyncpg.CheckViolationError):
        await execute(
            database,
            "INSERT INTO email_outbox (recipient, sender, purged) VALUES ('a@example.com', 's@example.com', now())",
        )


async def test_a_page_is_found_by_an_index(full: Database) -> None:
    await execute(
        full,
        "INSERT INTO email_event (event_id, recipient_key, type, at, payload) SELECT 'u' || n, md5(n::text), 'bounced', now(), '{}' FROM generate_series(1, 3000) AS n",
    )
    await execute(full, "ANALYZE email_event")
    for name in (
        "find_recipient_emails",
        "find_recipient_copies",
        "erase_emails",
        "erase_recipient",
    ):
        for node in nodes(await plan(full, name)):
            if node.get("Relation Name") in ("email_outbox", "email_event", "recipient_outcome"):
                assert KEYED & node.keys() or node["Node Type"] == "ModifyTable", node
