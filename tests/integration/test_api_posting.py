"""POST /v1/emails and its batch on a real database: what is answered is what was committed."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from streams.adapters.api_admin import ApiAdmin
from streams.adapters.postgres import Database
from streams.api import Api
from streams.domain.by_hand import Decision
from tests.api_rig import EMAIL, Client, Json, api_on, client, make_key, rows

pytestmark = pytest.mark.servers
BY = Decision(by_whom="test", why="test")
# Of 50 twins each; API_TWINS=1000 looks longer.
ROUNDS = int(os.environ.get("API_TWINS", "5"))


@pytest.fixture
async def api(database_dsn: str) -> AsyncIterator[Api]:
    async with api_on(database_dsn) as stage:
        yield stage


@pytest.fixture
async def shop(api: Api, database: Database) -> AsyncIterator[Client]:
    async with client(api.address, await make_key(database)) as asked:
        yield asked


def faults(problem: Json) -> set[str]:
    return {fault["pointer"] for fault in problem["errors"]}


async def test_an_email_is_accepted_once_its_row_is_committed(
    shop: Client, database: Database
) -> None:
    status, body, headers = await shop.post(
        "/v1/emails",
        EMAIL
        | {
            "to": ["Ann@Exämple.com"],
            "cc": "bob@example.com",
            "tags": [{"name": "kind", "value": "order"}],
            "headers": {"X-Order": "1042"},
            "lane": "bulk",
            "dedup_key": "order-1042",
        },
    )
    assert status == 202
    assert headers["Location"] == f"/v1/emails/{body['id']}"
    [row] = await rows(database, "SELECT * FROM email_outbox")
    assert row["id"] == UUID(body["id"])
    assert (row["tenant"], row["lane"], row["state"]) == ("shop", "bulk", "pending")
    assert (row["sender"], row["sender_name"]) == ("shop@example.com", "Shop")
    assert (row["recipient"], row["cc"]) == ("Ann@xn--exmple-cua.com", ["bob@example.com"])
    [pointer] = await rows(database, "SELECT * FROM outbox_feed WHERE type = 'pointer'")
    assert pointer["aggregateid"] == row["recipient_key"]


async def test_all_faults_are_told_at_once_with_their_places(
    shop: Client, database: Database
) -> None:
    status, problem, headers = await shop.post(
        "/v1/emails",
        {
            "from": "shop",
            "to": ["ann@example.com", "bob@example.com"],
            "subject": "two\nlines",
            "headers": {"To": "x"},
            "tags": {"a b": "c"},
            "lane": "fast",
            "send_after": "tomorrow",
            "attachments": [{"content": "aGVsbG8="}],
            "react": "<Mail/>",
        },
    )
    assert status == 422
    assert headers["Content-Type"] == "application/problem+json"
    assert problem["type"] == "urn:mailstreams:problem:invalid"
    assert {
        "/from",
        "/to",
        "/subject",
        "/headers",
        "/tags",
        "/lane",
        "/send_after",
        "/react",
        "/text",
    } < faults(problem)
    assert "/attachments/0/content" in faults(problem)
    assert await rows(database, "SELECT id FROM email_outbox") == []


BAD: list[tuple[str, bytes, str, int]] = [
    ("a form", b"from=x", "application/x-www-form-urlencoded", 415),
    ("another charset", b"{}", "application/json; charset=utf-16", 415),
    ("nothing", b"", "application/json", 400),
    ("broken JSON", b'{"from": ', "application/json", 400),
    ("a lone surrogate", b'{"from": "\\ud800"}', "application/json", 400),
    ("no UTF-8", b'{"from": "\xff"}', "application/json", 400),
    ("U+0000", b'{"text": "a\\u0000b"}', "application/json", 400),
    ("U+0000 in a name", b'{"variables": {"\\u0000": 1}}', "application/json", 400),
    ("a huge number", b'{"variables": {"n": 1e999}}', "application/json", 400),
    ("a list", b"[]", "application/json", 422),
    ("a text", b'"x"', "application/json", 422),
    ("deep nesting", b'{"variables": ' + b"[" * 100 + b"]" * 100 + b"}", "application/json", 400),
    ("deepest nesting", b"[" * 60_000, "application/json", 400),
    ("too large", b'{"text": "' + b"x" * 70_000 + b'"}', "application/json", 413),
]  # fmt: skip


async def test_bad_input_of_any_kind_gets_one_clear_answer(
    database_dsn: str, database: Database
) -> None:
    key = await make_key(database)
    async with (
        api_on(database_dsn, largest_body=65_536) as stage,
        client(stage.address, key) as shop,
    ):
        for what, body, kind, expected in BAD:
            for path in ("/v1/emails", "/v1/emails/batch"):
                status, problem, _ = await shop.ask(
                    "POST", path, data=body, headers={"Content-Type": kind}
                )
                assert status == expected, (what, problem)
                assert problem["detail"]
        packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        assert (await shop.ask("POST", "/v1/emails", data=b"{}", headers=packed))[0] == 415
        assert (await shop.ask("DELETE", "/v1/emails"))[0] == 405
        assert (await shop.ask("GET", "/v1/nothing"))[0] == 404
        assert (await shop.post("/v1/emails", EMAIL))[0] == 202


async def test_what_postgresql_alone_refuses_is_a_fault_of_that_request_only(
    shop: Client, database: Database
) -> None:
    """Variables that are small as JSON, and too large as PostgreSQL writes their numbers."""
    await insert_template(database)
    bad = {"from": "shop@example.com", "to": "ann@example.com", "template": "hello"}
    bad["variables"] = {"n": [1e300] * 1000}  # type: ignore[assignment]
    answers = await asyncio.gather(
        *(shop.post("/v1/emails", EMAIL) for _ in range(20)),
        shop.post("/v1/emails", bad),
        *(shop.post("/v1/emails", EMAIL) for _ in range(20)),
    )
    assert [status for status, _, _ in answers] == [202] * 20 + [422] + [202] * 20
    assert "variables are an object of at most" in answers[20][1]["errors"][0]["detail"]
    assert len(await rows(database, "SELECT id FROM email_outbox")) == 40


async def insert_template(database: Database) -> None:
    await rows(
        database,
        "INSERT INTO template (tenant, name, version, subject, text) VALUES ('shop', 'hello', 1, 'Hi', 'Hi')",
    )


async def test_a_template_that_the_tenant_lacks_is_refused(
    shop: Client, database: Database
) -> None:
    await insert_template(database)
    by_template = {"from": "shop@example.com", "to": "ann@example.com", "template": "hello"}
    assert (await shop.post("/v1/emails", by_template))[0] == 202
    status, problem, _ = await shop.post("/v1/emails", by_template | {"template_version": 2})
    assert (status, faults(problem)) == (422, {"/template"})


async def test_the_same_key_and_body_get_the_first_answer_and_another_body_is_refused(
    shop: Client, database: Database
) -> None:
    keyed = {"Idempotency-Key": "order-1042"}
    first = await shop.post("/v1/emails", EMAIL, headers=keyed)
    again = await shop.post("/v1/emails", dict(reversed(EMAIL.items())), headers=keyed)
    assert (again[0], again[1]) == (202, first[1])
    assert again[2]["Idempotent-Replayed"] == "true"
    other = await shop.post("/v1/emails", EMAIL | {"text": "other"}, headers=keyed)
    assert (other[0], other[1]["type"]) == (409, "urn:mailstreams:problem:idempotency-conflict")
    assert len(await rows(database, "SELECT id FROM email_outbox")) == 1


async def test_a_body_whose_time_has_passed_still_gets_its_first_answer(
    shop: Client, database: Database
) -> None:
    keyed = {"Idempotency-Key": "soon"}
    first = await shop.post("/v1/emails", EMAIL, headers=keyed)
    # As if the body had had an expires_at that is over by now: what counts is the digest.
    over = EMAIL | {"expires_at": "2020-01-01T00:00:00Z"}
    assert (await shop.post("/v1/emails", over, headers=keyed))[0] == 409
    from streams.domain.api_bodies import digest

    await rows(database, "UPDATE idempotency_key SET digest = $1", digest(over, route="emails"))
    again = await shop.post("/v1/emails", over, headers=keyed)
    assert (again[0], again[1]) == (202, first[1])
    assert (await shop.post("/v1/emails", over))[0] == 422


@pytest.mark.parametrize("limited", [False, True], ids=["no limits", "with limits"])
async def test_twins_under_one_key_make_one_row(
    database_dsn: str, database: Database, limited: bool
) -> None:
    """Over two processes' worth of stages."""
    key = await make_key(database)
    if limited:
        await set_tenant(database, per_second=1e6, burst=10_000)
    async with (
        api_on(database_dsn) as one,
        api_on(database_dsn) as two,
        client(one.address, key) as first,
        client(two.address, key) as second,
    ):
        for n in range(ROUNDS):
            keyed = {"Idempotency-Key": f"twins-{n}"}
            asked = [
                each.post("/v1/emails", EMAIL, headers=keyed)
                for _ in range(25)
                for each in (first, second)
            ]
            answers = await asyncio.gather(*asked)
            assert {status for status, _, _ in answers} == {202}
            assert len({body["id"] for _, body, _ in answers}) == 1
    assert len(await rows(database, "SELECT id FROM email_outbox")) == ROUNDS


async def test_a_dedup_key_that_was_used_gives_the_first_id(
    shop: Client, database: Database
) -> None:
    body = EMAIL | {"dedup_key": "order-1042"}
    first = await shop.post("/v1/emails", body)
    again = await shop.post("/v1/emails", body | {"text": "other"})
    assert (again[0], again[1]) == (202, {"id": first[1]["id"], "duplicate": True})
    assert len(await rows(database, "SELECT id FROM email_outbox")) == 1


async def test_a_suppressed_recipient_is_refused_with_reason_and_date(
    shop: Client, database: Database
) -> None:
    await rows(
        database,
        "INSERT INTO suppression (recipient_key, reason) VALUES (recipient_key('ann@example.com'), 'hard-bounce')",
    )
    status, problem, _ = await shop.post(
        "/v1/emails", EMAIL, headers={"Idempotency-Key": "refused"}
    )
    assert (status, problem["type"]) == (422, "urn:mailstreams:problem:suppressed")
    assert problem["reason"] == "hard-bounce"
    assert problem["since"].startswith("20")
    await rows(database, "DELETE FROM suppression RETURNING 1")
    # What was refused holds no key.
    again = await shop.post("/v1/emails", EMAIL, headers={"Idempotency-Key": "refused"})
    assert again[0] == 202


async def test_a_batch_has_a_result_for_each_email(shop: Client, database: Database) -> None:
    await rows(
        database,
        "INSERT INTO suppression (recipient_key, tenant, reason) VALUES (recipient_key('no@example.com'), 'shop', 'complaint')",
    )
    batch = [EMAIL, EMAIL | {"to": 5}, EMAIL | {"to": "no@example.com"}, EMAIL | {"subject": "2"}]
    keyed = {"Idempotency-Key": "batch"}
    status, body, _ = await shop.post("/v1/emails/batch", batch, headers=keyed)
    assert status == 202
    assert [set(result) for result in body["data"]] == [{"id"}, {"error"}, {"error"}, {"id"}]
    assert body["data"][1]["error"]["errors"][0]["pointer"] == "/1/to"
    assert body["data"][2]["error"]["reason"] == "complaint"
    made = await rows(database, "SELECT id::text FROM email_outbox ORDER BY subject DESC")
    assert {row["id"] for row in made} == {r["id"] for r in body["data"] if "id" in r}
    again = await shop.post("/v1/emails/batch", batch, headers=keyed)
    assert (again[0], again[1]) == (202, body)


async def test_a_batch_without_one_good_email_is_refused_with_every_result(shop: Client) -> None:
    status, problem, _ = await shop.post("/v1/emails/batch", [{}, EMAIL | {"to": "x"}])
    assert status == 422
    assert len(problem["data"]) == 2
    for wrong in ([], EMAIL, [EMAIL] * 501):
        assert (await shop.post("/v1/emails/batch", wrong))[0] == 422


async def set_tenant(database: Database, **limits: Any) -> None:
    given = {"senders": None, "per_second": None, "burst": None, "quota": None}
    await ApiAdmin(database).set_tenant("shop", BY, **(given | {"quota_period": None} | limits))


async def test_a_tenant_that_posts_too_fast_is_told_when_to_come_again(
    database_dsn: str, database: Database
) -> None:
    """The rate holds over all processes together."""
    key = await make_key(database)
    await set_tenant(database, per_second=0.5, burst=10)
    async with (
        api_on(database_dsn) as one,
        api_on(database_dsn) as two,
        client(one.address, key) as first,
        client(two.address, key) as second,
    ):
        asked = [each.post("/v1/emails", EMAIL) for _ in range(15) for each in (first, second)]
        answers = await asyncio.gather(*asked)
    accepted = [a for a in answers if a[0] == 202]
    refused = [a for a in answers if a[0] == 429]
    assert 10 <= len(accepted) <= 11  # a slow run earns one more
    assert len(accepted) + len(refused) == 30
    assert 1 <= int(refused[0][2]["Retry-After"]) <= 2
    assert refused[0][2]["RateLimit-Policy"] == '"accept";q=10;w=20'
    assert '"accept";r=' in accepted[0][2]["RateLimit"]
    assert len(await rows(database, "SELECT id FROM email_outbox")) == len(accepted)


async def test_a_quota_counts_what_was_accepted(shop: Client, database: Database) -> None:
    await set_tenant(database, quota=3, quota_period="day")
    assert (await shop.post("/v1/emails/batch", [EMAIL] * 2))[0] == 202
    status, problem, headers = await shop.post("/v1/emails/batch", [EMAIL] * 2)
    assert (status, problem["type"]) == (429, "urn:mailstreams:problem:quota-used-up")
    assert 1 <= int(headers["Retry-After"]) <= 86_400
    assert (await shop.post("/v1/emails", EMAIL))[0] == 202
    assert (await shop.post("/v1/emails", EMAIL))[0] == 429
    await rows(database, "UPDATE tenant SET quota_since = '2020-01-01Z' RETURNING 1")
    assert (await shop.post("/v1/emails", EMAIL))[0] == 202


async def test_a_tenant_writes_as_its_own_senders_only(
    database_dsn: str, database: Database
) -> None:
    key = await make_key(database)
    await set_tenant(database, senders=["example.com", "ann@other.example"])
    async with api_on(database_dsn) as stage, client(stage.address, key) as shop:
        for sender in ("x@EXAMPLE.com", "Ann <Ann@other.example>"):
            assert (await shop.post("/v1/emails", EMAIL | {"from": sender}))[0] == 202
        for sender in ("x@other.example", "x@sub.example.com"):
            status, problem, _ = await shop.post("/v1/emails", EMAIL | {"from": sender})
            assert (status, faults(problem)) == (422, {"/from"})


async def test_mail_of_a_test_key_is_told_and_never_sent(
    database_dsn: str, database: Database
) -> None:
    live, test = await make_key(database), await make_key(database, test=True)
    body = EMAIL | {"dedup_key": "order-1042"}
    keyed = {"Idempotency-Key": "same"}
    async with api_on(database_dsn) as stage:
        async with client(stage.address, test) as asked:
            status, answer, _ = await asked.post("/v1/emails", body, headers=keyed)
            later = body | {"dedup_key": "later", "send_after": "2099-01-01T00:00:00Z"}
            assert (await asked.post("/v1/emails", later))[0] == 202
            cancelled = await asked.post(f"/v1/emails/{answer['id']}/cancel", {})
        async with client(stage.address, live) as asked:
            real = await asked.post("/v1/emails", body, headers=keyed)
    assert (status, answer["test"], cancelled[0]) == (202, True, 403)
    assert real[1]["id"] != answer["id"]
    states = await rows(
        database, "SELECT id, state, reason, dedup_key FROM email_outbox ORDER BY id"
    )
    assert [row["state"] for row in states] == ["cancelled", "cancelled", "pending"]
    assert states[0]["reason"] == "accepted with a test key, which never sends"
    assert await rows(database, "SELECT id FROM email_due") == []
