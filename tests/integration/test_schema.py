"""What the table itself refuses, and what an insert puts into the feed."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from streams.adapters.postgres import Database

pytestmark = pytest.mark.servers

GOOD: dict[str, Any] = {
    "recipient": "ann@example.com",
    "sender": "shop@example.com",
    "subject": "Hello",
    "text": "Hi",
}


async def insert(database: Database, **columns: Any) -> Any:
    row = {k: v for k, v in (GOOD | columns).items() if v is not None}
    names = ", ".join(row)
    places = ", ".join(f"${n}" for n in range(1, len(row) + 1))
    async with database.connection() as connection:
        return await connection.fetchval(
            f"INSERT INTO email_outbox ({names}) VALUES ({places}) RETURNING id", *row.values()
        )


@pytest.mark.parametrize(
    ("constraint", "columns"),
    [
        ("recipient_is_one_plain_mail_address", {"recipient": "nobody"}),
        ("recipient_is_one_plain_mail_address", {"recipient": "Ann <ann@example.com>"}),
        ("recipient_is_one_plain_mail_address", {"recipient": "ann@example.com,bob@example.com"}),
        ("recipient_is_one_plain_mail_address", {"recipient": "ann@localhost"}),
        ("recipient_is_one_plain_mail_address", {"recipient": "ann@exa mple.com"}),
        ("recipient_is_one_plain_mail_address", {"recipient": "ann\n@example.com"}),
        ("recipient_is_one_plain_mail_address", {"recipient": f"{'a' * 65}@example.com"}),
        ("sender_is_one_plain_mail_address", {"sender": "shop"}),
        ("sender_name_is_one_line_of_1_to_200_characters", {"sender_name": "a\nb"}),
        ("sender_name_is_one_line_of_1_to_200_characters", {"sender_name": ""}),
        ("reply_to_is_one_plain_mail_address", {"reply_to": "a@b@example.com"}),
        ("cc_has_plain_mail_addresses_only", {"cc": ["bob@example.com", "nobody"]}),
        ("cc_has_plain_mail_addresses_only", {"cc": [["a@example.com", "b@example.com"]]}),
        ("cc_has_plain_mail_addresses_only", {"cc": ["a@example.com", None]}),
        ("subject_is_one_line_of_1_to_2000_characters", {"subject": "Hello\r\nBcc: x@example.com"}),
        ("subject_is_one_line_of_1_to_2000_characters", {"subject": ""}),
        ("headers_are_at_most_15_one_line_ascii_values", {"headers": json.dumps({"X-A": "a\nb"})}),
        ("headers_are_at_most_15_one_line_ascii_values", {"headers": json.dumps({"X-A": "a\rb"})}),
        ("headers_are_at_most_15_one_line_ascii_values", {"headers": json.dumps({"X:A": "a"})}),
        ("headers_are_at_most_15_one_line_ascii_values", {"headers": json.dumps({"X-A": "ü"})}),
        ("headers_are_at_most_15_one_line_ascii_values", {"headers": json.dumps({"BCC": "a@b.c"})}),
        ("headers_are_at_most_15_one_line_ascii_values", {"headers": '{"x-ses-tenant": "a"}'}),
        ("headers_are_at_most_15_one_line_ascii_values", {"headers": json.dumps({"X-A": 1})}),
        ("headers_are_at_most_15_one_line_ascii_values", {"headers": json.dumps(["X-A"])}),
        (
            "headers_are_at_most_15_one_line_ascii_values",
            {"headers": json.dumps({f"X-{n}": "a" for n in range(16)})},
        ),
        ("tags_are_at_most_5_of_letters_digits_underscore_hyphen", {"tags": '{"a.b": "c"}'}),
        ("tags_are_at_most_5_of_letters_digits_underscore_hyphen", {"tags": '{"attempt": "c"}'}),
        ("lane_is_transactional_or_bulk", {"lane": "express"}),
        ("tenant_has_1_to_64_of_letters_digits_underscore_hyphen", {"tenant": "a b"}),
        ("body_or_template_and_not_both", {"template": "welcome"}),
        ("body_or_template_and_not_both", {"text": None}),
        ("body_or_template_and_not_both", {"subject": None}),
        ("body_or_template_and_not_both", {"subject": None, "text": None}),
        ("body_or_template_and_not_both", {"variables": "{}"}),
        (
            "body_is_within_the_ses_limit_of_40_mb_after_base64",
            {"text": "x" * 15_000_001, "html": "y" * 15_000_000},
        ),
        ("at_most_50_recipients", {"cc": [f"c{n}@example.com" for n in range(50)]}),
        (
            "expires_after_it_is_due",
            {
                "send_after": datetime(2026, 1, 2, tzinfo=UTC),
                "expires_at": datetime(2026, 1, 1, tzinfo=UTC),
            },
        ),
        (
            "send_after_is_between_1970_and_9999",
            {"send_after": datetime(1969, 12, 31, tzinfo=UTC)},
        ),
        (
            "expires_at_is_between_1970_and_9999_or_infinity",
            {"expires_at": datetime(9999, 12, 31, 12, tzinfo=UTC)},
        ),
        ("on_ambiguous_is_hold_resend_or_resend_when_silent", {"on_ambiguous": "again"}),
        ("id_is_a_uuid_of_version_7", {"id": "3f2b8f6e-8c5d-4d7c-9a57-2f3d1a5b6c7d"}),
    ],
)
async def test_bad_input_is_refused_by_a_constraint_that_says_what_is_wrong(
    database: Database, constraint: str, columns: dict[str, Any]
) -> None:
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await insert(database, **columns)
    assert refused.value.constraint_name == constraint
    assert await count(database, "outbox_feed") == 0


@pytest.mark.parametrize("recipient", ["ann@münchen.example", "änn@example.com"])
async def test_a_recipient_outside_ascii_is_refused_with_advice(
    database: Database, recipient: str
) -> None:
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await insert(database, recipient=recipient)
    assert "xn--" in (refused.value.hint or "")


@pytest.mark.parametrize("column", [{"state": "submitted"}, {"attempts": 3}, {"reason": "x"}])
async def test_a_producer_cannot_set_the_state(database: Database, column: dict[str, Any]) -> None:
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await insert(database, **column)
    assert refused.value.hint == "Leave these columns out of the insert."


async def count(database: Database, table: str) -> int:
    async with database.connection() as connection:
        return int(await connection.fetchval(f"SELECT count(*) FROM {table}"))


async def feed(database: Database) -> list[asyncpg.Record]:
    async with database.connection() as connection:
        return list(
            await connection.fetch(
                "SELECT aggregatetype, aggregateid, type, payload::text AS payload, xid::text FROM outbox_feed ORDER BY seq"
            )
        )


async def test_an_insert_puts_a_pointer_without_address_or_content_into_the_feed(
    database: Database,
) -> None:
    made = await insert(database, recipient=" Ann@Example.com", cc=["bob@example.com"])
    [row] = await feed(database)
    pointer = json.loads(row["payload"])
    assert row["aggregatetype"] == "outbox.transactional"
    assert pointer["id"] == str(made)
    assert pointer["recipients"] == 2
    assert pointer["xid"] == row["xid"]
    assert "ann" not in row["payload"].lower()
    assert "Hello" not in row["payload"]
    async with database.connection() as connection:
        assert row["aggregateid"] == await connection.fetchval(
            "SELECT recipient_key('ann@example.com')"
        )


async def test_a_scheduled_row_waits_in_email_due(database: Database) -> None:
    await insert(database, send_after=datetime.now(UTC) + timedelta(hours=1))
    assert await feed(database) == []
    assert await count(database, "email_due") == 1


async def test_a_rolled_back_insert_leaves_nothing(database: Database) -> None:
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            "SELECT enqueue_email('ann@example.com', 'shop@example.com', 'Hi', 'x')"
        )
        await transaction.rollback()
    assert await count(database, "email_outbox") == await count(database, "outbox_feed") == 0


async def test_the_same_dedup_key_gives_the_same_row(database: Database) -> None:
    async with database.connection() as connection:
        ids = [
            await connection.fetchval(
                "SELECT enqueue_email('ann@example.com', 'shop@example.com', 'Hi', 'x', tenant => $1, dedup_key => 'order-1')",
                tenant,
            )
            for tenant in ("a", "a", "b")
        ]
    assert ids[0] == ids[1] != ids[2]
    assert await count(database, "outbox_feed") == 2


async def test_copy_is_one_insert_of_many_pointers(database: Database) -> None:
    rows = [(f"user{n}@example.com", "shop@example.com", "Hi", "x", "bulk") for n in range(5000)]
    async with database.connection() as connection:
        await connection.copy_records_to_table(
            "email_outbox", records=rows, columns=["recipient", "sender", "subject", "text", "lane"]
        )
    found = await feed(database)
    assert len(found) == 5000
    assert {row["aggregatetype"] for row in found} == {"outbox.bulk"}


async def test_the_time_of_creation_is_ours(database: Database) -> None:
    await insert(database, created=datetime(1970, 1, 1, tzinfo=UTC))
    async with database.connection() as connection:
        assert await connection.fetchval(
            "SELECT now() - created < interval '1 minute' FROM email_outbox"
        )


@pytest.mark.parametrize(
    "change",
    [
        "recipient = 'other@example.com'",
        "recipient_key = repeat('a', 32)",
        "cc = ARRAY['other@example.com']",
        "bcc_keys = ARRAY[repeat('a', 32)]",
        "tenant = 'other'",
        "lane = 'bulk'",
        "id = uuid_v7()",
    ],
)
async def test_what_was_told_about_a_row_cannot_change(database: Database, change: str) -> None:
    await insert(database)
    async with database.connection() as connection:
        with pytest.raises(asyncpg.CheckViolationError, match="do not change"):
            await connection.execute(f"UPDATE email_outbox SET {change}")


async def test_an_illegal_transition_is_refused(database: Database) -> None:
    made = await insert(database)
    async with database.connection() as connection:
        await connection.execute("UPDATE email_outbox SET state = 'cancelled' WHERE id = $1", made)
        with pytest.raises(asyncpg.CheckViolationError, match="from cancelled to pending"):
            await connection.execute(
                "UPDATE email_outbox SET state = 'pending' WHERE id = $1", made
            )


async def suppress(connection: Any, key: str, **columns: Any) -> None:
    row = {"recipient_key": key, "reason": "manual"} | columns
    names = ", ".join(row)
    places = ", ".join(f"${n}" for n in range(1, len(row) + 1))
    await connection.execute(f"INSERT INTO suppression ({names}) VALUES ({places})", *row.values())


async def test_each_change_of_a_suppression_announces_the_whole_set(database: Database) -> None:
    key = "a" * 32
    async with database.connection() as connection:
        await suppress(connection, key, reason="complaint", tenant="shop")
        await suppress(connection, key, reason="unsubscribed", tenant="shop", lane="bulk")
        await connection.execute("DELETE FROM suppression WHERE reason = 'unsubscribed'")
        await connection.execute("DELETE FROM suppression")
    sets = [
        None if r["payload"] is None else json.loads(r["payload"]) for r in await feed(database)
    ]
    assert [s and [x["reason"] for x in s["suppressions"]] for s in sets] == [
        ["complaint"],
        ["complaint", "unsubscribed"],
        ["complaint"],
        None,
    ]


async def test_an_expired_suppression_is_not_announced_as_in_force(database: Database) -> None:
    async with database.connection() as connection:
        await suppress(connection, "a" * 32, expires=datetime.now(UTC) - timedelta(seconds=1))
    [row] = await feed(database)
    assert row["payload"] is None


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_suppressions_are_refused_in_a_transaction_that_reads_an_old_snapshot(
    database: Database, isolation: Any
) -> None:
    async with database.connection() as connection:
        transaction = connection.transaction(isolation=isolation)
        await transaction.start()
        with pytest.raises(asyncpg.PostgresError, match="READ COMMITTED"):
            await suppress(connection, "a" * 32)
        await transaction.rollback()


async def test_the_last_announcement_of_concurrent_writers_is_the_table(database: Database) -> None:
    key = "b" * 32
    async with database.connection() as first, database.connection() as second:
        slow = first.transaction()
        await slow.start()
        await suppress(first, key, reason="complaint")
        waiting = asyncio.create_task(suppress(second, key, reason="hard-bounce"))
        async with database.connection() as watcher:
            for _ in range(500):
                if await watcher.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                    break
                await asyncio.sleep(0.01)
            else:
                pytest.fail("the second writer does not wait for the first")
        await slow.commit()
        await waiting
    last = json.loads((await feed(database))[-1]["payload"])
    assert [s["reason"] for s in last["suppressions"]] == ["complaint", "hard-bounce"]


async def test_the_salt_is_the_owners_alone(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("CREATE ROLE producer_of_test")
        try:
            await connection.execute("GRANT INSERT ON email_outbox TO producer_of_test")
            async with connection.transaction():
                await connection.execute("SET LOCAL ROLE producer_of_test")
                await connection.execute(
                    "INSERT INTO email_outbox (recipient, sender, subject, text) VALUES ('a@example.com', 'b@example.com', 'Hi', 'x')"
                )
            await connection.execute("SET ROLE producer_of_test")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.fetch("SELECT * FROM recipient_salt")
            await connection.execute("RESET ROLE")
        finally:
            await connection.execute("DROP OWNED BY producer_of_test")
            await connection.execute("DROP ROLE producer_of_test")
    assert await count(database, "outbox_feed") == 1
