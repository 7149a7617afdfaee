"""Every command of an operator, asked while PostgreSQL is away or read-only: one sentence, and nothing half done."""

import os
import subprocess
import sys

import pytest

from streams import cli
from streams.adapters.postgres import Database
from tests.integration.outbox_rows import execute, fetch, make_row
from tests.integration.test_outbox_commands import Command
from tests.integration.test_unknown_by_hand import held

pytestmark = pytest.mark.servers

BY = ("--by", "Ann", "--reason", "a test")
SOME = "0195d2c0-0000-7000-8000-000000000000"
READS = [
    ("pause", "list"),
    ("trace", "ann@example.com"),
    ("reconcile",),
    ("reconcile", "--list"),
    ("ambiguous", "list"),
    ("duplicates",),
    ("dlq", "list"),
    ("dlq", "show"),
    ("dlq", "redrive", "--all", "--dry-run", *BY),
    ("ambiguous", "settle", "--all", "--accepted", "--dry-run", *BY),
    ("erase", "ann@example.com", "--dry-run", *BY),
    ("suppressions", "list"),
]
WRITES = [
    ("pause", "tenant", "shop", *BY),
    ("resume", "tenant", "bank", *BY),
    ("trace", "ann@example.com", "--tenant", "shop", "--show-addresses", *BY),
    ("ambiguous", "settle", "--all", "--accepted", *BY),
    ("dlq", "redrive", "--all", "--duplicates-possible", *BY),
    ("cancel", "PENDING", *BY),
    ("erase", "ann@example.com", *BY),
    ("suppressions", "add", "ann@example.com", "--reason", "manual", "--by", "Ann", "--why", "x"),
]


@pytest.mark.parametrize("asked", [*READS, *WRITES], ids=" ".join)
def test_a_server_that_is_away_is_one_sentence(asked: tuple[str, ...]) -> None:
    nowhere = Command("postgresql://x@127.0.0.1:1/x")
    for form in ((), ("--json",)) if asked in READS[:2] else ((),):
        done = nowhere.run(*(SOME if word == "PENDING" else word for word in asked), *form)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("mailstreams: PostgreSQL does not answer: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("asked", [("cancel", SOME), ("ambiguous", "settle", SOME, "--accepted")])
async def test_an_unknown_id_has_an_exit_code_of_its_own(
    database_dsn: str, asked: tuple[str, ...]
) -> None:
    done = Command(database_dsn).run(*asked, *BY)
    assert done.returncode == 3
    assert "there is no such row" in done.stdout


@pytest.mark.parametrize(
    "asked",
    [
        ("trace", "\udcff@example.com"),
        ("pause", "sender", "\udcff@example.com", *BY),
        ("pause", "tenant", "shop", "--by", "Ann", "--reason", "a\udcff"),
        ("cancel", SOME, "--by", "Ann", "--reason", "two\nlines"),
    ],
)
def test_what_is_no_text_is_refused(asked: tuple[str, ...]) -> None:
    told = Command("postgresql://x@127.0.0.1:1/x").refusal(*asked)
    assert "is not text in UTF-8" in told or "write one line" in told
    assert told.count("\n") == 1


async def test_a_read_only_database_is_one_sentence_and_nothing_is_done(
    database: Database, database_dsn: str
) -> None:
    command = Command(database_dsn)
    pending = await make_row(database, recipient="ann@example.com")
    await held(database, recipient="held@example.com")
    await execute(
        database,
        "INSERT INTO pause (scope, value, reason, who) VALUES ('tenant', 'bank', 'audit', 'Bob')",
    )
    tables = (
        "email_outbox",
        "email_due",
        "pause",
        "suppression",
        "dead_letter",
        "audit_log",
        "outbox_feed",
    )
    before = [await fetch(database, f"SELECT * FROM {table}") for table in tables]
    name = database_dsn.rpartition("/")[2]
    await execute(database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    for asked in WRITES:
        done = command.run(*(str(pending.id) if word == "PENDING" else word for word in asked))
        assert (asked, done.returncode, done.stdout) == (asked, 1, "")
        assert "read-only transaction (25006): it takes no changes" in done.stderr, asked
        assert done.stderr.count("\n") == 1, asked
    # A dry run locks what it judges.
    for asked in (one for one in READS if "--dry-run" not in one):
        assert command.run(*asked).returncode in (0, 3, 4), asked
    assert [await fetch(database, f"SELECT * FROM {table}") for table in tables] == before


@pytest.mark.parametrize("words", ["", "pause", "pause lane"])
def test_shells_complete_commands(words: str) -> None:
    """As the script that --install-completion puts in asks for it."""
    script = "import sys; sys.argv[0] = 'mailstreams'; from streams.__main__ import main; main()"
    typed = f"mailstreams {words}".strip() + " "
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ
        | {
            "_MAILSTREAMS_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split())),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    expected = {
        "": {"pause", "resume", "status", "trace", "dlq", "reconcile", "erase"},
        "pause lane": {"transactional", "bulk"},
        "pause": {"list", "account", "lane", "tenant", "sender", "template"},
    }[words]
    assert expected <= set(done.stdout.split()), done.stderr


def test_every_command_of_an_operator_has_json() -> None:
    from typer.main import get_command

    without = []
    commands = [("mailstreams", get_command(cli.app))]
    while commands:
        name, command = commands.pop()
        inner = getattr(command, "commands", None)
        if inner is not None:
            commands += [(f"{name} {sub}", one) for sub, one in inner.items()]
        elif not command.hidden and "--json" not in {o for p in command.params for o in p.opts}:
            without.append(name.removeprefix("mailstreams "))
    assert set(without) == {*cli.STAGES, "all", "api", "simulator"}
