"""`mailstreams ambiguous`, `duplicates`, `dlq` and `cancel` as an operator runs them."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streams.adapters.postgres import Database
from streams.adapters.schedule_store import ScheduleStore
from tests.command_line import Done, as_process, mailstreams
from tests.conftest import SALT
from tests.integration.outbox_rows import execute, fetch, make_row
from tests.integration.test_unknown_by_hand import failed, held
from tests.integration.test_unknown_policies import RULE

pytestmark = pytest.mark.servers

BY = ("--by", "Ann", "--reason", "the provider told us")


class Command:
    """The command on one database."""

    def __init__(self, dsn: str) -> None:
        self.environment = {
            "MAILSTREAMS_POSTGRES_DSN": dsn,
            "MAILSTREAMS_RECIPIENT_SALT": SALT.decode(),
        }

    def run(self, *arguments: str) -> Done:
        return mailstreams(*arguments, environment=self.environment)

    def run_as_process(self, *arguments: str) -> Done:
        return as_process(*arguments, environment=self.environment)

    def json(self, *arguments: str, code: int = 0) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def refusal(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr


@pytest.fixture
def command(database_dsn: str) -> Command:
    return Command(database_dsn)


async def test_unknown_outcomes_are_listed_and_settled(
    command: Command, database: Database, tmp_path: Path
) -> None:
    asked = await held(database, recipient="held@example.com")
    again = await make_row(database, "ambiguous", on_ambiguous="resend", tenant="other")
    silent = await make_row(database, "ambiguous", on_ambiguous="resend-when-silent")
    found = command.json("ambiguous", "list")
    steps = {row["outbox_id"]: row["next"] for row in found["ambiguous"]}
    assert steps[str(asked.id)] == "waits for a person"
    assert steps[str(again.id)].startswith("sent again at ")
    assert "if the intake had no gap, else held for a person" in steps[str(silent.id)]
    text = command.run("ambiguous", "list", "--limit", "1")
    assert len(text.stdout.splitlines()) == 1
    assert f"--after {asked.attempt_id}" in text.stderr

    tried = command.json("ambiguous", "settle", "--all", "--not-accepted", "--dry-run", *BY)
    assert (tried["counts"], tried["dry_run"]) == ({"pending": 3}, True)
    ids = tmp_path / "ids"
    ids.write_text(f"{asked.id}\n\n{silent.id}\n", encoding="utf-8")
    done = command.json("ambiguous", "settle", "--file", str(ids), "--accepted", *BY)
    assert done["counts"] == {"submitted": 2}
    done = command.json("ambiguous", "settle", "--all", "--tenant", "other", "--not-accepted", *BY)
    assert done["counts"] == {"pending": 1}
    assert command.json("ambiguous", "list") == {"ambiguous": [], "next": None}
    (found,) = command.json("duplicates", "--possible")["duplicates"]
    assert (found["outbox_id"], found["why"]) == (str(again.id), "settled-by-hand")
    assert [call["attempt_id"] for call in found["calls"]] == [str(again.attempt_id)]
    assert command.run("duplicates", "--proven").stderr == "none\n"
    late = command.json("ambiguous", "settle", str(again.id), "--accepted", *BY, code=1)
    assert late["counts"] == {"not-ambiguous": 1}


async def test_what_a_policy_sent_again_is_listed_as_a_possible_duplicate(
    command: Command, database: Database
) -> None:
    row = await make_row(database, "ambiguous", since="11 m", on_ambiguous="resend")
    await ScheduleStore(database).resend_ambiguous(RULE, limit=10)
    lines = command.run("duplicates").stdout.splitlines()
    assert lines[0].startswith(f"{row.id}  possible  resend ")
    assert f"attempt {row.attempt_id}  unknown" in lines[1]


async def test_what_is_asked_wrongly_is_refused(command: Command) -> None:
    row = "0195d2c0-0000-7000-8000-000000000000"
    done = command.run_as_process("ambiguous", "settle", row, *BY)
    assert (done.returncode, done.stdout) == (2, "")
    assert "say --accepted or --not-accepted" in done.stderr
    assert "one of the two" in command.refusal("ambiguous", "settle", "--accepted", *BY)
    assert "or say --all" in command.refusal("dlq", "redrive", *BY)
    assert "--by is empty" in command.refusal("cancel", row, "--by", " ", "--reason", "why")


async def test_dead_letters_are_listed_and_redriven(command: Command, database: Database) -> None:
    asked = await held(database, recipient="held@example.com")
    for n in range(3):
        await failed(database, reason="too large", recipient=f"user{n}@example.com")
    groups = command.json("dlq", "list")["groups"]
    assert [(group["class"], group["rows"]) for group in groups] == [("permanent", 3), ("held", 1)]
    (shown,) = command.json("dlq", "show", str(asked.id))["dead_letters"]
    assert (shown["outbox_id"], shown["state"]) == (str(asked.id), "failed")
    redrive = ("dlq", "redrive", *BY, "--per-second", "1")
    tried = command.json(*redrive, "--all", "--dry-run")
    assert (tried["counts"], tried["dry_run"]) == ({"held": 1, "redriven": 3}, True)
    assert await execute(database, "SELECT count(*) FROM dead_letter") == 4
    assert command.json(*redrive, "--class", "permanent")["counts"] == {"redriven": 3}
    (span,) = await fetch(database, "SELECT max(due) - min(due) AS span FROM email_due")
    assert span["span"] == timedelta(seconds=2)
    left = command.run(*redrive, "--class", "held")
    assert "--duplicates-possible" in left.stdout
    done = command.json(*redrive, str(asked.id), "--duplicates-possible")
    assert (done["counts"], done["possible_duplicates"]) == ({"redriven": 1}, 1)
    assert command.run("dlq", "list").stderr == "none\n"


async def test_what_has_no_dead_letter_is_not_redriven(
    command: Command, database: Database
) -> None:
    sent = await make_row(database, "submitted")
    done = command.run("dlq", "redrive", str(sent.id), *BY)
    assert (done.returncode, done.stdout) == (3, "")
    assert "what SES took, or what waits, is not sent again" in done.stderr
    assert command.run("dlq", "show", str(sent.id)).returncode == 3
    assert command.json("dlq", "redrive", "--all", *BY, code=5)["counts"] == {}
    assert await execute(database, "SELECT count(*) FROM audit_log") == 0


async def test_what_has_no_contents_any_more_is_not_redriven(
    command: Command, database: Database
) -> None:
    row = await failed(database, recipient="purged@example.com")
    purge = "UPDATE email_outbox SET purged = now(), subject = NULL, text = NULL WHERE id = $1"
    await execute(database, purge, row.id)
    assert command.json("dlq", "redrive", "--all", *BY)["counts"] == {"purged": 1}


async def test_messages_are_cancelled(command: Command, database: Database) -> None:
    pending = await make_row(database)
    sending = await make_row(database, "sending", recipient="b@example.com")
    done = command.run_as_process("cancel", str(pending.id), str(sending.id), *BY)
    assert done.returncode == 1
    assert f"{pending.id}  cancelled" in done.stdout
    assert "a call of SES is under way" in done.stdout
    assert command.json("cancel", str(pending.id), *BY)["counts"] == {"cancelled": 1}
    assert await execute(database, "SELECT by_whom FROM audit_log LIMIT 1") == "Ann"
