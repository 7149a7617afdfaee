"""PostgreSQL or Kafka away for half a minute while the system runs: it recovers by itself and nothing is lost."""

import time
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest

import devservers
from demo.system import System
from tests.acceptance.conftest import enqueue, system_on

pytestmark = [pytest.mark.servers, pytest.mark.timeout(420)]

AWAY_S = 30.0


@pytest.fixture(scope="module")
def system_of_own(
    own_servers: devservers.Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    with system_on(own_servers, tmp_path_factory.mktemp("outages")) as running:
        yield running


def commit_for(system: System, seconds: float, mark: str) -> list[str]:
    """An application that commits about 20 mails a second, as far as its database lets it; their ids."""
    ids: list[str] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with psycopg.connect(system.dsn, connect_timeout=2, autocommit=True) as connection:
                while time.monotonic() < deadline:
                    ids.append(enqueue(connection, f"{mark}-{len(ids)}@example.com"))
                    time.sleep(0.05)  # the pace of the application, not a wait for anything
        except psycopg.OperationalError:
            time.sleep(0.2)
    return ids


def settle(system: System, ids: list[str]) -> None:
    def unsettled() -> int:
        with psycopg.connect(system.dsn) as connection:
            row = connection.execute(
                "SELECT count(*) FROM email_outbox WHERE id = ANY (%s::uuid[]) AND state <> 'submitted'",
                (ids,),
            ).fetchone()
        assert row is not None
        return int(row[0])

    system.wait_for(lambda: unsettled() == 0, "every committed mail to be submitted", timeout_s=90)
    times = Counter(call["outbox"] for call in system.ledger())
    assert [i for i in ids if times[i] != 1] == []


@pytest.mark.parametrize("which", ["kafka", "postgres"])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_an_outage_of_a_server_is_survived(
    system_of_own: System, own_servers: devservers.Servers, which: str, how: str
) -> None:
    system, server = system_of_own, getattr(own_servers, which)
    ids = commit_for(system, 2.0, f"before-{which}-{how}")
    away = AWAY_S if how == "stop" else 5.0
    getattr(server, how)()
    if which == "kafka":
        ids += commit_for(system, away, f"during-{which}-{how}")
    else:
        time.sleep(away)  # the outage itself
    server.start()
    ids += commit_for(system, 2.0, f"after-{which}-{how}")
    settle(system, ids)
    for stage in ("relay", "sender", "events", "recipients", "scheduler"):
        assert system.alive(stage)
        system.wait_ready(stage)
