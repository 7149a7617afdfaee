"""What accepting costs: single posts for the processor time of the API's process, batches, and COPY without the API.

Requests go over kept connections, as fast as they are answered, then at half of that rate for the times of answers. A core is one
second of processor time of the API's process; what PostgreSQL takes beside it stands apart.
"""

import asyncio
import os
import pickle
import secrets
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import orjson

import devservers
from benchmarks import machine
from benchmarks.backend_cpu import clock_of
from benchmarks.sns_load import Load, post_all
from benchmarks.stage_process import StageProcess, running_stage
from devservers.ports import Ports
from devservers.settings import ServerSettings
from streams.adapters.api_admin import ApiAdmin
from streams.adapters.migrations import migrate
from streams.adapters.postgres import Database
from streams.domain.api_email import new_outbox_id
from streams.domain.api_keys import RANDOM_BYTES, Scope, new_key

NAME: Final = "api"
SALT: Final = "benchmark-salt-of-thirty-two-byte"
TARGETS: Final = {"posts_per_core_s": 1500, "copy_1_kb_rows_s": 25_000, "copy_4_kb_rows_s": 10_000}
_WORDS: Final = ("order", "invoice", "thank", "delivery", "customer", "address", "total", "parcel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured."""

    posts: int
    batches: int
    in_a_batch: int
    copied: int
    connections: int


FULL: Final = Sizes(posts=12_000, batches=60, in_a_batch=500, copied=40_000, connections=64)
QUICK: Final = Sizes(posts=200, batches=2, in_a_batch=20, copied=200, connections=8)


def run(*, quick: bool) -> dict[str, Any]:
    """The numbers; what is measured is told on the way."""
    sizes = QUICK if quick else FULL
    with ExitStack() as stack:
        servers = stack.enter_context(devservers.running(ServerSettings(kafka=False)))
        name = f"bench_{time.time_ns()}"
        dsn = servers.postgres.create_database(name)
        stack.callback(servers.postgres.drop_database, name)
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        key, postgres = asyncio.run(_prepare(dsn))
        ports = Ports(directory / "ports")
        stack.callback(ports.release)
        port, health_port = ports.claim(server="api"), ports.claim(server="health")
        environment = {
            **machine.environment(),
            "MAILSTREAMS_POSTGRES_DSN": dsn,
            "MAILSTREAMS_RECIPIENT_SALT": SALT,
            "MAILSTREAMS_API_PORT": str(port),
        }
        stage = stack.enter_context(
            running_stage(
                NAME, environment=environment, health_port=health_port, directory=directory
            )
        )
        bench = _Bench(sizes, key=key, port=port, stage=stage, directory=directory)
        numbers = {**bench.singles(), **bench.batches()}
        numbers |= asyncio.run(_copies(dsn, sizes))
    return {
        "benchmark": NAME,
        "quick": quick,
        "targets": TARGETS,
        "connections": sizes.connections,
        **numbers,
        "postgres": postgres,
        **machine.description(),
    }


async def _prepare(dsn: str) -> tuple[str, str]:
    """A key, and the server's version."""
    key = new_key(secrets.token_bytes(RANDOM_BYTES), test=False)
    async with Database(dsn, pool_size=1, timeout_s=60, name="benchmark") as database:
        await migrate(database, salt=SALT.encode(), slot=None)
        await ApiAdmin(database).create_key(
            key,
            tenant="shop",
            label="benchmark",
            test=False,
            scopes=list(Scope),
            expires=None,
            by_whom="benchmark",
        )
        async with database.connection() as connection:
            return key.text, str(await connection.fetchval("SHOW server_version"))


class _Bench:
    """Posts to one process of the API."""

    def __init__(
        self, sizes: Sizes, *, key: str, port: int, stage: StageProcess, directory: Path
    ) -> None:
        self._sizes = sizes
        self._key = key
        self._port = port
        self._stage = stage
        self._path = directory / "requests"

    def singles(self) -> dict[str, Any]:
        """One e-mail a request, with a body of 1 KB and an Idempotency-Key."""
        warm = max(self._sizes.posts // 10, 20)
        self._post([self._single(n) for n in range(warm)])
        load, cpu = self._post([self._single(n) for n in range(self._sizes.posts)])
        wall_rate = self._sizes.posts / load.wall_s
        half = [self._single(n) for n in range(self._sizes.posts // 3)]
        slow, _ = self._post(half, per_second=wall_rate / 2)
        answers = sorted(slow.answers)
        say(
            f"{self._sizes.posts} posts: {wall_rate:.0f} a second, {self._sizes.posts / cpu:.0f} a core"
        )
        return {
            "posts_s": round(wall_rate),
            "posts_per_core_s": round(self._sizes.posts / cpu),
            "api_cpu_us_a_post": round(cpu / self._sizes.posts * 1e6),
            "half_load_posts_s": round(wall_rate / 2),
            "half_load_p50_ms": round(answers[len(answers) // 2] * 1e3, 1),
            "half_load_p99_ms": round(answers[int(len(answers) * 0.99)] * 1e3, 1),
        }

    def batches(self) -> dict[str, Any]:
        """Many e-mails a request."""
        n = self._sizes.in_a_batch
        batch = [_email(i) for i in range(n)]
        requests = [
            self._request("/v1/emails/batch", batch, {}) for _ in range(self._sizes.batches)
        ]
        self._post(requests[:2])
        load, cpu = self._post(requests, connections=4)
        made = n * self._sizes.batches
        say(f"{made} e-mails in batches of {n}: {made / load.wall_s:.0f} a second")
        return {
            "batch_rows_s": round(made / load.wall_s),
            "batch_rows_per_core_s": round(made / cpu),
            "in_a_batch": n,
        }

    def _single(self, n: int) -> bytes:
        keyed = {"Idempotency-Key": secrets.token_hex(12)}
        return self._request("/v1/emails", _email(n), keyed)

    def _request(self, path: str, body: Any, headers: Mapping[str, str]) -> bytes:
        content = orjson.dumps(body)
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n{more}\r\n"
        )
        return head.encode() + content

    def _post(
        self, requests: list[bytes], *, per_second: float | None = None, connections: int = 0
    ) -> tuple[Load, float]:
        """What came of it, and the processor time of the API's process."""
        self._path.write_bytes(pickle.dumps(requests))
        before = self._stage.cpu_s()
        load = post_all(
            self._path,
            0,
            len(requests),
            port=self._port,
            connections=connections or self._sizes.connections,
            per_second=per_second,
        )
        if set(load.statuses) != {"202"}:
            raise RuntimeError(f"not every post was accepted: {load.statuses}")
        return load, max(self._stage.cpu_s() - before, 0.01)


async def _copies(dsn: str, sizes: Sizes) -> dict[str, Any]:
    """Rows a second of one connection that copies into email_outbox, as an application can that has the database."""
    numbers: dict[str, Any] = {}
    settings = {"default_toast_compression": "lz4"}
    async with Database(
        dsn, pool_size=1, timeout_s=300, name="benchmark", server_settings=settings
    ) as database:
        for kilobytes in (1, 4):
            runs = [await _copy(database, sizes.copied, kilobytes * 1024) for _ in range(2)]
            wall, cpu, kind = (max(values) for values in zip(*runs, strict=True))
            numbers[f"copy_{kilobytes}_kb_rows_s"] = round(wall)
            numbers[f"copy_{kilobytes}_kb_rows_per_core_s"] = round(cpu)
            numbers["clock"] = kind
            say(
                f"COPY of {sizes.copied} rows with {kilobytes} KB: {wall:.0f} a second, "
                f"{cpu:.0f} a core of PostgreSQL"
            )
    return numbers


async def _copy(database: Database, rows: int, body_bytes: int) -> tuple[float, float, str]:
    """Rows a second, and a second of processor time of the PostgreSQL process that takes them; by which clock."""
    text = _text(body_bytes)
    records = [
        (_new_id(), "shop", f"user{n}@example.com", "shop@example.com", f"Order {n}", text)
        for n in range(rows)
    ]
    async with database.connection() as connection:
        kind, clock = clock_of(await connection.fetchval("SELECT pg_backend_pid()"))
        began, used = time.perf_counter(), clock()
        await connection.copy_records_to_table(
            "email_outbox",
            columns=["id", "tenant", "recipient", "sender", "subject", "text"],
            records=records,
        )
        return rows / (time.perf_counter() - began), rows / max(clock() - used, 1e-3), kind


def _new_id() -> UUID:
    return new_outbox_id(time.time_ns() // 1_000_000, os.urandom(10))


def _email(n: int) -> dict[str, Any]:
    return {
        "from": "Shop <shop@example.com>",
        "to": f"user{n}@example.com",
        "subject": f"Your order {n}",
        "text": _text(1024),
        "tags": {"kind": "order"},
    }


def _text(size: int) -> str:
    words = (_WORDS[n * 7 % len(_WORDS)] + str(n) for n in range(size // 5))
    return " ".join(words)[:size]


def say(line: str) -> None:
    print(line, flush=True)
