"""lift_suppressions: what it takes away, what it leaves, what it hands on to SES, and who waits for it."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from streams.adapters.postgres import Database
from streams.domain.addresses import recipient_key
from tests.conftest import SALT
from tests.integration.outbox_rows import execute, fetch, make_row

pytestmark = pytest.mark.servers

ANN = recipient_key("ann@example.com", SALT)
BOB = recipient_key("bob@example.com", SALT)
ANY = "*"

Scope = tuple[str, str, str, str]


async def suppressed(
    database: Database, *scopes: Scope, evidence_id: str = "e-1", at: str = "1 h"
) -> None:
    for key, tenant, lane, reason in scopes:
        await execute(
            database,
            "INSERT INTO suppression (recipient_key, tenant, lane, reason, evidence_id, evidence_at) VALUES ($1, $2, $3, $4, $5, now() - $6::text::interval)",
            key,
            tenant,
            lane,
            reason,
            evidence_id,
            at,
        )


async def lift(
    database: Database, *scopes: Scope, addresses: list[str | None] | None = None
) -> set[Scope]:
    columns = [list(column) for column in zip(*scopes, strict=True)]
    rows = await fetch(
        database,
        "SELECT * FROM lift_suppressions($1, $2, $3, $4, 'ann', 'she asked for it', $5)",
        *columns,
        addresses,
    )
    return {(r["recipient_key"], r["tenant"], r["lane"], r["reason"]) for r in rows}


async def left(database: Database) -> set[Scope]:
    rows = await fetch(database, "SELECT recipient_key, tenant, lane, reason FROM suppression")
    return {(r["recipient_key"], r["tenant"], r["lane"], r["reason"]) for r in rows}


HARD = (ANN, ANY, ANY, "hard-bounce")
COMPLAINT = (ANN, "shop", ANY, "complaint")
OTHER_COMPLAINT = (ANN, "other", ANY, "complaint")
OPT_OUT = (ANN, "shop", "bulk", "unsubscribed")
BOBS = (BOB, ANY, ANY, "hard-bounce")
EVERYTHING = (HARD, COMPLAINT, OTHER_COMPLAINT, OPT_OUT, BOBS)


@pytest.mark.parametrize(
    ("asked", "gone"),
    [
        (HARD, {HARD}),
        ((ANN, ANY, ANY, ANY), {HARD, COMPLAINT, OTHER_COMPLAINT, OPT_OUT}),
        ((ANN, "shop", ANY, ANY), {COMPLAINT, OPT_OUT}),
        ((ANN, ANY, "bulk", ANY), {OPT_OUT}),
        ((ANN, ANY, ANY, "complaint"), {COMPLAINT, OTHER_COMPLAINT}),
        ((ANY, ANY, ANY, "hard-bounce"), {HARD, BOBS}),
        ((BOB, "shop", ANY, "complaint"), set()),
    ],
)
async def test_a_lift_takes_what_it_names_and_leaves_the_rest(
    database: Database, asked: Scope, gone: set[Scope]
) -> None:
    await suppressed(database, *EVERYTHING)
    assert await lift(database, asked) == gone
    assert await left(database) == set(EVERYTHING) - gone
    logged = await fetch(
        database, "SELECT recipient_key, tenant, lane, reason, by_whom, why FROM suppression_log"
    )
    key, tenant, lane, reason = asked
    assert logged == [
        {
            "recipient_key": key,
            "tenant": tenant,
            "lane": lane,
            "reason": reason,
            "by_whom": "ann",
            "why": "she asked for it",
        }
    ]


async def test_several_lifts_at_once_take_what_each_of_them_names(database: Database) -> None:
    await suppressed(database, *EVERYTHING)
    asked = (ANY, ANY, ANY, "hard-bounce"), (ANN, "shop", ANY, "complaint"), HARD
    assert await lift(database, *asked) == {HARD, BOBS, COMPLAINT}
    assert await left(database) == {OTHER_COMPLAINT, OPT_OUT}


async def test_a_lift_of_one_recipient_does_not_read_the_whole_table(database: Database) -> None:
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, reason) SELECT md5(n::text), 'manual' FROM generate_series(1, 30000) AS n",
    )
    await suppressed(database, HARD)
    async with database.connection() as connection, connection.transaction():
        read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'suppression'"
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        before = await connection.fetchval(read)
        await connection.fetch(
            "SELECT lift_suppressions(ARRAY[$1], ARRAY['*'], ARRAY['*'], ARRAY['*'], 'ann', 'why')",
            ANN,
        )
        assert 1 <= await connection.fetchval(read) - before < 100


async def test_a_lift_is_announced_as_the_set_that_is_left(database: Database) -> None:
    await suppressed(database, HARD, COMPLAINT)
    await execute(database, "DELETE FROM outbox_feed")
    await lift(database, COMPLAINT)
    await lift(database, HARD)
    told = await fetch(
        database,
        "SELECT aggregateid, payload #>> '{suppressions,0,reason}' AS reason FROM outbox_feed ORDER BY seq",
    )
    assert told == [
        {"aggregateid": ANN, "reason": "hard-bounce"},
        {"aggregateid": ANN, "reason": None},
    ]


async def test_evidence_newer_than_the_lift_stays(database: Database) -> None:
    await suppressed(database, HARD, at="-2 h")
    assert await lift(database, (ANN, ANY, ANY, ANY)) == set()
    assert await left(database) == {HARD}


async def test_what_a_provider_told_with_a_clock_ahead_of_ours_is_lifted_too(
    database: Database,
) -> None:
    await suppressed(database, HARD, at="-30 s")
    await execute(
        database,
        "INSERT INTO email_event (event_id, recipient_key, type, at, payload) SELECT evidence_id, recipient_key, 'bounced', evidence_at, '{}' FROM suppression",
    )
    assert await lift(database, (ANN, ANY, ANY, ANY)) == {HARD}


async def unlisting(database: Database) -> list[dict[str, Any]]:
    return await fetch(database, "SELECT recipient_key, address, tries FROM provider_unlisting")


@pytest.mark.parametrize("column", ["recipient", "cc", "bcc"])
async def test_the_address_to_unlist_is_found_through_the_message_of_the_evidence(
    database: Database, column: str
) -> None:
    given: dict[str, Any] = {"cc": ["c@example.com", "z@example.com"], "bcc": ["d@example.com"]}
    given |= {"recipient": "Ann@example.com"} if column == "recipient" else {}
    given |= {column: ["b@example.com", "Ann@example.com"]} if column != "recipient" else {}
    row = await make_row(database, "submitted", **given)
    await suppressed(database, HARD)
    await execute(
        database,
        "INSERT INTO email_event (event_id, recipient_key, type, at, outbox_id, payload) VALUES ('e-1', $1, 'bounced', now() - interval '1 h', $2, '{}')",
        ANN,
        row.id,
    )
    await lift(database, HARD)
    assert await unlisting(database) == [
        {"recipient_key": ANN, "address": "Ann@example.com", "tries": 0}
    ]


async def test_an_address_that_nobody_knows_is_said_to_be_unknown(database: Database) -> None:
    await suppressed(database, HARD)
    await lift(database, HARD)
    assert await unlisting(database) == [{"recipient_key": ANN, "address": None, "tries": 0}]
    await execute(database, "UPDATE provider_unlisting SET tries = 3")
    await lift(database, HARD, addresses=["ann@example.com"])
    assert await unlisting(database) == [
        {"recipient_key": ANN, "address": "ann@example.com", "tries": 0}
    ]


@pytest.mark.parametrize(
    "asked", [OPT_OUT, (ANN, ANY, ANY, "soft-bounces"), (ANN, "shop", "bulk", ANY)]
)
async def test_what_ses_does_not_list_is_not_unlisted(database: Database, asked: Scope) -> None:
    await suppressed(database, OPT_OUT)
    await lift(database, asked, addresses=["ann@example.com"])
    assert await unlisting(database) == []


async def test_a_lift_for_all_recipients_unlists_those_whose_suppression_is_gone(
    database: Database,
) -> None:
    await suppressed(database, *EVERYTHING)
    await lift(database, (ANY, ANY, ANY, "hard-bounce"))
    assert sorted(r["recipient_key"] for r in await unlisting(database)) == sorted([ANN, BOB])


async def test_what_ses_said_before_it_had_unlisted_an_address_is_lifted_too(
    database: Database,
) -> None:
    await lift(database, (ANN, ANY, ANY, "hard-bounce"), addresses=["ann@example.com"])
    listed = (ANN, ANY, ANY, "provider-suppression")
    await suppressed(database, listed, COMPLAINT, at="0 s")
    requested = await execute(database, "SELECT requested FROM provider_unlisting")
    unlisted = "SELECT provider_unlisted($1, $2)"
    assert not await execute(database, unlisted, ANN, requested - timedelta(seconds=1))
    assert await left(database) == {listed, COMPLAINT}
    assert await execute(database, unlisted, ANN, requested)
    assert await left(database) == {COMPLAINT}
    assert await unlisting(database) == []


async def test_only_read_committed_transactions_lift(database: Database) -> None:
    async with database.connection() as connection:
        for isolation in ("repeatable_read", "serializable"):
            with pytest.raises(asyncpg.InvalidTransactionStateError, match="READ COMMITTED"):
                async with connection.transaction(isolation=isolation):
                    await connection.fetch(
                        "SELECT * FROM lift_suppressions($1, $1, $1, $1, 'ann', 'why')", ["*"]
                    )


@pytest.mark.parametrize("asked", [ANN, ANY])
async def test_a_lift_waits_for_whoever_holds_the_recipient(database: Database, asked: str) -> None:
    """What is being put in by evidence of before is lifted too."""
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetch("SELECT * FROM lock_suppressions($1)", [ANN])
        lifted = asyncio.create_task(lift(database, (asked, ANY, ANY, ANY)))
        await waiting(database)
        assert not lifted.done()
        await connection.execute(
            "INSERT INTO suppression (recipient_key, reason, evidence_at) VALUES ($1, 'hard-bounce', now())",
            ANN,
        )
        await transaction.commit()
    assert await lifted == {HARD}


async def waiting(database: Database) -> None:
    """Until somebody waits for a lock."""
    deadline = time.monotonic() + 20
    while not await execute(database, "SELECT count(*) FROM pg_locks WHERE NOT granted"):
        assert time.monotonic() < deadline, "nobody waited"
        await asyncio.sleep(0.02)
