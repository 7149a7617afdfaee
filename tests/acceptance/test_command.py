"""What the command says when something has to be set up or changed: one sentence, exit code 2, no traceback."""

import socket

import pytest

from tests.command_line import Done, as_process, mailstreams

SALT = "0123456789abcdef0123456789abcdef"


def last_line(done: Done) -> str:
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "command",
    [
        "console",
        "replay",
    ],
)
def test_what_is_not_built_is_refused(command: str) -> None:
    done = mailstreams(command, "--json", "anything", environment={})
    assert done.returncode == 2
    assert "is not built yet" in last_line(done)


def test_what_is_refused_is_one_sentence_of_the_process() -> None:
    done = as_process("console", environment={})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == mailstreams("console", environment={}).stderr
    assert done.stderr.count("\n") == 1


def test_a_wrong_queue_url_is_told_before_a_missing_setting() -> None:
    done = mailstreams("drain", "foo", environment={})
    assert done.returncode == 2
    assert last_line(done).startswith("mailstreams: 'foo' is not the URL of an SQS queue")
    assert done.stderr.count("\n") == 1


def test_a_missing_salt_is_named_with_its_remedy() -> None:
    done = as_process("migrate", environment={})
    assert done.returncode == 2
    assert "MAILSTREAMS_RECIPIENT_SALT" in last_line(done)


@pytest.mark.parametrize(
    "stage", ["relay", "sender", "events", "recipients", "scheduler", "api", "all"]
)
def test_a_wrong_setting_is_named(stage: str) -> None:
    wrong = {"MAILSTREAMS_RECIPIENT_SALT": SALT, "MAILSTREAMS_PARTITIONS": "0"}
    done = mailstreams(stage, environment=wrong)
    assert done.returncode == 2
    assert "MAILSTREAMS_PARTITIONS" in last_line(done)


def test_a_busy_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        given = {"MAILSTREAMS_RECIPIENT_SALT": SALT, "MAILSTREAMS_HTTP_PORT": port}
        done = as_process("scheduler", environment=given)
    assert done.returncode == 2
    assert "choose another port" in last_line(done)


def test_a_server_that_does_not_answer_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    dsn = f"postgresql://x@127.0.0.1:{port}/x"
    given = {"MAILSTREAMS_RECIPIENT_SALT": SALT, "MAILSTREAMS_POSTGRES_DSN": dsn}
    done = as_process("migrate", environment=given)
    assert done.returncode == 1
    assert "PostgreSQL" in last_line(done)
