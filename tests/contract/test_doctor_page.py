"""docs/doctor.md has the doctor's list; the privileges that it asks for are those that the queries of each stage need."""

import re
from pathlib import Path

from streams.domain.diagnosis_checks import CHECKS
from streams.domain.diagnosis_privileges import POLLING, STAGES

ROOT = Path(__file__).parents[2]
CODE = "\n".join(
    path.read_text(encoding="utf-8")
    for path in [*(ROOT / "streams" / "domain").glob("diagnosis_*.py"), ROOT / "streams/doctor.py"]
    if path.stem != "diagnosis_checks"
)
ADAPTERS = {
    "relay": ["relay_store"],
    POLLING: ["relay_poll_store"],
    "sender": ["outbox_store", "suppression_announcer"],
    "events": ["intake_watch_log"],
    "recipients": [
        "facts_store",
        "facts_transaction",
        "suppression_rows",
        "evidence_page",
        "intake_watch_log",
    ],
    "scheduler": ["schedule_store", "upkeep_store", "provider_list_store", "suppression_rows"],
    "api": ["accept_store"],
}
ORDER = ("SELECT", "INSERT", "UPDATE", "DELETE")
SCHEMA = (ROOT / "sql/schema.sql").read_text(encoding="utf-8")
TABLES = set(re.findall(r"CREATE TABLE (\w+)", SCHEMA))
RETURNING = re.compile(
    r"INSERT INTO\s+(\w+)(?:(?!\n\)|INSERT INTO|(?<!DO )UPDATE |DELETE FROM).)*?RETURNING\s+(?!1\b)",
    re.DOTALL,
)
# Those that run with the privileges of whoever calls them.
FUNCTIONS = {
    name: body
    for name, head, body in re.findall(
        r"CREATE FUNCTION (\w+)\((.*?)AS \$\$(.*?)\$\$;", SCHEMA, re.DOTALL
    )
    if "SECURITY DEFINER" not in head and "RETURNS trigger" not in head
}


def test_the_page_has_every_id_with_what_it_looks_at_and_its_remedy() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split(" | "))
        for line in page.splitlines()
        if line.startswith("| `")
    ]
    assert rows == [(f"`{check.id}`", check.looks_at, check.remedy) for check in CHECKS]


def test_every_id_is_told_by_some_rule_and_none_is_there_twice() -> None:
    ids = [check.id for check in CHECKS]
    assert len(ids) == len(set(ids))
    assert [id_ for id_ in ids if f'"{id_}"' not in CODE] == []


def needed(adapters: list[str]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for adapter in adapters:
        code = (ROOT / "streams" / "adapters" / f"{adapter}.py").read_text(encoding="utf-8")
        for name in set(re.findall(r'"([a-z_0-9]+)"', code)):
            path = ROOT / "sql" / "queries" / f"{name}.sql"
            if path.exists():
                for table, privileges in privileges_of(path.read_text(encoding="utf-8")):
                    if table in TABLES:
                        found.setdefault(table, set()).update(privileges)
    return {
        table: " ".join(right for right in ORDER if right in rights)
        for table, rights in found.items()
    }


def privileges_of(query: str) -> list[tuple[str, tuple[str, ...]]]:
    text = re.sub(r"--.*", "", query)
    found: list[tuple[str, tuple[str, ...]]] = []
    for pattern, privileges in (
        (r"\b(?:FROM|JOIN|USING)\s+(\w+)", ("SELECT",)),
        (r"INSERT INTO\s+(\w+)", ("INSERT",)),
        (r"\bUPDATE\s+(\w+)", ("SELECT", "UPDATE")),
        (r"DELETE FROM\s+(\w+)", ("SELECT", "DELETE")),
    ):
        found += [(table, privileges) for table in re.findall(pattern, text)]
    for statement in text.split("INSERT INTO ")[1:]:
        table = statement.split(maxsplit=1)[0]
        if "ON CONFLICT" in statement:
            found.append((table, ("SELECT",)))
        if "DO UPDATE" in statement:
            found.append((table, ("UPDATE",)))
    # What an insert gives back is read.
    found += [(table, ("SELECT",)) for table in RETURNING.findall(text)]
    for lock in re.finditer(r"FOR (?:NO KEY )?UPDATE(?: OF (\w+(?:, \w+)*))?", text):
        before = text[: lock.start()]
        for alias in lock[1].split(", ") if lock[1] else ():
            found.append((re.findall(rf"(\w+) (?:AS )?{alias}\b", before)[-1], ("UPDATE",)))
        if not lock[1]:
            found.append((re.findall(r"FROM (\w+)", before)[-1], ("UPDATE",)))
    for name, body in FUNCTIONS.items():
        if re.search(rf"\b{name}\(", text):
            found += privileges_of(body)
    return found


def test_the_privileges_are_those_that_the_queries_of_each_stage_need() -> None:
    assert {stage: dict(tables) for stage, tables in STAGES.items()} == {
        stage: needed(adapters) for stage, adapters in ADAPTERS.items()
    }
