"""Rules of `mailstreams doctor` on the PostgreSQL server and the database in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from streams.domain.addresses import salt_fingerprint
from streams.domain.diagnosis import Finding, error, listed, ok, warning

_OLDEST: Final = 150_000
# Senders compare the time of heartbeats, which is the server's, with their own; and one that is slow to answer looks ahead.
_CLOCKS_WARN_S: Final = 5.0
_CLOCKS_FAIL_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What the server says of itself. slots and senders: how many others than the relay use; standbys: those connected.

    ahead_s: how far its clock is ahead of ours.
    """

    version: int
    in_recovery: bool
    read_only: bool
    wal_level: str
    max_slots: int
    slots: int
    max_senders: int
    senders: int
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    synchronous_standby_names: str
    standbys: int
    role: str
    replication_attribute: bool
    ahead_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """How a session is that asks for what the stages ask for. refused: what the server or a pooler says to these settings."""

    pooled: bool
    refused: str | None
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """there: it has the tables. applied: None if that may not be read. missing: what is not granted, by stage.

    rows_in_default: False too if that may not be read.
    """

    there: bool
    applied: Sequence[str] | None
    expected: Sequence[str]
    changed: Sequence[str]
    fingerprint: str | None
    missing: Mapping[str, Sequence[str]]
    partitions_ahead: int
    rows_in_default: bool


def judge_session(session: Session, pooler: str = "none") -> list[Finding]:
    """pooler: what MAILSTREAMS_POSTGRES_POOLER says; the stages then send no settings at the start of a session."""
    if pooler != "none" and (session.pooled or session.refused is not None):
        return [ok("postgres.pooler", f"a pooler stands in the way, set as one in {pooler} mode")]
    if pooler != "none":
        return [
            warning(
                "postgres.pooler",
                f"MAILSTREAMS_POSTGRES_POOLER is {pooler}, and the session is PostgreSQL's own",
                "leave MAILSTREAMS_POSTGRES_POOLER out: each statement costs more with it",
            )
        ]
    if session.refused is not None:
        return [
            error(
                "postgres.pooler",
                f"the settings that every stage asks for at the start of a session are refused ({session.refused}): "
                "PgBouncer does that with those that it does not know",
            )
        ]
    if session.pooled and not session.kept:
        return [
            error(
                "postgres.pooler",
                "a pooler such as PgBouncer stands in the way and drops the settings of the session (ignore_startup_parameters): "
                "the stages do not start",
            )
        ]
    if session.pooled:
        return [
            error(
                "postgres.pooler",
                "a pooler such as PgBouncer stands in the way, and no stage is told of it: none starts",
            )
        ]
    return [ok("postgres.pooler", "the session is PostgreSQL's own")]


def judge_server(server: Server, *, polling: bool = False) -> list[Finding]:
    """polling: the relay needs no logical decoding."""
    decoding = [
        _wal_level(server),
        _room("postgres.slots", "max_replication_slots", server.max_slots, server.slots, 1),
        _room("postgres.wal-senders", "max_wal_senders", server.max_senders, server.senders, 2),
    ]
    return [
        _version(server),
        _writable(server),
        *([] if polling else decoding),
        _clock(server),
        _durability(server),
        _standbys(server),
    ]


def _version(server: Server) -> Finding:
    major = server.version // 10_000
    if server.version < _OLDEST:
        return error("postgres.version", f"the server is PostgreSQL {major}")
    return ok("postgres.version", f"PostgreSQL {major}.{server.version % 10_000}")


def _writable(server: Server) -> Finding:
    if server.in_recovery:
        return error("postgres.writable", "the server is a standby (in recovery)")
    if server.read_only:
        return error("postgres.writable", "sessions are read-only (default_transaction_read_only)")
    return ok("postgres.writable", "a primary that takes changes")


def _wal_level(server: Server) -> Finding:
    if server.wal_level != "logical":
        return error("postgres.wal-level", f"wal_level is {server.wal_level}")
    return ok("postgres.wal-level", "wal_level is logical")


def _room(id_: str, setting: str, most: int, others: int, wanted: int) -> Finding:
    found = f"{others} of {setting} = {most} are in use by others than the relay"
    if others >= most:
        return error(id_, found)
    return warning(id_, found) if others + wanted > most else ok(id_, found)


def _clock(server: Server) -> Finding:
    found = f"the server's clock and this machine's differ by {abs(server.ahead_s):.1f} s"
    apart = abs(server.ahead_s)
    if apart > _CLOCKS_FAIL_S:
        return error("postgres.clock", found)
    return (
        warning("postgres.clock", found) if apart > _CLOCKS_WARN_S else ok("postgres.clock", found)
    )


def _durability(server: Server) -> Finding:
    off = [
        f"{name} = {value}"
        for name, value in (
            ("fsync", server.fsync),
            ("full_page_writes", server.full_page_writes),
        )
        if value == "off"
    ]
    if off:
        return error(
            "postgres.durability", f"{listed(off)}: after a crash of the server nothing holds"
        )
    commit = server.synchronous_commit
    if commit == "off":
        return warning(
            "postgres.durability",
            "synchronous_commit is off for whoever does not ask: a crash may forget mail that your application saw committed, "
            "and each waits up to 0.4 s for the relay; the stages ask for it themselves",
        )
    if commit in ("local", "remote_write") and server.synchronous_standby_names:
        return warning(
            "postgres.durability",
            f"synchronous_commit is {commit} for whoever does not ask: a failover may forget mail that your application saw committed",
        )
    return ok("postgres.durability", f"fsync is on, synchronous_commit is {commit}")


def _standbys(server: Server) -> Finding:
    names, connected = server.synchronous_standby_names, server.standbys
    if names and not connected:
        return error(
            "postgres.standbys",
            "synchronous_standby_names is set and no standby is connected: every commit waits for one",
            "start the standby, or empty synchronous_standby_names",
        )
    if connected and not names:
        return warning(
            "postgres.standbys",
            f"{connected} standbys are connected and synchronous_standby_names is empty: no commit waits for them",
        )
    if connected:
        return ok("postgres.standbys", f"{connected} standbys are connected, commits wait for them")
    return ok(
        "postgres.standbys",
        "no standby is connected: what the disk of the server loses is lost",
    )


def judge_database(database: Database, *, salt: bytes | None) -> list[Finding]:
    findings = [_schema(database)]
    if database.there:
        findings += [_salt(database, salt), _privileges(database), _partitions(database)]
    return findings


def _schema(database: Database) -> Finding:
    if not database.there:
        return error("postgres.schema", "the database has no schema of mailstreams")
    if database.applied is None:
        return warning(
            "postgres.schema",
            "the role may not read schema_migration, so it is not known which migrations are applied",
            "GRANT SELECT ON schema_migration to the role",
        )
    unknown = sorted(set(database.applied) - set(database.expected))
    if unknown:
        return error("postgres.schema", f"this version does not know the migration {unknown[-1]}")
    missing = sorted(set(database.expected) - set(database.applied))
    if missing:
        return error("postgres.schema", f"not applied: {listed(missing)}")
    if database.changed:
        return error(
            "postgres.schema",
            f"the database was made by another text of {listed(database.changed)}",
            "make the database anew: before the first release the text of a migration may change",
        )
    return ok("postgres.schema", f"{len(database.expected)} migrations are applied")


def _salt(database: Database, salt: bytes | None) -> Finding:
    if database.fingerprint is None:
        return error(
            "postgres.salt", "the database has no salt yet", 'run "mailstreams migrate" first'
        )
    if salt is None:
        return error("postgres.salt", "there is no salt to compare with the database's")
    mine = salt_fingerprint(salt)
    if mine != database.fingerprint:
        return error(
            "postgres.salt",
            f"the salt that is set (fingerprint {mine}) is not the database's (fingerprint {database.fingerprint})",
        )
    return ok("postgres.salt", f"the salt is the database's (fingerprint {mine})")


def _privileges(database: Database) -> Finding:
    lacking = {stage: names for stage, names in database.missing.items() if names}
    if lacking:
        told = "; ".join(f"{stage}: {listed(names)}" for stage, names in lacking.items())
        return error("postgres.privileges", f"not granted to the role: {told}")
    return ok("postgres.privileges", "the role may do what the stages do")


def _partitions(database: Database) -> Finding:
    ahead = database.partitions_ahead
    if ahead >= 2 and not database.rows_in_default:
        return ok("postgres.partitions", f"those of today and {ahead - 1} more days are there")
    found = f"{ahead} of today's and tomorrow's are there" if ahead < 2 else ""
    if database.rows_in_default:
        found = f"{found}{', ' if found else ''}outbox_feed_default has rows"
    return warning("postgres.partitions", found)
