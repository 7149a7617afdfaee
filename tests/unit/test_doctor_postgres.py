"""The doctor's rules on PostgreSQL: each fact that is wrong, its id and how bad it is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streams.domain.addresses import salt_fingerprint
from streams.domain.diagnosis import Finding, Level
from streams.domain.diagnosis_polling import Polling, judge_polling
from streams.domain.diagnosis_postgres import (
    Database,
    Server,
    Session,
    judge_database,
    judge_server,
    judge_session,
)
from streams.domain.diagnosis_replication import Place, Replication, judge_replication, judge_role

SALT = b"0123456789abcdef"
GOOD = Server(
    version=150_018,
    in_recovery=False,
    read_only=False,
    wal_level="logical",
    max_slots=10,
    slots=1,
    max_senders=10,
    senders=1,
    fsync="on",
    full_page_writes="on",
    synchronous_commit="on",
    synchronous_standby_names="",
    standbys=0,
    role="mailstreams",
    replication_attribute=True,
    ahead_s=0.1,
)
MIGRATED = Database(
    there=True,
    applied=["0001", "0002"],
    expected=["0001", "0002"],
    changed=(),
    fingerprint=salt_fingerprint(SALT),
    missing={"sender": ()},
    partitions_ahead=4,
    rows_in_default=False,
)
PLACE = Place(database="mail", started=datetime(2026, 1, 1, tzinfo=UTC))
STREAM = Replication(
    pooled=False, place=PLACE, expected=PLACE, timeout_s=10.0, expected_timeout_s=10.0
)


def levels(findings: list[Finding]) -> dict[str, str]:
    """Those that are not right."""
    return {f.id: str(f.level) for f in findings if f.level is not Level.OK}


def test_a_server_as_needed_is_right() -> None:
    assert levels(judge_server(GOOD)) == {}
    assert levels(judge_database(MIGRATED, salt=SALT)) == {}
    assert levels(judge_replication(STREAM)) == {}


@pytest.mark.parametrize(
    ("wrong", "id_", "level"),
    [
        ({"version": 140_010}, "postgres.version", "error"),
        ({"in_recovery": True}, "postgres.writable", "error"),
        ({"read_only": True}, "postgres.writable", "error"),
        ({"wal_level": "replica"}, "postgres.wal-level", "error"),
        ({"max_slots": 1, "slots": 1}, "postgres.slots", "error"),
        ({"max_senders": 1, "senders": 1}, "postgres.wal-senders", "error"),
        ({"max_senders": 2, "senders": 1}, "postgres.wal-senders", "warning"),
        ({"ahead_s": 6.0}, "postgres.clock", "warning"),
        ({"ahead_s": -21.0}, "postgres.clock", "error"),
        ({"fsync": "off"}, "postgres.durability", "error"),
        ({"full_page_writes": "off"}, "postgres.durability", "error"),
        ({"synchronous_commit": "off"}, "postgres.durability", "warning"),
        ({"standbys": 1}, "postgres.standbys", "warning"),
        ({"synchronous_standby_names": "*"}, "postgres.standbys", "error"),
    ],
)
def test_a_server_that_is_not_as_needed_is_told(
    wrong: dict[str, Any], id_: str, level: str
) -> None:
    assert levels(judge_server(replace(GOOD, **wrong))) == {id_: level}


def test_a_commit_that_does_not_wait_for_the_disk_of_its_standby_is_a_warning() -> None:
    replicated = replace(
        GOOD, standbys=1, synchronous_standby_names="*", synchronous_commit="remote_write"
    )
    assert levels(judge_server(replicated)) == {"postgres.durability": "warning"}
    assert levels(judge_server(replace(replicated, synchronous_commit="remote_apply"))) == {}


@pytest.mark.parametrize(
    ("wrong", "id_", "level"),
    [
        ({"there": False}, "postgres.schema", "error"),
        ({"applied": None}, "postgres.schema", "warning"),
        ({"applied": ["0001"]}, "postgres.schema", "error"),
        ({"applied": ["0001", "0002", "0003"]}, "postgres.schema", "error"),
        ({"changed": ["0001"]}, "postgres.schema", "error"),
        ({"fingerprint": None}, "postgres.salt", "error"),
        ({"fingerprint": salt_fingerprint(b"another salt it is")}, "postgres.salt", "error"),
        ({"missing": {"sender": ["INSERT on pause"]}}, "postgres.privileges", "error"),
        ({"partitions_ahead": 1}, "postgres.partitions", "warning"),
        ({"rows_in_default": True}, "postgres.partitions", "warning"),
    ],
)
def test_a_database_that_is_not_as_needed_is_told(
    wrong: dict[str, Any], id_: str, level: str
) -> None:
    assert levels(judge_database(replace(MIGRATED, **wrong), salt=SALT)) == {id_: level}


def test_a_missing_salt_of_the_process_is_an_error() -> None:
    assert levels(judge_database(MIGRATED, salt=None)) == {"postgres.salt": "error"}


def test_a_privilege_that_is_missing_is_told_with_its_stage() -> None:
    lacking = replace(MIGRATED, missing={"relay": (), "sender": ["INSERT on pause"]})
    [found] = [f.found for f in judge_database(lacking, salt=SALT) if f.level is Level.ERROR]
    assert "sender: INSERT on pause" in found
    assert "relay" not in found


@pytest.mark.parametrize(
    ("session", "level"),
    [
        (Session(pooled=False, refused=None, kept=True), "ok"),
        (Session(pooled=True, refused=None, kept=True), "error"),
        (Session(pooled=True, refused=None, kept=False), "error"),
        (Session(pooled=False, refused="unsupported startup parameter: jit", kept=False), "error"),
    ],
)
def test_a_pooler_that_no_stage_is_told_of_keeps_them_from_starting(
    session: Session, level: str
) -> None:
    [finding] = judge_session(session)
    assert (finding.id, finding.level) == ("postgres.pooler", level)


@pytest.mark.parametrize(
    ("session", "level"),
    [
        (Session(pooled=False, refused=None, kept=True), "warning"),
        (Session(pooled=True, refused=None, kept=False), "ok"),
        (Session(pooled=False, refused="unsupported startup parameter: jit", kept=False), "ok"),
    ],
)
def test_a_pooler_that_is_told_of_is_right(session: Session, level: str) -> None:
    [finding] = judge_session(session, "transaction")
    assert (finding.id, finding.level) == ("postgres.pooler", level)


def test_polling_needs_no_logical_decoding() -> None:
    plain = replace(GOOD, wal_level="replica", max_slots=0, max_senders=0)
    assert levels(judge_server(plain, polling=True)) == {}


@pytest.mark.parametrize(
    ("wrong", "level"),
    [
        ({}, "ok"),
        ({"streaming": True}, "error"),
        ({"index": False}, "error"),
        ({"cached": 20}, "error"),
        ({"slot": True}, "warning"),
        ({"shards": 0, "held": 0}, "warning"),
        ({"held": 3}, "error"),
    ],
)
def test_what_polling_lacks_is_told(wrong: dict[str, Any], level: str) -> None:
    right = Polling(index=True, cached=1, shards=4, held=4, slot=False, streaming=False)
    finding = judge_polling(replace(right, **wrong))
    assert (finding.id, finding.level) == ("relay.polling", level)


@pytest.mark.parametrize(
    ("wrong", "id_", "level"),
    [
        ({"pooled": True}, "replication.pooler", "error"),
        ({"place": replace(PLACE, database="other")}, "replication.same", "error"),
        (
            {"place": replace(PLACE, started=PLACE.started + timedelta(seconds=1))},
            "replication.same",
            "error",
        ),
        ({"timeout_s": 0.0}, "replication.timeout", "warning"),
        ({"timeout_s": 60.0}, "replication.timeout", "warning"),
    ],
)
def test_a_replication_connection_that_is_not_as_needed_is_told(
    wrong: dict[str, Any], id_: str, level: str
) -> None:
    assert levels(judge_replication(replace(STREAM, **wrong))) == {id_: level}


def test_what_an_ordinary_connection_could_not_say_is_not_compared() -> None:
    findings = judge_replication(replace(STREAM, expected=None))
    assert "replication.same" not in {finding.id for finding in findings}


def test_a_role_that_replicates_needs_no_attribute() -> None:
    without = replace(GOOD, replication_attribute=False)
    assert judge_role(without, works=False).level is Level.ERROR
    assert judge_role(without, works=True).level is Level.OK
    assert judge_role(GOOD, works=False).level is Level.OK
