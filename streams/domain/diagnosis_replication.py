"""Rules of `mailstreams doctor` on the replication connection."""

from dataclasses import dataclass
from datetime import datetime

from streams.domain.diagnosis import Finding, error, ok, warning
from streams.domain.diagnosis_postgres import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which database of which server a connection leads to: the server is known by the moment of its start."""

    database: str
    started: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """A replication connection. expected: where an ordinary one leads to, None if there was none."""

    pooled: bool
    place: Place
    expected: Place | None
    timeout_s: float
    expected_timeout_s: float


def judge_role(server: Server, *, works: bool) -> Finding:
    """works: it made a replication connection, which some managed servers allow without the attribute."""
    if works:
        return ok("replication.role", f"the role {server.role} may replicate")
    if server.replication_attribute:
        return ok("replication.role", f"the role {server.role} has the attribute REPLICATION")
    return error("replication.role", f"the role {server.role} lacks the attribute REPLICATION")


def judge_replication(replication: Replication) -> list[Finding]:
    findings = [ok("replication.reach", "PostgreSQL takes a replication connection")]
    if replication.pooled:
        findings.append(
            error("replication.pooler", "a pooler such as PgBouncer answers the relay's connection")
        )
    else:
        findings.append(ok("replication.pooler", "the connection is PostgreSQL's own"))
    if replication.expected is not None:
        findings.append(_same(replication.place, replication.expected))
    wanted, effective = replication.expected_timeout_s, replication.timeout_s
    if effective == wanted:
        findings.append(
            ok("replication.timeout", f"a dead relay frees the slot after {wanted:g} s")
        )
    else:
        when = f"only after {effective:g} s" if effective else "never"
        findings.append(
            warning("replication.timeout", f"a dead relay frees the slot {when}, not {wanted:g} s")
        )
    return findings


def _same(found: Place, expected: Place) -> Finding:
    if found.database != expected.database:
        return error(
            "replication.same",
            f"the replication connection leads to database {found.database}, the ordinary one to {expected.database}",
        )
    if found.started != expected.started:
        return error("replication.same", "the two connections lead to different servers")
    return ok("replication.same", f"both lead to database {found.database}")
