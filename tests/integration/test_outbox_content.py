"""What is checked when content is written is checked whenever it is written, told without the content, and never by a change of state."""

import json
from typing import Any

import asyncpg
import pytest

from streams.adapters.postgres import Database
from tests.integration.sender_rows import execute, insert, one

pytestmark = pytest.mark.servers


@pytest.mark.parametrize(
    ("constraint", "column", "value"),
    [
        ("sender_is_one_plain_mail_address", "sender", "shop"),
        ("reply_to_is_one_plain_mail_address", "reply_to", "a@b@example.com"),
        ("subject_is_one_line_of_1_to_2000_characters", "subject", "Hello\nBcc: x@example.com"),
        ("body_or_template_and_not_both", "text", None),
        ("body_or_template_and_not_both", "template", "welcome"),
        ("headers_are_at_most_15_one_line_ascii_values", "headers", json.dumps({"X-A": "a\nb"})),
        ("tags_are_at_most_5_of_letters_digits_underscore_hyphen", "tags", '{"attempt": "c"}'),
        ("dedup_key_has_1_to_200_characters", "dedup_key", ""),
        ("traceparent_has_the_w3c_form", "traceparent", "00-abc"),
    ],
)
async def test_a_change_of_content_is_checked_like_an_insert(
    database: Database, constraint: str, column: str, value: Any
) -> None:
    id_ = await insert(database)
    before = await one(database, "SELECT * FROM email_outbox")
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await execute(database, f"UPDATE email_outbox SET {column} = $2 WHERE id = $1", id_, value)
    assert refused.value.constraint_name == constraint
    assert await one(database, "SELECT * FROM email_outbox") == before


async def test_a_good_change_of_content_is_taken(database: Database) -> None:
    id_ = await insert(database)
    await execute(database, "UPDATE email_outbox SET subject = 'Good day' WHERE id = $1", id_)
    assert await one(database, "SELECT subject FROM email_outbox") == {"subject": "Good day"}


async def test_a_refusal_names_table_and_constraint_and_repeats_nothing_of_the_row(
    database: Database,
) -> None:
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await insert(database, recipient="Ann Secret <ann@example.com>")
    told = refused.value
    assert (told.sqlstate, told.table_name, told.schema_name) == ("23514", "email_outbox", "public")
    assert (
        str(told)
        == 'new row for relation "email_outbox" violates check constraint "recipient_is_one_plain_mail_address"'
    )
    assert told.detail is None


async def test_a_change_of_state_evaluates_no_check_of_the_content(database: Database) -> None:
    """Each check of the table is evaluated by every claim and every outcome, of whatever column it speaks."""
    checked = await one(
        database,
        "SELECT array_agg(DISTINCT a.attname::text) AS columns FROM pg_constraint AS c "
        "JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey) "
        "WHERE c.conrelid = 'email_outbox'::regclass AND c.contype = 'c'",
    )
    assert set(checked["columns"]) <= {"state", "attempt_id", "attempts", "on_ambiguous"}
