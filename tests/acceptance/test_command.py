"""What the command says when something has to be set up or changed: one sentence, exit code 2, no traceback."""

import os
import socket
import subprocess
import sys

import pytest

SALT = "0123456789abcdef0123456789abcdef"


def mailstreams(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MAILSTREAMS_")}
    return subprocess.run(
        [sys.executable, "-m", "streams", *arguments],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def last_line(done: "subprocess.CompletedProcess[str]") -> str:
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "command",
    [
        "api",
        "console",
        "doctor",
        "status",
        "pause",
        "resume",
        "replay",
        "reconcile",
        "erase",
    ],
)
def test_what_is_not_built_is_refused(command: str) -> None:
    done = mailstreams(command, "--json", "anything")
    assert done.returncode == 2
    assert "is not built yet" in last_line(done)


def test_a_wrong_queue_url_is_told_before_a_missing_setting() -> None:
    done = mailstreams("drain", "foo")
    assert done.returncode == 2
    assert last_line(done).startswith("mailstreams: 'foo' is not the URL of an SQS queue")
    assert done.stderr.count("\n") == 1


def test_a_missing_salt_is_named_with_its_remedy() -> None:
    done = mailstreams("migrate")
    assert done.returncode == 2
    assert "MAILSTREAMS_RECIPIENT_SALT" in last_line(done)


@pytest.mark.parametrize("stage", ["relay", "sender", "events", "recipients", "scheduler", "all"])
def test_a_wrong_setting_is_named(stage: str) -> None:
    done = mailstreams(stage, MAILSTREAMS_RECIPIENT_SALT=SALT, MAILSTREAMS_PARTITIONS="0")
    assert done.returncode == 2
    assert "MAILSTREAMS_PARTITIONS" in last_line(done)


def test_a_busy_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = mailstreams(
            "scheduler",
            MAILSTREAMS_RECIPIENT_SALT=SALT,
            MAILSTREAMS_HTTP_PORT=str(taken.getsockname()[1]),
        )
    assert done.returncode == 2
    assert "choose another port" in last_line(done)


def test_a_server_that_does_not_answer_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    done = mailstreams(
        "migrate",
        MAILSTREAMS_RECIPIENT_SALT=SALT,
        MAILSTREAMS_POSTGRES_DSN=f"postgresql://x@127.0.0.1:{port}/x",
    )
    assert done.returncode == 1
    assert "PostgreSQL" in last_line(done)
