"""The accept API while PostgreSQL is slow, locked, away and killed: an answer in time, and never a 202 without its row."""

import asyncio
import json
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import pytest

import devservers
from devservers.tcp_proxy import TcpProxy
from streams.adapters.migrations import migrate
from streams.adapters.postgres import Database
from tests.api_rig import EMAIL, api_on, client, make_key, rows
from tests.conftest import SALT
from tests.events_rig import eventually

pytestmark = pytest.mark.servers
# API_POSTS=10000 looks longer.
POSTS = int(os.environ.get("API_POSTS", "900"))


@pytest.fixture
def proxy(database_dsn: str) -> Iterator[TcpProxy]:
    with TcpProxy(upstream=urlsplit(database_dsn).port or 0) as between:
        yield between


def through(proxy: TcpProxy, dsn: str) -> str:
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}"))


async def test_e15_slow_statements_and_clients_that_hang_up_hold_nothing_for_good(
    database_dsn: str, database: Database, proxy: TcpProxy
) -> None:
    """E15: a pool of 2, every statement takes 5 s, 500 requests at once, half of the clients hang up after 1 s."""
    key = await make_key(database)
    async with (
        api_on(through(proxy, database_dsn), pool_size=2) as stage,
        client(stage.address, key) as shop,
    ):
        assert (await shop.post("/v1/emails", EMAIL))[0] == 202
        proxy.answer_delay_s = 5.0
        began = time.monotonic()
        asked = [asyncio.create_task(shop.post("/v1/emails", EMAIL)) for _ in range(250)]
        asked += [asyncio.create_task(shop.get("/v1/emails")) for _ in range(250)]
        await asyncio.sleep(1.0)
        for task in asked[::2]:
            task.cancel()
        answers = await asyncio.gather(*asked[1::2])
        assert time.monotonic() - began < 15
        statuses = Counter(status for status, _, _ in answers)
        assert statuses.total() == 250
        assert set(statuses) <= {200, 202, 503}
        assert all("Retry-After" in h for status, _, h in answers if status == 503)
        proxy.answer_delay_s = 0.0
        # The two connections are there again, and do their work.
        after = await asyncio.gather(
            *(shop.get("/v1/emails") for _ in range(10)), shop.post("/v1/emails", EMAIL)
        )
        assert {status for status, _, _ in after} == {200, 202}


async def test_e15_a_process_ends_soon_though_requests_wait_for_a_slow_database(
    database_dsn: str, database: Database, proxy: TcpProxy
) -> None:
    """E15: SIGTERM while requests wait."""
    key = await make_key(database)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.api_process", through(proxy, database_dsn)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        address = None
        while address is None:
            said = json.loads(await process.stderr.readline())
            address = said.get("address") if said["action"] == "api.listening" else None
        async with client(address, key) as shop:
            assert (await shop.post("/v1/emails", EMAIL))[0] == 202
            proxy.answer_delay_s = 5.0
            waiting = [asyncio.create_task(shop.post("/v1/emails", EMAIL)) for _ in range(100)]
            waiting += [asyncio.create_task(shop.get("/v1/emails")) for _ in range(100)]
            await asyncio.sleep(0.5)
            began = time.monotonic()
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 60) == 0
            assert time.monotonic() - began < 10
            ended = await asyncio.gather(*waiting, return_exceptions=True)
    finally:
        proxy.answer_delay_s = 0.0
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
    answered = [answer for answer in ended if isinstance(answer, tuple)]
    assert {status for status, _, _ in answered} <= {200, 202, 503}
    committed = await rows(database, "SELECT id::text FROM email_outbox")
    assert {b["id"] for s, b, _ in answered if s == 202} <= {row["id"] for row in committed}


async def test_who_finds_no_room_is_told_at_once(
    database_dsn: str, database: Database, proxy: TcpProxy
) -> None:
    key = await make_key(database)
    async with (
        api_on(through(proxy, database_dsn), pool_size=2, most_waiting=10) as stage,
        client(stage.address, key) as shop,
    ):
        assert (await shop.post("/v1/emails", EMAIL))[0] == 202
        proxy.answer_delay_s = 1.0
        began = time.monotonic()
        asked = [asyncio.create_task(shop.post("/v1/emails", EMAIL)) for _ in range(60)]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        status, problem, headers = next(iter(done)).result()
        assert time.monotonic() - began < 0.9
        assert (status, problem["type"]) == (503, "urn:mailstreams:problem:overloaded")
        assert headers["Retry-After"] == "1"
        answers = await asyncio.gather(*asked)
    assert Counter(status for status, _, _ in answers)[202] <= 11
    committed = await rows(database, "SELECT id::text FROM email_outbox")
    assert {b["id"] for s, b, _ in answers if s == 202} <= {row["id"] for row in committed}


async def test_a_key_that_an_open_transaction_holds_delays_nobody_else(
    database_dsn: str, database: Database
) -> None:
    """An application has inserted the same dedup key and goes to lunch: only who posts that key is told to come again."""
    key = await make_key(database)
    async with api_on(database_dsn) as stage, client(stage.address, key) as shop:
        async with database.transaction() as connection:
            await connection.execute(
                "SELECT enqueue_email('a@example.com', 'b@example.com', 'x', 'x', tenant => 'shop', dedup_key => 'held')"
            )
            held, *others = await asyncio.gather(
                shop.post("/v1/emails", EMAIL | {"dedup_key": "held"}),
                *(shop.post("/v1/emails", EMAIL) for _ in range(30)),
            )
        assert {status for status, _, _ in others} == {202}
        assert (held[0], "Retry-After" in held[2]) == (503, True)
        again = await shop.post("/v1/emails", EMAIL | {"dedup_key": "held"})
        assert (again[0], again[1].get("duplicate")) == (202, True)


async def test_a_slow_client_is_cut_and_a_broken_off_body_makes_nothing(
    database_dsn: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.accepting.endpoint.BODY_TIMEOUT_S", 0.3)
    key = await make_key(database)
    head = (
        f"POST /v1/emails HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key.text}\r\n"
        "Content-Type: application/json\r\nContent-Length: 500\r\n\r\n"
    )
    async with api_on(database_dsn) as stage:
        host, port = stage.address.split(":")
        for ends in (False, True):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(head.encode() + b'{"from": "a@example.com",')
            if ends:
                writer.close()
            else:
                assert b" 503 " in await asyncio.wait_for(reader.readline(), 10)
                writer.close()
        async with client(stage.address, key) as shop:
            assert (await shop.post("/v1/emails", EMAIL))[0] == 202
    assert len(await rows(database, "SELECT id FROM email_outbox")) == 1


@pytest.fixture
async def own_database(own_servers: devservers.Servers) -> tuple[str, Any]:
    """A database on a server that may be killed."""
    dsn = own_servers.postgres.create_database("killed")
    async with Database(dsn, pool_size=2, timeout_s=20, name="test") as database:
        await migrate(database, salt=SALT, slot=None)
        key = await make_key(database)
    return dsn, key


async def test_postgresql_killed_while_posts_come_in_loses_no_202(
    own_servers: devservers.Servers, own_database: tuple[str, Any]
) -> None:
    """A kill after each sixth of the posts, each of them tried under one Idempotency-Key until it is accepted: every 202 has its row, every row
    one 202."""
    dsn, key = own_database
    told: dict[str, str] = {}
    statuses: Counter[int] = Counter()
    async with (
        api_on(dsn, pool_size=4, timeout_s=3.0, answer_s=4.0) as stage,
        client(stage.address, key) as shop,
    ):

        async def post(n: int) -> None:
            keyed = {"Idempotency-Key": f"post-{n}"}
            while f"post-{n}" not in told:
                with suppress(aiohttp.ClientError):
                    status, body, _ = await shop.post(
                        "/v1/emails", EMAIL | {"subject": str(n)}, headers=keyed
                    )
                    statuses[status] += 1
                    if status == 202:
                        told[f"post-{n}"] = body["id"]
                        return
                await asyncio.sleep(0.05)

        def reached(enough: int) -> bool:
            return len(told) >= enough

        async def kill() -> None:
            for enough in range(POSTS // 6, POSTS - POSTS // 6, POSTS // 6):
                await eventually(partial(reached, enough))
                await asyncio.to_thread(own_servers.postgres.kill)
                await asyncio.to_thread(own_servers.postgres.start)

        async def client_of(first: int) -> None:
            for n in range(first, POSTS, 30):
                await post(n)

        async with asyncio.timeout(250):
            await asyncio.gather(kill(), *(client_of(n) for n in range(30)))
    async with Database(dsn, pool_size=2, timeout_s=20, name="test") as database:
        committed = await rows(database, "SELECT id::text, subject FROM email_outbox")
    assert {f"post-{row['subject']}": row["id"] for row in committed} == told
    assert len(committed) == POSTS
    assert set(statuses) <= {202, 503}
    assert statuses[503] > 0, "no kill was noticed"


def test_the_port_is_refused_where_it_is_taken(database_dsn: str) -> None:
    from streams.domain.errors import Misconfigured

    async def start(port: int) -> None:
        async with api_on(database_dsn, port=port):
            pass

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Misconfigured, match="choose another port"):
            asyncio.run(start(taken.getsockname()[1]))
