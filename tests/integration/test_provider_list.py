"""SES's account-level list against the simulator: imported once, whatever happens on the way; cleared of what was lifted."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from streams.adapters import ses_suppression_list
from streams.adapters.postgres import Database
from streams.adapters.provider_list_store import ProviderListStore
from streams.adapters.ses_suppression_list import SesSuppressionList
from streams.domain.addresses import recipient_key
from streams.domain.errors import Unavailable
from streams.domain.provider_list import ListPage, Outcome
from streams.provider_list import ProviderList
from streams.runtime import metrics
from streams.runtime.http import HttpServer
from streams.simulator.server import Simulator
from streams.simulator.suppression_list import Reason, Suppressed
from tests.conftest import SALT
from tests.integration.outbox_rows import execute, fetch
from tests.simulator_rig import client, quick_settings

pytestmark = pytest.mark.servers

REGION = "eu-central-1"
PACE = timedelta(milliseconds=1)
DONE = "SELECT finished IS NOT NULL FROM provider_list"


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def simulator(credentials: None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Simulator]:
    async with Simulator(quick_settings()) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SESV2", running.url)
        yield running


@pytest.fixture
async def ses(simulator: Simulator) -> AsyncIterator[Any]:
    made = client("sesv2", simulator.url)
    yield made
    made.close()


@pytest.fixture
async def duty(database: Database, credentials: None) -> AsyncIterator[ProviderList]:
    made = duty_on(database)
    await made.start()
    yield made
    await made._provider.stop()


def duty_on(database: Database, pace: timedelta = PACE) -> ProviderList:
    """One replica's duty. The test's own pool is its store's."""
    return ProviderList(
        provider=SesSuppressionList(), store=ProviderListStore(database), salt=SALT, pace=pace
    )


async def work(
    duty: ProviderList, done: Callable[[], Awaitable[Any]], *, within_s: float = 60.0
) -> None:
    """Steps until it is done, without the pauses that are only for SES's sake."""
    deadline = time.monotonic() + within_s
    while not await done():
        assert time.monotonic() < deadline, "it is not done in time"
        await duty.work_off()


def asks(database: Database, sql: str, *args: Any) -> Callable[[], Awaitable[Any]]:
    return lambda: execute(database, sql, *args)


async def put(ses: Any, *addresses: str, reason: str = "BOUNCE") -> None:
    for address in addresses:
        await asyncio.to_thread(ses.put_suppressed_destination, EmailAddress=address, Reason=reason)


async def listed(ses: Any) -> list[str]:
    page = await asyncio.to_thread(ses.list_suppressed_destinations)
    return [entry["EmailAddress"] for entry in page["SuppressedDestinationSummaries"]]


async def lift(database: Database, key: str, address: str | None = None) -> None:
    await execute(
        database,
        "SELECT count(*) FROM lift_suppressions(ARRAY[$1], ARRAY['*'], ARRAY['*'], ARRAY['*'], 'ann', 'she asked', ARRAY[$2])",
        key,
        address,
    )


async def suppressed(database: Database) -> dict[str, dict[str, Any]]:
    rows = await fetch(database, "SELECT * FROM suppression")
    return {row["recipient_key"]: row for row in rows}


async def test_the_list_is_imported_page_by_page_as_suppressions_of_every_tenant(
    database: Database, duty: ProviderList, ses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ses_suppression_list, "PAGE", 2)
    addresses = [f"User{n}@Example.com" for n in range(5)]
    await put(ses, *addresses)
    await work(duty, asks(database, DONE))
    rows = await suppressed(database)
    assert rows.keys() == {recipient_key(a, SALT) for a in addresses}
    times = {e["EmailAddress"].lower(): e["LastUpdateTime"] for e in await entries(ses)}
    for address in addresses:
        row = rows[recipient_key(address, SALT)]
        assert (row["tenant"], row["lane"], row["reason"]) == ("*", "*", "provider-suppression")
        assert row["evidence_at"] == times[address.lower()]
        at = row["evidence_at"].isoformat(timespec="milliseconds")
        assert row["evidence_id"] == f"ses-list:{row['recipient_key']}:{at}"
    (state,) = await fetch(database, "SELECT * FROM provider_list")
    assert (state["pages"], state["entries"], state["suppressed"], state["unusable"]) == (
        3,
        5,
        5,
        0,
    )
    assert state["next_token"] is None
    records = await fetch(database, "SELECT DISTINCT xid::text FROM outbox_feed")
    assert len(records) == 3  # one statement a page
    dump = str(await fetch(database, "SELECT * FROM suppression, provider_list, outbox_feed"))
    assert "example.com" not in dump.lower()


async def entries(ses: Any) -> list[Any]:
    page = await asyncio.to_thread(ses.list_suppressed_destinations)
    return list(page["SuppressedDestinationSummaries"])


async def test_it_is_imported_once_and_again_only_when_asked(
    database: Database, duty: ProviderList, ses: Any
) -> None:
    await put(ses, "ann@example.com")
    await work(duty, asks(database, DONE))
    await put(ses, "bob@example.com")
    restarted = duty_on(database)
    await restarted.start()
    for _ in range(5):
        await restarted.work_off()
    assert len(await suppressed(database)) == 1
    await database.rows("request_provider_import", REGION)
    await work(restarted, asks(database, DONE))
    assert len(await suppressed(database)) == 2
    (state,) = await fetch(database, "SELECT entries, suppressed FROM provider_list")
    assert state == {"entries": 2, "suppressed": 1}
    await restarted._provider.stop()


async def test_what_was_lifted_after_it_was_listed_is_not_suppressed_again(
    database: Database, duty: ProviderList, ses: Any
) -> None:
    await put(ses, "ann@example.com", "bob@example.com", "cat@example.com")
    ann, bob, cat = (recipient_key(f"{n}@example.com", SALT) for n in ("ann", "bob", "cat"))
    await execute(
        database,
        "INSERT INTO suppression_log (recipient_key, tenant, reason, at, by_whom, why) VALUES "
        "($1, '*', '*', now() + interval '1 s', 'x', 'later'), ($2, '*', '*', now() - interval '1 h', 'x', 'earlier'), ($3, 'shop', '*', now() + interval '1 s', 'x', 'narrower') RETURNING true",
        *(ann, bob, cat),
    )
    await work(duty, asks(database, DONE))
    assert (await suppressed(database)).keys() == {bob, cat}
    (state,) = await fetch(database, "SELECT entries, suppressed, lifted FROM provider_list")
    assert state == {"entries": 3, "suppressed": 2, "lifted": 1}


async def test_evidence_that_suppresses_already_stays(
    database: Database, duty: ProviderList, ses: Any
) -> None:
    key = recipient_key("ann@example.com", SALT)
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, reason, evidence_id, evidence_at) VALUES ($1, 'provider-suppression', 'event-1', now()), ($1, 'complaint', 'event-2', now()) RETURNING true",
        key,
    )
    await put(ses, "ann@example.com")
    await work(duty, asks(database, DONE))
    rows = await fetch(database, "SELECT evidence_id FROM suppression ORDER BY 1")
    assert [row["evidence_id"] for row in rows] == ["event-1", "event-2"]


async def test_an_import_that_was_cut_off_goes_on_where_it_was(
    database: Database, duty: ProviderList, ses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ses_suppression_list, "PAGE", 2)
    await put(ses, *(f"user{n}@example.com" for n in range(6)))
    await work(duty, asks(database, "SELECT pages = 1 FROM provider_list"))
    other = duty_on(database)
    await other.start()
    await work(other, asks(database, DONE))
    (state,) = await fetch(database, "SELECT pages, entries FROM provider_list")
    assert state == {"pages": 3, "entries": 6}
    await other._provider.stop()


async def test_a_token_that_ses_refuses_begins_the_import_anew(
    database: Database, duty: ProviderList, ses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ses_suppression_list, "PAGE", 2)
    await put(ses, *(f"user{n}@example.com" for n in range(5)))
    await work(duty, asks(database, "SELECT pages = 1 FROM provider_list"))
    await execute(database, "UPDATE provider_list SET next_token = '!' RETURNING true")
    await work(duty, asks(database, DONE))
    (state,) = await fetch(database, "SELECT pages, entries FROM provider_list")
    assert state == {"pages": 3, "entries": 5}
    assert len(await suppressed(database)) == 5


async def test_replicas_share_one_pace_and_read_each_page_once(
    database: Database, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ses_suppression_list, "PAGE", 2)
    for n in range(10):
        simulator._running.state.suppression.put(
            Suppressed(address=f"user{n}@example.com", reason=Reason.BOUNCE, updated_at=1.7e9)
        )
    before = calls("list", Outcome.DONE)
    duties = [duty_on(database, pace=timedelta(milliseconds=300)) for _ in range(3)]
    for one in duties:
        await one.start()
    started = time.monotonic()
    await asyncio.gather(*(work(one, asks(database, DONE)) for one in duties))
    assert time.monotonic() - started >= 4 * 0.3
    assert calls("list", Outcome.DONE) == before + 5
    for one in duties:
        await one._provider.stop()
    assert len(await suppressed(database)) == 10


def calls(call: str, outcome: Outcome) -> float:
    counter = metrics.PROVIDER_LIST_CALLS.labels(call=call, outcome=outcome.value)
    return float(counter._value.get())


async def test_a_throttled_import_waits_longer_each_time_and_comes_to_its_end(
    database: Database, credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(time.monotonic())
        if len(asked) <= 3:
            return await refusing(429, "TooManyRequestsException")(request)
        return web.json_response({})

    before = calls("list", Outcome.THROTTLED)
    async with fake_ses(answer, monkeypatch):
        duty = duty_on(database, pace=timedelta(milliseconds=50))
        await duty.start()
        await work(duty, asks(database, DONE))
        await duty._provider.stop()
    assert calls("list", Outcome.THROTTLED) == before + 3
    pauses = [later - sooner for sooner, later in pairwise(asked)]
    assert [pause >= least for pause, least in zip(pauses, (0.1, 0.2, 0.4), strict=True)] == [
        True
    ] * 3


async def test_an_entry_without_a_usable_address_is_counted(
    database: Database, credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(_: web.Request) -> web.Response:
        found = ["ann@example.com", "nobody", "", "@", "ANN@example.com", "o@münchen.example"]
        summaries = [
            {"EmailAddress": a, "Reason": "BOUNCE", "LastUpdateTime": 1_700_000_000.5 + n}
            for n, a in enumerate(found)
        ]
        return web.json_response({"SuppressedDestinationSummaries": summaries})

    async with fake_ses(answer, monkeypatch):
        duty = duty_on(database)
        await duty.start()
        await work(duty, asks(database, DONE))
        await duty._provider.stop()
    rows = await suppressed(database)
    assert rows.keys() == {
        recipient_key(a, SALT) for a in ("ann@example.com", "o@xn--mnchen-3ya.example")
    }
    (state,) = await fetch(database, "SELECT entries, suppressed, unusable FROM provider_list")
    assert state == {"entries": 6, "suppressed": 2, "unusable": 3}
    ann = rows[recipient_key("ann@example.com", SALT)]
    assert ann["evidence_at"] == datetime.fromtimestamp(1_700_000_004.5, UTC)


class fake_ses:  # noqa: N801 used like a function
    """Answers every call of SES with this."""

    def __init__(
        self,
        answer: Callable[[web.Request], Awaitable[web.Response]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", answer)
        self._server = HttpServer(app, host="127.0.0.1", port=0)
        self._monkeypatch = monkeypatch

    async def __aenter__(self) -> None:
        await self._server.start()
        self._monkeypatch.setenv("AWS_ENDPOINT_URL_SESV2", f"http://{self._server.address}")

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()


def refusing(status: int, code: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(
            {"message": "no, ann@example.com"}, status=status, headers={"x-amzn-ErrorType": code}
        )

    return answer


@pytest.mark.parametrize(
    ("status", "code", "listing", "unlisting"),
    [
        (429, "TooManyRequestsException", Outcome.THROTTLED, Outcome.THROTTLED),
        (400, "ThrottlingException", Outcome.THROTTLED, Outcome.THROTTLED),
        (403, "AccessDeniedException", Outcome.DENIED, Outcome.DENIED),
        (403, "ExpiredTokenException", Outcome.DENIED, Outcome.DENIED),
        (400, "BadRequestException", Outcome.REFUSED, Outcome.REFUSED),
        (404, "NotFoundException", Outcome.NOT_LISTED, Outcome.NOT_LISTED),
    ],
)
async def test_what_ses_refuses_has_a_name(
    credentials: None,
    monkeypatch: pytest.MonkeyPatch,
    *,
    status: int,
    code: str,
    listing: Outcome,
    unlisting: Outcome,
) -> None:
    async with fake_ses(refusing(status, code), monkeypatch):
        provider = SesSuppressionList()
        assert await provider.page(None) is listing
        assert await provider.unlist("ann@example.com") is unlisting
        await provider.stop()


@pytest.mark.parametrize("status", [500, 503])
async def test_trouble_of_ses_is_unavailable_and_tells_no_address(
    credentials: None, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    async with fake_ses(refusing(status, "InternalFailure"), monkeypatch):
        provider = SesSuppressionList()
        with pytest.raises(Unavailable, match="fails with InternalFailure") as failed:
            await provider.unlist("ann@example.com")
        assert failed.value.__cause__ is None
        assert "ann" not in str(failed.value)
        await provider.stop()


async def test_a_last_page_is_one_without_a_token(
    credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({})

    async with fake_ses(answer, monkeypatch):
        provider = SesSuppressionList()
        assert await provider.page(None) == ListPage(entries=[], next_token=None)
        await provider.stop()


async def test_a_lift_deletes_the_address_from_the_list_and_is_forgotten(
    database: Database, duty: ProviderList, ses: Any
) -> None:
    await put(ses, "ann@example.com", "o'neil+tag@example.com")
    await work(duty, asks(database, DONE))
    key = recipient_key("o'neil+tag@example.com", SALT)
    await lift(database, key, "O'Neil+tag@example.com")
    await work(duty, asks(database, "SELECT count(*) = 0 FROM provider_unlisting"))
    assert await listed(ses) == ["ann@example.com"]
    assert (await suppressed(database)).keys() == {recipient_key("ann@example.com", SALT)}
    await database.rows("request_provider_import", REGION)
    await work(duty, asks(database, DONE))
    assert len(await suppressed(database)) == 1


async def test_an_address_that_is_not_on_the_list_is_done(
    database: Database, duty: ProviderList, ses: Any
) -> None:
    before = calls("unlist", Outcome.NOT_LISTED)
    await lift(database, recipient_key("bob@example.com", SALT), "bob@example.com")
    await work(duty, asks(database, "SELECT count(*) = 0 FROM provider_unlisting"))
    assert calls("unlist", Outcome.NOT_LISTED) == before + 1


async def test_a_lift_that_comes_while_the_address_is_deleted_is_done_again(
    database: Database, duty: ProviderList, ses: Any
) -> None:
    store = ProviderListStore(database)
    await lift(database, "a" * 32, "ann@example.com")
    claimed = await store.claim_unlisting()
    assert claimed is not None
    await lift(database, "a" * 32, "ann@example.com")
    await store.unlisted(claimed)
    again = await store.claim_unlisting()
    assert again is not None
    await store.unlisted(again)
    assert await store.claim_unlisting() is None
    assert await execute(database, "SELECT count(*) FROM provider_unlisting") == 0


async def test_without_permission_the_address_waits_and_an_alarm_is_raised(
    database: Database,
    credentials: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = calls("unlist", Outcome.DENIED)
    await lift(database, "a" * 32, "ann@example.com")
    async with fake_ses(refusing(403, "AccessDeniedException"), monkeypatch):
        duty = duty_on(database)
        await duty.start()
        with caplog.at_level(logging.INFO):
            await work(duty, asks(database, "SELECT tries = 1 FROM provider_unlisting"))
        await duty.measure()
        await duty._provider.stop()
    assert calls("unlist", Outcome.DENIED) == before + 1
    assert any(getattr(r, "action", "") == "provider_list.refused" for r in caplog.records)
    assert not any("ann@example.com" in str(r.__dict__) for r in caplog.records)
    (row,) = await fetch(
        database, "SELECT address, due > now() + interval '30 s' AS later FROM provider_unlisting"
    )
    assert row == {"address": "ann@example.com", "later": True}
    assert metrics.PROVIDER_UNLISTINGS.labels(kind="waiting")._value.get() == 1


async def test_an_address_that_ses_never_takes_is_left_to_a_person_without_being_kept(
    database: Database, credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lift(database, "a" * 32, "ann@example.com")
    await lift(database, "b" * 32)
    async with fake_ses(refusing(400, "BadRequestException"), monkeypatch):
        duty = duty_on(database)
        await duty.start()
        await work(duty, asks(database, "SELECT count(address) = 0 FROM provider_unlisting"))
        await duty.measure()
        await duty._provider.stop()
    assert metrics.PROVIDER_UNLISTINGS.labels(kind="without-address")._value.get() == 2
    assert metrics.PROVIDER_UNLISTINGS.labels(kind="waiting")._value.get() == 0


async def test_lifts_and_the_import_take_turns(
    database: Database, duty: ProviderList, ses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ses_suppression_list, "PAGE", 1)
    await put(ses, *(f"user{n}@example.com" for n in range(30)))
    for n in range(30):
        await lift(database, f"{n:032x}", f"other{n}@example.com")
    await work(duty, asks(database, "SELECT pages = 10 FROM provider_list"))
    left = await execute(database, "SELECT count(*) FROM provider_unlisting")
    assert 18 <= left <= 21
