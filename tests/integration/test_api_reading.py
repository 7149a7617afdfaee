"""What a tenant asks of its messages and suppressions, and changes; and that nobody else's are touched."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from streams.accepting.routes import Route
from streams.adapters.postgres import Database
from streams.adapters.schedule_store import ScheduleStore
from streams.api import Api
from streams.domain.diagnosis_privileges import STAGES
from tests.api_rig import EMAIL, Client, api_on, client, make_key, rows

pytestmark = pytest.mark.servers
LATER = "2099-01-01T00:00:00Z"


@pytest.fixture
async def api(database_dsn: str) -> AsyncIterator[Api]:
    async with api_on(database_dsn) as stage:
        yield stage


@pytest.fixture
async def shop(api: Api, database: Database) -> AsyncIterator[Client]:
    async with client(api.address, await make_key(database)) as asked:
        yield asked


@pytest.fixture
async def stranger(api: Api, database: Database) -> AsyncIterator[Client]:
    """Another tenant."""
    async with client(api.address, await make_key(database, "other")) as asked:
        yield asked


async def posted(shop: Client, **more: Any) -> str:
    status, body, _ = await shop.post("/v1/emails", EMAIL | more)
    assert status == 202, body
    return str(body["id"])


async def test_a_message_is_told_with_its_events(shop: Client, database: Database) -> None:
    id_ = await posted(shop, cc="bob@example.com", tags={"kind": "order"}, dedup_key="d")
    await rows(
        database,
        "INSERT INTO email_attempt (id, outbox_id, number, started, finished, outcome) VALUES (uuid_v7(), $1, 1, now(), now(), 'accepted') RETURNING 1",
        UUID(id_),
    )
    await rows(
        database,
        "INSERT INTO email_event (event_id, recipient_key, type, at, outbox_id, payload) VALUES ('e', recipient_key('bob@example.com'), 'bounced', "
        """now() + interval '1 s', $1, '{"bounce": {"reason": "mailbox-unknown"}}') RETURNING 1""",
        UUID(id_),
    )
    status, body, _ = await shop.get(f"/v1/emails/{id_}")
    assert status == 200
    assert (body["from"], body["to"], body["cc"]) == ("Shop <shop@example.com>", "ann@example.com", ["bob@example.com"])  # fmt: skip
    assert (body["state"], body["subject"], body["tags"]) == ("pending", "Your order 1042", {"kind": "order"})  # fmt: skip
    assert [event["event"] for event in body["events"]] == ["committed", "attempt-accepted", "bounced"]  # fmt: skip
    assert body["events"][2]["recipient"] == "bob@example.com"
    assert body["events"][2]["reason"] == "mailbox-unknown"


async def test_messages_are_listed_page_by_page_and_filtered(shop: Client) -> None:
    made = [await posted(shop, to=f"n{n}@example.com", lane="bulk" if n % 2 else "transactional") for n in range(7)]  # fmt: skip
    seen: list[str] = []
    path = "/v1/emails?limit=3"
    while path:
        status, page, _ = await shop.get(path)
        assert status == 200
        seen += [email["id"] for email in page["data"]]
        cursor = page["next_cursor"]
        path = f"/v1/emails?limit=3&cursor={cursor}" if cursor else ""
    assert seen == made[::-1]
    _, bulk, _ = await shop.get("/v1/emails?lane=bulk")
    assert [email["id"] for email in bulk["data"]] == made[5::-2]
    _, one, _ = await shop.get("/v1/emails?to=N3@example.com&state=pending")
    assert [email["id"] for email in one["data"]] == [made[3]]


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "state=lost", "cursor=1", "unknown=1", "lane=bulk&lane=bulk", "to=x", "lane=%00"])  # fmt: skip
async def test_a_query_that_cannot_be_meant_is_refused(shop: Client, query: str) -> None:
    status, problem, _ = await shop.get(f"/v1/emails?{query}")
    assert status in (400, 422), problem


async def test_a_page_ends_where_enough_was_looked_at(
    shop: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.adapters.accept_store.LOOKED_AT", 4)
    first = await posted(shop, lane="bulk")
    for _ in range(5):
        await posted(shop)
    _, page, _ = await shop.get("/v1/emails?lane=bulk")
    assert page["data"] == []
    _, page, _ = await shop.get(f"/v1/emails?lane=bulk&cursor={page['next_cursor']}")
    assert [email["id"] for email in page["data"]] == [first]


async def test_a_pending_message_is_cancelled_and_an_ended_one_is_not(
    shop: Client, database: Database
) -> None:
    id_ = await posted(shop, send_after=LATER)
    status, body, _ = await shop.post(f"/v1/emails/{id_}/cancel", {"reason": "order returned"})
    assert (status, body) == (200, {"id": id_, "state": "cancelled"})
    [row] = await rows(database, "SELECT state, reason FROM email_outbox")
    assert row == {"state": "cancelled", "reason": "order returned"}
    [entry] = await rows(database, "SELECT by_whom FROM audit_log WHERE action = 'email.cancelled'")
    assert entry["by_whom"].startswith("API key ")
    assert (await shop.ask("POST", f"/v1/emails/{id_}/cancel"))[0] == 200
    sent = await posted(shop)
    await rows(database, "UPDATE email_outbox SET state = 'submitted', changed = now() WHERE id = $1 RETURNING 1", UUID(sent))  # fmt: skip
    status, problem, _ = await shop.ask("POST", f"/v1/emails/{sent}/cancel")
    assert (status, problem["state"]) == (409, "submitted")


async def test_a_message_in_other_hands_is_not_waited_for(shop: Client, database: Database) -> None:
    id_ = await posted(shop, send_after=LATER)
    async with database.transaction() as connection:
        await connection.execute("SELECT FROM email_outbox FOR UPDATE")
        for path, body in (("cancel", {}), ("reschedule", {"send_after": LATER})):
            status, _, headers = await shop.post(f"/v1/emails/{id_}/{path}", body)
            assert (status, headers["Retry-After"]) == (409, "1")


async def test_a_scheduled_message_gets_another_time_and_its_wake_up_with_it(
    shop: Client, database: Database
) -> None:
    id_ = await posted(shop, scheduled_at=LATER, expires_at="2100-01-01T00:00:00Z")
    earlier = "2098-01-01T00:00:00Z"
    status, body, _ = await shop.post(f"/v1/emails/{id_}/reschedule", {"send_after": earlier})
    assert (status, body) == (200, {"id": id_, "send_after": earlier})
    [row] = await rows(
        database,
        "SELECT o.send_after = d.due AS same, o.send_after FROM email_outbox o JOIN email_due d USING (id)",
    )
    assert row["same"]
    assert row["send_after"].year == 2098
    status, problem, _ = await shop.post(
        f"/v1/emails/{id_}/reschedule", {"send_after": "2101-01-01T00:00:00Z"}
    )
    assert (status, problem["errors"][0]["pointer"]) == (422, "/send_after")


async def test_the_scheduler_wakes_a_message_at_its_new_time(
    shop: Client, database: Database
) -> None:
    schedule = ScheduleStore(database)
    id_ = await posted(shop, send_after=LATER)
    assert (await schedule.take_due(10)).pointers == 0
    now = datetime.now(UTC).isoformat()
    assert (await shop.post(f"/v1/emails/{id_}/reschedule", {"send_after": now}))[0] == 200
    assert (await schedule.take_due(10)).pointers == 1
    [pointer] = await rows(database, "SELECT payload ->> 'id' AS id FROM outbox_feed WHERE type = 'pointer'")  # fmt: skip
    assert pointer["id"] == id_
    # Its time has come: it is on its way.
    assert (await shop.post(f"/v1/emails/{id_}/reschedule", {"send_after": LATER}))[0] == 409


async def test_what_is_due_or_was_never_scheduled_gets_no_other_time(
    shop: Client, database: Database
) -> None:
    id_ = await posted(shop)
    status, _, _ = await shop.post(f"/v1/emails/{id_}/reschedule", {"send_after": LATER})
    assert status == 409
    async with database.connection() as connection:
        with pytest.raises(asyncpg.CheckViolationError, match="pending and scheduled"):
            await connection.execute("UPDATE email_outbox SET send_after = now() + interval '1 d'")
    await posted(shop, send_after=LATER)
    async with database.connection() as connection:
        with pytest.raises(asyncpg.CheckViolationError, match="pending and scheduled"):
            await connection.execute(
                "UPDATE email_outbox SET send_after = NULL WHERE send_after IS NOT NULL"
            )


async def test_a_message_that_the_scheduler_has_taken_gets_no_other_time(
    shop: Client, database: Database
) -> None:
    id_ = await posted(shop, send_after=LATER)
    async with database.transaction() as connection:
        await connection.execute("SELECT FROM email_due FOR UPDATE")
        assert (await shop.post(f"/v1/emails/{id_}/reschedule", {"send_after": LATER}))[0] == 409
        async with database.connection() as other:
            with pytest.raises(asyncpg.LockNotAvailableError):
                await other.execute("UPDATE email_outbox SET send_after = now() + interval '1 day'")


async def test_a_tenant_adds_lists_and_lifts_its_own_suppressions(
    shop: Client, stranger: Client, database: Database
) -> None:
    body = {"address": "Ann@example.com", "why": "asked by phone"}
    assert (await shop.post("/v1/suppressions", body))[0] == 201
    assert (await shop.post("/v1/suppressions", body))[1]["outcome"] == "was there"
    await rows(
        database,
        "INSERT INTO suppression (recipient_key, reason) VALUES (recipient_key('ann@example.com'), 'hard-bounce') RETURNING 1",
    )
    _, page, _ = await shop.get("/v1/suppressions")
    assert [s["reason"] for s in page["data"]] == ["manual"]
    _, page, _ = await shop.get("/v1/suppressions?address=ann@example.com")
    assert {(s["reason"], s["of_all_tenants"]) for s in page["data"]} == {("manual", False), ("hard-bounce", True)}  # fmt: skip
    assert (await stranger.get("/v1/suppressions"))[1]["data"] == []
    lift = {"address": "ann@example.com", "why": "asked again"}
    assert (await stranger.post("/v1/suppressions/lift", lift))[1]["lifted"] == []
    _, lifted, _ = await shop.post("/v1/suppressions/lift", lift)
    assert [s["reason"] for s in lifted["lifted"]] == ["manual"]
    assert [s["reason"] for s in lifted["left"]] == ["hard-bounce"]
    over = body | {"expires_at": "2020-01-01T00:00:00Z"}
    assert (await shop.post("/v1/suppressions", over))[0] == 422


BODIES: dict[str, Any] = {
    "post_email": EMAIL,
    "post_batch": [EMAIL],
    "reschedule_email": {"send_after": "2098-01-01T00:00:00Z"},
    "add_suppression": {"address": "ann@example.com", "why": "x"},
    "lift_suppression": {"address": "ann@example.com", "why": "x"},
}


async def test_no_route_shows_or_changes_what_is_another_tenants(
    api: Api, shop: Client, stranger: Client, database: Database
) -> None:
    """Every route there is, asked by another tenant: nothing of the first one moves or is told, and a foreign id is answered as an
    unknown one."""
    id_ = await posted(shop, send_after=LATER, dedup_key="order-1042")
    await shop.post("/v1/suppressions", {"address": "eve@example.com", "why": "secret"})
    watched = (
        "SELECT o::text FROM email_outbox o WHERE tenant = 'shop' UNION ALL SELECT s::text FROM suppression s WHERE tenant = 'shop' "
        "UNION ALL SELECT d::text FROM email_due d WHERE tenant = 'shop' ORDER BY 1"
    )
    before = await rows(database, watched)
    unknown = str(UUID(int=UUID(id_).int ^ 1))
    found: list[Route] = api.routes
    assert len(found) >= 9
    for route in found:
        answers = []
        for asked_id in (id_, unknown):
            path = route.path.replace("{id}", asked_id)
            request = {"json": BODIES[route.name]} if route.name in BODIES else {}
            status, body, _ = await stranger.ask(route.method, path, **request)
            answers.append((status, str(body).replace(asked_id, "")))
        told = answers[0][1]
        assert not any(word in told for word in (id_, "eve@", "secret")), route.name
        if "{id}" in route.path:
            assert answers[0] == answers[1], route.name
            assert answers[0][0] == 404, route.name
    assert await rows(database, watched) == before
    # The same dedup key and Idempotency-Key of another tenant are others.
    keyed = {"Idempotency-Key": "one"}
    mine = await shop.post("/v1/emails", EMAIL, headers=keyed)
    theirs = await stranger.post("/v1/emails", EMAIL | {"dedup_key": "order-1042"}, headers=keyed)
    assert theirs[0] == 202
    assert theirs[1]["id"] not in (id_, mine[1]["id"])
    assert "duplicate" not in theirs[1]


async def test_a_role_with_what_the_doctor_asks_for_may_do_all_of_it(
    database_dsn: str, database: Database
) -> None:
    role = f"api_{database_dsn.rpartition('/')[2]}"
    async with database.connection() as connection:
        await connection.execute(
            f"CREATE ROLE {role} LOGIN; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {role};"
            f"GRANT USAGE ON SEQUENCE outbox_feed_seq TO {role}"
        )
        for table, privileges in STAGES["api"].items():
            granted = privileges.replace(" ", ", ")
            await connection.execute(f"GRANT {granted} ON {table} TO {role}")
    key = await make_key(database)
    dsn = database_dsn.replace("mailstreams@", f"{role}@")
    try:
        async with api_on(dsn) as stage, client(stage.address, key) as shop:
            id_ = await posted(shop, send_after=LATER, dedup_key="d")
            for route in stage.routes:
                body = {"json": BODIES[route.name]} if route.name in BODIES else {}
                path = route.path.replace("{id}", id_)
                status, told, _ = await shop.ask(route.method, path, **body)
                # What was cancelled before is not rescheduled.
                assert status < 300 or (status, told.get("state")) == (409, "cancelled"), (
                    route.name,
                    told,
                )
    finally:
        async with database.connection() as connection:
            await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
