"""`mailstreams suppressions` as an operator runs it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.adapters.suppression_admin import By, SuppressionAdmin, Where
from streams.adapters.suppression_announcer import SuppressionAnnouncer
from streams.domain.addresses import RecipientKey, recipient_key
from streams.domain.heartbeats import heartbeat_keys
from streams.domain.partitioner import partition_of
from tests.command_line import Done, as_process, mailstreams
from tests.conftest import SALT
from tests.integration.outbox_rows import execute, fetch, make_row
from tests.integration.relay_setup import eventually
from tests.integration.suppression_truth import keys_whose_last_record_differs

pytestmark = pytest.mark.servers

NAMES = ("ann@example.com", "bob@example.com", "eve@example.com")
BY = ("--by", "Ann", "--why", "she asked")


class Command:
    """The command on one database."""

    def __init__(self, dsn: str) -> None:
        self.environment = {
            "MAILSTREAMS_POSTGRES_DSN": dsn,
            "MAILSTREAMS_RECIPIENT_SALT": SALT.decode(),
            "AWS_REGION": "eu-central-1",
        }

    def run(self, *arguments: str, **changes: str) -> Done:
        return mailstreams("suppressions", *arguments, environment=self.environment | changes)

    def run_as_process(self, *arguments: str, **changes: str) -> Done:
        return as_process("suppressions", *arguments, environment=self.environment | changes)

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refusal(self, *arguments: str, **changes: str) -> str:
        done = self.run(*arguments, **changes)
        assert done.returncode == 2
        assert done.stdout == ""
        return done.stderr


@pytest.fixture
def command(database_dsn: str) -> Command:
    return Command(database_dsn)


def key(address: str) -> str:
    return recipient_key(address, SALT)


async def test_a_recipient_is_suppressed_by_hand_seen_and_lifted(
    command: Command, database: Database
) -> None:
    ann = key("ann@example.com")
    added = command.json("add", "Ann@Example.com", "--reason", "manual", *BY)
    assert added == {"recipient_key": ann, "outcome": "added"}
    assert await keys_whose_last_record_differs(database) == 0
    story = command.json("list", ann)
    (row,) = story["suppressions"]
    assert (row["tenant"], row["lane"], row["reason"]) == ("*", "*", "manual")
    assert (row["by_whom"], row["why"], row["expires"]) == ("Ann", "she asked", None)
    text = command.run_as_process("list", "ann@example.com").stdout
    assert "Ann: she asked" in text

    lifted = command.json("lift", "ann@example.com", "--by", "Bob", "--why", "a mistake")
    assert [row["reason"] for row in lifted["lifted"]] == ["manual"]
    assert lifted["unlisting"]["has_address"] is True
    story = command.json("list", "ann@example.com")
    assert story["suppressions"] == []
    assert [(one["by_whom"], one["why"]) for one in story["lifts"]] == [("Bob", "a mistake")]
    assert "is not suppressed" in command.run("list", ann).stdout
    assert await keys_whose_last_record_differs(database) == 0

    command.json("add", "ann@example.com", "--reason", "manual", *BY)
    assert len(command.json("list")["suppressions"]) == 1


async def test_a_time_only_grows(command: Command, database: Database) -> None:
    arguments = ("ann@example.com", "--reason", "manual", *BY)
    outcomes = [
        command.json("add", *arguments, *more)["outcome"]
        for more in (("--days", "2"), ("--days", "1"), ("--days", "3"), (), ("--days", "9"))
    ]
    assert outcomes == ["added", "was there", "extended", "extended", "was there"]
    assert await execute(database, "SELECT expires FROM suppression") is None
    assert await execute(database, "SELECT count(*) FROM audit_log") == 5


async def test_a_lift_is_as_narrow_as_it_is_asked_to_be(
    command: Command, database: Database
) -> None:
    ann = key("ann@example.com")
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, tenant, lane, reason, evidence_id, evidence_at) VALUES "
        "($1, 'shop', '*', 'complaint', 'e1', now()), ($1, 'shop', 'bulk', 'unsubscribed', 'e2', now()), ($1, '*', '*', 'hard-bounce', 'e3', now()) RETURNING true",
        ann,
    )
    lifted = command.json("lift", ann, "--tenant", "shop", "--lane", "bulk", *BY)["lifted"]
    assert [row["reason"] for row in lifted] == ["unsubscribed"]
    lifted = command.json("lift", ann, "--reason", "hard-bounce", *BY)
    assert [row["reason"] for row in lifted["lifted"]] == ["hard-bounce"]
    assert lifted["unlisting"]["has_address"] is False
    assert "nobody here knows the address" in command.run("list", ann).stdout
    assert [row["recipient_key"] for row in command.json("unlistings")["without_address"]] == [ann]
    assert [row["reason"] for row in command.json("list")["suppressions"]] == ["complaint"]
    # Told again by its address, so that the list can be cleared.
    assert command.json("lift", "ann@example.com", *BY)["unlisting"]["has_address"] is True
    assert command.json("unlistings")["without_address"] == []


async def test_a_file_is_imported_whole_and_once(
    command: Command, database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "export.csv"
    lines = [f'{n},"user{n}@example.com",BOUNCE' for n in range(20_000)]
    file.write_text("\n".join(["id,Email address,Reason", *lines, *lines[:10]]))
    before = await execute(database, "SELECT count(*) FROM outbox_feed")
    done = command.json("import", str(file), *BY, "--tenant", "shop")
    assert done == {"recipients": 20_000, "added": 20_000, "extended": 0, "left_out": 0}
    assert await execute(database, "SELECT count(*) - $1 FROM outbox_feed", before) == 20_000
    assert await keys_whose_last_record_differs(database) == 0
    (found,) = command.json("list", "user7@example.com")["suppressions"]
    assert (found["tenant"], found["by_whom"], found["why"]) == ("shop", "Ann", "she asked")
    again = command.json("import", str(file), *BY, "--tenant", "shop")
    assert again == {"recipients": 20_000, "added": 0, "extended": 0, "left_out": 0}
    page = command.json("list", "--limit", "2", "--reason", "manual")["suppressions"]
    after = command.json("list", "--limit", "1", "--after", page[0]["recipient_key"])
    assert after["suppressions"] == page[1:]
    audit = await fetch(database, "SELECT by_whom, action, detail::text FROM audit_log")
    assert [row["action"] for row in audit] == ["import suppressions"] * 2
    assert "example.com" not in str(audit)


async def test_a_bad_line_imports_nothing_unless_it_may_be_left_out(
    command: Command, database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "list.txt"
    file.write_text("ann@example.com\nnobody\nbob@example.com\n")
    told = command.refusal("import", str(file), *BY)
    assert "line 2 has no mail address, nothing was imported" in told
    assert "nobody" not in told
    assert await execute(database, "SELECT count(*) FROM suppression") == 0
    assert await execute(database, "SELECT count(*) FROM audit_log") == 0
    done = command.json("import", str(file), *BY, "--skip-bad")
    assert (done["added"], done["left_out"]) == (2, 1)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
async def test_bytes_on_standard_input_that_are_no_text_import_nothing(
    command: Command, database: Database, locale: str
) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "streams", "suppressions", "import", "-", *BY],
        env=os.environ | command.environment | {"LC_ALL": locale},
        input=b"\xef\xbb\xbfann@example.com\nj\xf6rg@example.com\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert b"is not UTF-8 text, nothing was imported" in done.stderr
    assert await execute(database, "SELECT count(*) FROM suppression") == 0


async def test_pages_show_every_row_of_every_recipient(
    command: Command, database: Database
) -> None:
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, tenant, reason) SELECT md5(n::text), t, 'manual' FROM generate_series(1, 5) AS n, unnest(ARRAY['a', 'b', 'c']) AS t",
    )
    seen: list[tuple[str, str]] = []
    while page := command.json("list", "--limit", "4", *(("--after", seen[-1][0]) if seen else ()))[
        "suppressions"
    ]:
        seen += [(row["recipient_key"], row["tenant"]) for row in page]
    assert len(seen) == 15
    assert seen == sorted(set(seen))


async def test_a_page_tells_where_the_next_one_begins(command: Command, database: Database) -> None:
    nothing = command.run("list")
    assert (nothing.stdout, nothing.stderr) == ("", "no suppression was found\n")
    await execute(
        database,
        "INSERT INTO suppression (recipient_key, reason) SELECT lpad(n::text, 32, '0'), 'manual' FROM generate_series(1, 2) AS n",
    )
    first = f"{1:032}"
    page = command.run("list", "--limit", "1")
    assert page.stderr == f"more follow: go on with --after {first}\n"
    assert command.json("list", "--limit", "1")["next"] == first
    assert command.json("list", "--limit", "1", "--after", first)["next"] is None
    assert command.run("list", "--limit", "2").stderr == ""


@pytest.mark.parametrize("how", ["add", "import"])
async def test_a_suppression_by_hand_and_a_lift_wait_for_each_other_in_one_order(
    database: Database, how: str
) -> None:
    ann = RecipientKey(key("ann@example.com"))
    admin, by = SuppressionAdmin(database), By(whom="Ann", why="she asked")
    day = timedelta(days=1)
    await admin.add(ann, Where(), by, day)
    async with database.transaction() as lifting:
        await lifting.execute(query("lock_suppressions"), [ann])
        if how == "add":
            work: Coroutine[Any, Any, object] = admin.add(ann, Where(), by, None)
        else:
            work = admin.import_keys([ann], Where(), by, lasting=None, left_out=lambda: 0)
        adding = asyncio.create_task(work)

        async def waits() -> bool:
            waiting = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            return bool(await execute(database, waiting))

        await eventually(waits)
        lifted = await lifting.fetch(
            query("lift_recipient"), *(ann, "*", "*", "*", "Bob", "a mistake", None)
        )
    assert [row["reason"] for row in lifted] == ["manual"]
    await adding
    assert await execute(database, "SELECT count(*) FROM suppression WHERE expires IS NULL") == 1
    assert await keys_whose_last_record_differs(database) == 0


async def test_asking_for_the_provider_list_again_is_seen(
    command: Command, database: Database
) -> None:
    (one,) = command.json("import-provider")["imports"]
    assert (one["scope"], one["finished"]) == ("eu-central-1", None)
    assert "waits for the scheduler" in command.run("import-provider", "--status").stdout
    await execute(database, "UPDATE provider_list SET finished = now() RETURNING true")
    (one,) = command.json("import-provider", "--status")["imports"]
    assert one["finished"] is not None
    (one,) = command.json("import-provider")["imports"]
    assert one["finished"] is None


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("list", "nobody"), "'nobody' is neither a mail address nor a recipient key"),
        (("list", "--reason", "spite"), "the reasons are hard-bounce, complaint"),
        (("list", "--after", "ann"), "--after 'ann': a recipient key has 32 hex digits"),
        (("lift", "nobody", *BY), "neither a mail address nor a recipient key"),
        (("lift", "a@example.com", "--reason", "spite", *BY), "the reasons are"),
        (("lift", "a@example.com", "--lane", "express", *BY), "the lanes are transactional, bulk"),
        (("lift", "a@example.com", "--tenant", "a b", *BY), "a tenant has 1 to 64"),
        (("lift", "a@example.com", "--by", " ", "--why", "x"), "--by is empty"),
        (("add", "a@example.com", "--reason", "complaint", *BY), "only manual can be put in"),
        (("add", "a@example.com", "--reason", "manual", "--days", "0", *BY), "more than 0"),
        (("import", "/nonexistent/file", *BY), "cannot be read: No such file"),
    ],
)
def test_bad_input_is_one_clear_sentence(
    command: Command, arguments: tuple[str, ...], what: str
) -> None:
    told = command.refusal(*arguments)
    assert what in told
    assert len(told.strip().splitlines()) == 1


def test_files_without_addresses_are_refused_in_a_sentence(
    command: Command, tmp_path: Path
) -> None:
    table, binary = tmp_path / "table.csv", tmp_path / "binary"
    table.write_text("name,town\nAnn,Ulm\n")
    binary.write_bytes(b"a@example.com\n\xff\xfe\n")
    assert "neither an address nor one column" in command.refusal("import", str(table), *BY)
    table.write_text("ann@example.com,bob@example.com\n")
    assert "has several addresses" in command.refusal("import", str(table), *BY)
    assert "is not UTF-8 text, nothing was imported" in command.refusal("import", str(binary), *BY)


def test_another_salt_is_refused(command: Command) -> None:
    other = {"MAILSTREAMS_RECIPIENT_SALT": "another salt of some length"}
    done = command.run_as_process("list", **other)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not the salt of this database" in done.stderr
    assert command.refusal("list", **other) == done.stderr


async def test_a_lift_by_key_finds_the_address_in_mail_of_ours(
    command: Command, database: Database
) -> None:
    row = await make_row(database, "submitted", recipient="user1@example.com")
    await execute(
        database,
        "INSERT INTO email_event (event_id, recipient_key, type, at, outbox_id, payload) VALUES ('e1', $1, 'bounced', now(), $2, '{}') RETURNING true",
        row.key,
        row.id,
    )
    assert command.json("lift", row.key, *BY)["unlisting"]["has_address"] is True


async def told(database: Database, key_: str) -> list[str | None]:
    """What the feed says of a recipient, oldest first."""
    rows = await fetch(
        database, "SELECT payload FROM outbox_feed WHERE aggregateid = $1 ORDER BY seq", key_
    )
    return [row["payload"] for row in rows]


async def test_everything_is_told_again_also_that_nothing_is_left(
    command: Command, database: Database
) -> None:
    for name in ("ann", "bob", "eve"):
        command.json("add", f"{name}@example.com", "--reason", "manual", *BY)
    command.json("lift", "bob@example.com", *BY)
    done = command.json("republish", "--all", *BY)
    assert done == {"recipients": 3, "last": max(map(key, NAMES))}
    first, again = await told(database, key("ann@example.com"))
    assert first is not None
    assert again == first
    assert [p is None for p in await told(database, key("bob@example.com"))] == [False, True, True]
    assert await keys_whose_last_record_differs(database) == 0
    beats = await fetch(
        database,
        "SELECT aggregateid FROM outbox_feed WHERE payload -> 'republished' = 'true' AND seq > "
        "(SELECT max(seq) FROM outbox_feed WHERE aggregateid = $1)",
        key("ann@example.com"),
    )
    assert {row["aggregateid"] for row in beats} == set(heartbeat_keys(12))
    (entry,) = await fetch(
        database, "SELECT by_whom, why FROM audit_log WHERE action = 'republish'"
    )
    assert entry == {"by_whom": "Ann", "why": "she asked"}


async def test_one_recipient_or_one_partition_is_told_again(
    command: Command, database: Database
) -> None:
    for name in NAMES:
        command.json("add", name, "--reason", "manual", *BY)
    assert command.json("republish", "--recipient", NAMES[0], *BY)["recipients"] == 1
    counts = [len(await told(database, key(name))) for name in NAMES]
    assert counts == [2, 1, 1]
    mine = partition_of(key(NAMES[1]).encode(), 12)
    in_it = [name for name in NAMES if partition_of(key(name).encode(), 12) == mine]
    done = command.json("republish", "--partition", str(mine), *BY)
    assert done["recipients"] == len(in_it)
    after = [len(await told(database, key(name))) for name in NAMES]
    assert [b - a for a, b in zip(counts, after, strict=True)] == [n in in_it for n in NAMES]
    beats = await fetch(
        database, "SELECT aggregateid FROM outbox_feed WHERE payload -> 'republished' = 'true'"
    )
    assert [row["aggregateid"] for row in beats] == [heartbeat_keys(12)[mine]]


async def test_telling_again_goes_on_behind_a_recipient(
    command: Command, database: Database
) -> None:
    for name in NAMES:
        command.json("add", name, "--reason", "manual", *BY)
    first, *_, last = sorted(map(key, NAMES))
    assert command.json("republish", "--all", "--after", first, *BY) == {
        "recipients": 2,
        "last": last,
    }
    assert len(await told(database, first)) == 1


def test_what_cannot_be_told_again_is_refused(command: Command) -> None:
    for arguments, said in (
        ((), "give one of --all, --recipient and --partition"),
        (("--partition", "12"), "MAILSTREAMS_PARTITIONS is 12"),
        (("--all", "--after", "x"), "32 hex digits"),
    ):
        assert said in command.refusal("republish", *arguments, *BY)


async def test_announcing_draws_the_sequence_behind_the_one_that_a_reader_holds(
    database: Database,
) -> None:
    ann = RecipientKey(key("ann@example.com"))
    at = int(await execute(database, "SELECT nextval('outbox_feed_seq')"))
    await SuppressionAnnouncer(database).announce([ann], behind=at + 500)
    assert int(await execute(database, "SELECT max(seq) FROM outbox_feed")) > at + 500
