"""Who may ask the accept API: keys as they are kept, rotated, revoked and limited."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from streams.accepting import keys as keys_module
from streams.adapters.postgres import Database
from streams.api import Api
from streams.domain.api_keys import NewKey, read_key
from tests.api_rig import EMAIL, api_on, client, make_key, rows
from tests.command_line import mailstreams

pytestmark = pytest.mark.servers


@pytest.fixture
async def api(database_dsn: str) -> AsyncIterator[Api]:
    async with api_on(database_dsn) as stage:
        yield stage


async def status(api: Api, key: NewKey | None) -> int:
    async with client(api.address, key) as asked:
        return (await asked.post("/v1/emails", EMAIL))[0]


async def test_only_the_hash_of_a_key_is_kept(api: Api, database: Database) -> None:
    key = await make_key(database)
    assert await status(api, key) == 202
    kept = str(await rows(database, "SELECT * FROM api_key"))
    secret = key.text.rpartition("_")[2]
    assert secret not in kept
    assert key.text not in kept


async def test_whoever_shows_no_good_key_is_refused_in_the_same_words(
    api: Api, database: Database
) -> None:
    good = await make_key(database)
    over = await make_key(database, expires=datetime.now(UTC) - timedelta(seconds=1))
    wrong = good.text[:-1] + ("A" if good.text[-1] != "A" else "B")
    said = set()
    async with client(api.address, None) as asked:
        for header in (None, "", "Basic eDp5", "Bearer", "Bearer x", f"Bearer {wrong}", f"Bearer {over.text}"):  # fmt: skip
            headers = {} if header is None else {"Authorization": header}
            code, problem, answered = await asked.post("/v1/emails", EMAIL, headers=headers)
            assert code == 401, header
            assert answered["WWW-Authenticate"].startswith("Bearer")
            said.add(json.dumps(problem))
    assert len(said) == 1
    assert await status(api, good) == 202
    assert len(await rows(database, "SELECT id FROM email_outbox")) == 1


async def test_a_key_does_what_its_scopes_say(api: Api, database: Database) -> None:
    reader = await make_key(database, scopes=["emails:read"])
    async with client(api.address, reader) as asked:
        assert (await asked.get("/v1/emails"))[0] == 200
        code, problem, _ = await asked.post("/v1/emails", EMAIL)
        assert (code, "emails:send" in problem["detail"]) == (403, True)


async def test_keys_are_made_listed_and_revoked_by_command(
    api: Api, database: Database, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two keys of a tenant are in use while one takes over; a revoked one is refused soon."""
    given = {"MAILSTREAMS_POSTGRES_DSN": database_dsn}
    by = ("--by", "Ann", "--reason", "rotation")
    made = [
        json.loads(
            mailstreams(
                *("keys", "create", "--tenant", "shop", "--label", label, "--by", "Ann", "--json"),
                environment=given,
            ).stdout
        )
        for label in ("old", "new")
    ]
    old, new = (NewKey(one["id"], one["key"], b"") for one in made)
    presented = read_key(old.text)
    assert presented is not None
    assert presented.id == old.id
    assert (await status(api, old), await status(api, new)) == (202, 202)
    assert mailstreams("keys", "revoke", old.id, *by, environment=given).returncode == 0
    monkeypatch.setattr(keys_module, "REMEMBERED_S", 0.0)
    api._endpoint._keys._known.clear()
    assert (await status(api, old), await status(api, new)) == (401, 202)
    listed = mailstreams("keys", "list", environment=given).stdout
    assert "revoked" in listed.splitlines()[0]
    assert new.text not in listed
    limits = mailstreams(
        "tenants", "set", "shop", "--rate", "0.001", "--burst", "1", *by, environment=given
    )
    assert "0.001 a second, 1 at once" in limits.stdout
    assert (await status(api, new), await status(api, new)) == (202, 429)
    assert mailstreams("keys", "revoke", "unknown", *by, environment=given).returncode == 2
    logged = await rows(database, "SELECT by_whom, action, why FROM audit_log ORDER BY id")
    assert {(row["by_whom"], row["action"]) for row in logged} == {("Ann", "api-key.created"), ("Ann", "api-key.revoked"), ("Ann", "tenant.set")}  # fmt: skip
    assert {row["why"] for row in logged} == {"old", "new", "rotation"}
