"""Every stage in one process, and each drains on SIGTERM."""

import json
import re
import urllib.request
from collections.abc import Iterator

import psycopg
import pytest

import devservers
from demo.system import System, get
from tests.acceptance.conftest import enqueue, system_on, until_state
from tests.command_line import mailstreams

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def one_process(
    servers: devservers.Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    directory = tmp_path_factory.mktemp("all")
    given = {"MAILSTREAMS_API_PORT": "0"}
    with system_on(servers, directory, stages=("all",), settings=given) as running:
        yield running


def test_a_complaint_becomes_a_suppression_in_one_process(one_process: System) -> None:
    one_process.control("rules", rules=[{"match": "complains@example.com", "outcome": "complaint"}])
    with psycopg.connect(one_process.dsn, autocommit=True) as application:
        first = enqueue(application, "complains@example.com")
        until_state(one_process, application, first, "submitted")
        one_process.wait_for(
            lambda: application.execute("SELECT 1 FROM suppression").fetchone() is not None,
            "the suppression",
        )
        second = enqueue(application, "Complains@Example.com")
        until_state(one_process, application, second, "suppressed")
    assert [call["outbox"] for call in one_process.ledger()] == [first]


def test_what_is_posted_to_the_one_process_is_sent(one_process: System) -> None:
    """It runs the API, since its port is set."""
    log = (one_process.directory / "all.log").read_text(encoding="utf-8").splitlines()
    [address] = {
        found["address"] for line in log if (found := json.loads(line))["action"] == "api.listening"
    }
    made = mailstreams(
        *("keys", "create", "--tenant", "shop", "--label", "test", "--by", "test"),
        environment=one_process.environment,
    )
    request = urllib.request.Request(
        f"http://{address}/v1/emails",
        data=json.dumps(
            {"from": "a@example.com", "to": "b@example.com", "subject": "x", "text": "x"}
        ).encode(),
        headers={
            "Authorization": f"Bearer {made.stdout.strip()}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        outbox_id = json.load(answer)["id"]
    with psycopg.connect(one_process.dsn, autocommit=True) as application:
        until_state(one_process, application, outbox_id, "submitted")


def test_metrics_of_all_stages_stand_on_one_page(one_process: System) -> None:
    body = get(one_process.url("all", "/metrics"))[1].decode()
    for stage in ("relay", "sender", "events", "recipients", "scheduler"):
        assert f"mailstreams_{stage}_" in body


def test_a_running_system_is_healthy_and_tells_of_its_messages(one_process: System) -> None:
    environment = one_process.environment
    one_process.wait_for(
        lambda: mailstreams("status", environment=environment).returncode == 0, "health"
    )
    found = mailstreams("trace", "complains@example.com", "--json", environment=environment)
    assert found.returncode == 4
    ids = [message["id"] for message in json.loads(found.stdout)["messages"]]
    story = mailstreams("trace", ids[-1], "--positions", environment=environment).stdout
    for step in ("committed", "attempt 1 accepted", "event complained", "suppression  "):
        assert step in story
    assert re.search(r"in the topic +offset \d+, (not )?read by \S+sender", story)


def test_sigterm_drains_what_is_under_way(one_process: System) -> None:
    with psycopg.connect(one_process.dsn, autocommit=True) as application:
        ids = [enqueue(application, f"drain-{n}@example.com") for n in range(50)]
        assert one_process.stop("all") == 0
        states = application.execute("SELECT count(*) FROM email_lease", ()).fetchone()
        assert states == (0,)
        one_process.start("all")
        for outbox_id in ids:
            until_state(one_process, application, outbox_id, "submitted")
    times = [call["outbox"] for call in one_process.ledger() if call["outbox"] in ids]
    assert sorted(times) == sorted(ids)
