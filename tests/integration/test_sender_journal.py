"""A sender that is killed at some step of a call, and the next one that finds its attempt journal."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web

import devservers
from devservers.processes import Supervised, spawn
from streams.adapters.attempt_journal import AttemptJournalFile
from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Database
from streams.adapters.schedule_store import ScheduleStore
from streams.domain.attempts import AttemptId, Recorded
from streams.domain.errors import Unavailable
from streams.domain.topics import Topics
from tests.conftest import SALT
from tests.integration.sender_rig import UNREADABLE_KEY, Rig, accept, ready, rig_on, running, until
from tests.integration.sender_rows import attempt_id, execute, insert, one, row_of

pytestmark = pytest.mark.servers

# Of the process that is killed: far longer than the test, so that nothing but the journal tells what happened.
CONNECT_S, READ_S = 200, 200


@pytest.fixture
async def rig(
    servers: devservers.Servers, database_dsn: str, database: Database, topics: Topics
) -> AsyncIterator[Rig]:
    async with rig_on(servers.kafka.bootstrap_servers, database_dsn, database, topics) as made:
        yield made


@pytest.fixture
async def deaf() -> AsyncIterator[str]:
    """An endpoint that takes connections and never says a word, so that no handshake ends and no request begins."""
    held: list[asyncio.StreamWriter] = []

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for writer in held:
        writer.transport.abort()
    server.close()


# Runs the command in a process whose connections to SES are made once a file is there.
GATED = """
import asyncio, os, runpy, sys
from streams.adapters.ses_connections import PunctualConnector
connect = PunctualConnector.connect
async def gated(self, *args, **named):
    while not os.path.exists(os.environ["GATE"]):
        await asyncio.sleep(0.02)
    open(os.environ["GATE"] + ".passed", "w").close()
    return await connect(self, *args, **named)
PunctualConnector.connect = gated
sys.argv = ["mailstreams", "sender"]
runpy.run_module("streams", run_name="__main__")
"""


@asynccontextmanager
async def process(
    rig: Rig,
    directory: Path,
    *,
    endpoint: str,
    journal: Path | None,
    command: Sequence[str] = ("-m", "streams", "sender"),
    more: dict[str, str] | None = None,
) -> AsyncIterator[Supervised]:
    """A real sender, killed at the end at the latest."""
    environment = {
        "MAILSTREAMS_POSTGRES_DSN": rig.dsn,
        "MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS": rig.bootstrap_servers,
        "MAILSTREAMS_TOPIC_PREFIX": rig.topics.prefix,
        "MAILSTREAMS_PARTITIONS": "3",
        "MAILSTREAMS_RECIPIENT_SALT": SALT.decode(),
        "MAILSTREAMS_UNREADABLE_KEY": UNREADABLE_KEY.decode(),
        "MAILSTREAMS_SENDER_CONNECT_TIMEOUT_S": str(CONNECT_S),
        "MAILSTREAMS_SENDER_READ_TIMEOUT_S": str(READ_S),
        "MAILSTREAMS_SENDER_LEASE_S": str(CONNECT_S + READ_S + 10),
        "AWS_ENDPOINT_URL_SESV2": endpoint,
    }
    if journal is not None:
        environment["MAILSTREAMS_SENDER_JOURNAL"] = str(journal)
    made = await asyncio.to_thread(
        lambda: spawn(
            [sys.executable, *command],
            name="sender",
            log_path=directory / "sender.log",
            env=os.environ | environment | (more or {}),
        )
    )
    try:
        yield made
    finally:
        await asyncio.to_thread(kill, made)


def kill(made: Supervised) -> None:
    made.kill()
    made.wait(30)


async def is_in(rig: Rig, id_: UUID, state: str, seconds: float = 90.0) -> None:
    async def there() -> bool:
        return bool((await row_of(rig.database, id_))["state"] == state)

    await until(there, seconds)


async def test_killed_between_claim_and_call_is_sent_once_and_nothing_is_ambiguous(
    rig: Rig, tmp_path: Path, deaf: str
) -> None:
    journal = tmp_path / "journal"
    id_ = await insert(rig.database)
    async with process(rig, tmp_path, endpoint=deaf, journal=journal) as sender:
        await is_in(rig, id_, "sending")
        await asyncio.to_thread(kill, sender)
    async with running(rig.sender(journal=journal)):
        await is_in(rig, id_, "submitted")
    assert rig.ses.accepted == [str(id_)]
    assert len(rig.ses.calls) == 1
    assert await one(rig.database, "SELECT FROM email_unsettled") is None
    assert await one(rig.database, "SELECT array_agg(outcome) AS all FROM email_attempt") == {
        "all": ["accepted"]
    }
    assert (await row_of(rig.database, id_))["attempts"] == 1


async def test_without_a_journal_the_same_is_ambiguous_once_the_lease_is_over(
    rig: Rig, tmp_path: Path, deaf: str
) -> None:
    id_ = await insert(rig.database)
    async with process(rig, tmp_path, endpoint=deaf, journal=None) as sender:
        await is_in(rig, id_, "sending")
        await asyncio.to_thread(kill, sender)
    following = rig.sender(journal=tmp_path / "journal")
    async with running(following):
        await ready(following, seconds=60)
        await execute(rig.database, "UPDATE email_lease SET expires = clock_timestamp()")
        await ScheduleStore(rig.database).expire_leases(10)
    assert (await row_of(rig.database, id_))["state"] == "ambiguous"
    assert rig.ses.calls == []


async def test_what_ran_out_before_the_journal_was_found_is_sent_too(
    rig: Rig, tmp_path: Path, deaf: str
) -> None:
    """The next process starts late: the row is ambiguous by then, and the proof still counts."""
    journal = tmp_path / "journal"
    id_ = await insert(rig.database)
    async with process(rig, tmp_path, endpoint=deaf, journal=journal) as sender:
        await is_in(rig, id_, "sending")
        await asyncio.to_thread(kill, sender)
    schedule = ScheduleStore(rig.database)
    await execute(rig.database, "UPDATE email_lease SET expires = clock_timestamp()")
    await schedule.expire_leases(10)
    assert (await row_of(rig.database, id_))["state"] == "ambiguous"
    async with running(rig.sender(journal=journal)):

        async def settled() -> bool:
            await schedule.settle([id_])
            return bool((await row_of(rig.database, id_))["state"] == "submitted")

        await until(settled, 90)
    assert rig.ses.accepted == [str(id_)]


async def test_killed_during_the_call_is_ambiguous_at_once(rig: Rig, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    over = asyncio.Event()

    async def mute(request: web.Request, number: int) -> web.StreamResponse:
        await over.wait()
        return await accept(request, number)

    rig.ses.answer = mute
    id_ = await insert(rig.database)
    async with process(rig, tmp_path, endpoint=rig.ses.url, journal=journal) as sender:
        await until(lambda: len(rig.ses.calls) == 1, 90)
        await asyncio.to_thread(kill, sender)
    over.set()
    following = rig.sender(journal=journal)
    async with running(following):
        await is_in(rig, id_, "ambiguous")
        await ready(following, seconds=60)
    assert len(rig.ses.calls) == 1
    attempt = await one(rig.database, "SELECT outcome, error_class, number FROM email_attempt")
    assert attempt == {"outcome": "unknown", "error_class": "process-ended", "number": 1}
    assert await one(rig.database, "SELECT FROM email_lease") is None


class Forgetful(OutboxStore):
    """Writes no outcome."""

    async def record(self, _: Any) -> dict[AttemptId, Recorded]:
        raise Unavailable("PostgreSQL is away")


async def test_an_answer_that_was_not_written_any_more_is_written_by_the_next(
    rig: Rig, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    id_ = await insert(rig.database)
    forgetful = rig.sender(
        journal=journal, drain_s=1.0, outbox=lambda pool: Forgetful(pool, max_attempts=5)
    )
    async with running(forgetful):
        await until(lambda: rig.ses.accepted == [str(id_)], 60)
    assert (await row_of(rig.database, id_))["state"] == "sending"
    async with running(rig.sender(journal=journal)):
        await is_in(rig, id_, "submitted")
    assert len(rig.ses.calls) == 1


async def test_a_claim_that_happens_after_its_process_died_is_given_back(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was still to do it when the next process gave it back: giving back is repeated."""
    monkeypatch.setattr("streams.sending.outcome_writer.REPEATS_S", (0.5,) * 200)
    journal, attempt = tmp_path / "journal", attempt_id()
    id_ = await insert(rig.database)
    await execute(
        rig.database,
        "INSERT INTO pause (scope, value, reason, who) VALUES ('lane', 'transactional', 'test', 'test')",
    )
    dead = AttemptJournalFile(journal)
    dead.open()
    dead.claiming([(id_, attempt)])
    dead.close()
    sender = rig.sender(journal=journal)
    async with running(sender):
        await until(lambda: not sender._writer.owes, 60)
        assert (await row_of(rig.database, id_))["state"] == "pending"
        await execute(
            rig.database,
            "UPDATE email_outbox SET state = 'sending', attempt_id = $2, attempts = 1 WHERE id = $1",
            id_,
            attempt,
        )
        await is_in(rig, id_, "pending")
        await execute(rig.database, "DELETE FROM pause")
        await execute(rig.database, "UPDATE email_due SET due = clock_timestamp()")
        await is_in(rig, id_, "submitted")
    assert rig.ses.accepted == [str(id_)]


async def test_a_stopped_process_still_holds_its_journal(
    rig: Rig, tmp_path: Path, deaf: str
) -> None:
    journal = tmp_path / "journal"
    id_ = await insert(rig.database)
    async with process(rig, tmp_path, endpoint=deaf, journal=journal) as sender:
        await is_in(rig, id_, "sending")
        os.kill(sender.pid, signal.SIGSTOP)
        following = rig.sender(journal=journal)
        with pytest.raises(Unavailable, match="MAILSTREAMS_SENDER_JOURNAL"):
            await following.start()
        await following.stop()
    assert rig.ses.calls == []


async def test_a_process_that_was_frozen_after_signing_makes_no_call_once_its_lease_is_over(
    rig: Rig, tmp_path: Path
) -> None:
    """What it holds was given to another sender meanwhile."""
    gate = tmp_path / "gate"
    times = {"CONNECT_TIMEOUT_S": "1.5", "READ_TIMEOUT_S": "0.5", "LEASE_S": "7"}
    more = {f"MAILSTREAMS_SENDER_{name}": value for name, value in times.items()}
    id_ = await insert(rig.database)
    async with process(
        rig,
        tmp_path,
        endpoint=rig.ses.url,
        journal=None,
        command=("-c", GATED),
        more=more | {"GATE": str(gate)},
    ) as frozen:
        await is_in(rig, id_, "sending")
        os.kill(frozen.pid, signal.SIGSTOP)

        async def is_over() -> bool:
            found = await one(
                rig.database, "SELECT expires < clock_timestamp() AS is_over FROM email_lease"
            )
            return bool(found["is_over"])

        await until(is_over, 60)
        await ScheduleStore(rig.database).expire_leases(10)
        # Somebody decides that it is to be sent again.
        await execute(rig.database, "DELETE FROM email_unsettled")
        await execute(rig.database, "UPDATE email_outbox SET state = 'pending' WHERE id = $1", id_)
        await execute(
            rig.database,
            "INSERT INTO email_due (id, due, tenant, lane, why) "
            "SELECT id, clock_timestamp(), tenant, lane, 'retry' FROM email_outbox",
        )
        async with running(rig.sender()):
            await is_in(rig, id_, "submitted")
            gate.touch()
            os.kill(frozen.pid, signal.SIGCONT)

            # It goes on to its connection, unless it finds at once that its time is over.
            loop = asyncio.get_running_loop()
            passed, deadline = Path(f"{gate}.passed"), loop.time() + 5.0
            await until(lambda: passed.exists() or loop.time() > deadline, 60)
            frozen.terminate()
            await asyncio.to_thread(frozen.wait, 60)
    assert len(rig.ses.calls) == 1
    assert rig.ses.accepted == [str(id_)]
