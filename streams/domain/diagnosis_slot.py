"""Rules of `mailstreams doctor` on the publication, the relay's slot, and who is at work."""

from dataclasses import dataclass
from typing import Final

from streams.domain.diagnosis import Finding, bytes_text, error, ok, seconds_text, warning
from streams.domain.slots import PLUGIN, PUBLICATION

WARN_AT: Final = 0.5
FAIL_AT: Final = 0.8
# Without a limit: what makes one look, whatever the disk.
_MUCH: Final = 10_000_000_000
# The relay stores a position every few seconds even if nothing is to be done.
_QUIET_S: Final = 60.0
_BEAT_LATE_S: Final = 15.0
_FIRST_FAILOVER: Final = 170_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """publishes_feed: every insert into the feed, under its own name. younger: made or altered behind where the slot stands."""

    exists: bool
    publishes_feed: bool
    younger: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The slot, and what limits it. holder: the application's name of who reads it. None where the server does not tell."""

    name: str
    plugin: str | None
    here: bool
    wal_status: str | None
    invalidation_reason: str | None
    active_pid: int | None
    holder: str | None
    inactive_s: float | None
    retained_bytes: int | None
    failover: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """keep_bytes: max_slot_wal_keep_size, None if unlimited. idle_timeout: as PostgreSQL 18 prints it, else None. disk_free: where the data directory can be looked at."""

    version: int
    keep_bytes: int | None
    standbys: int
    synchronized_standby_slots: str | None
    disk_free: int | None
    idle_timeout: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """Seconds since the relay stored a position and since a heartbeat was put into the feed; None: never."""

    checkpoint_age_s: float | None
    heartbeat_age_s: float | None


def judge_publication(publication: Publication) -> list[Finding]:
    if not publication.exists:
        return [error("publication.feed", f"the publication {PUBLICATION} is missing")]
    findings = [ok("publication.feed", f"{PUBLICATION} publishes every insert into the feed")]
    if not publication.publishes_feed:
        findings = [
            error(
                "publication.feed",
                f"{PUBLICATION} does not publish every insert into outbox_feed under its own name (table, insert, "
                "publish_via_partition_root, no row filter)",
                f"ALTER PUBLICATION {PUBLICATION} SET (publish = 'insert', publish_via_partition_root = true), and SET TABLE outbox_feed without a filter",
            )
        ]
    if publication.younger:
        findings.append(
            warning(
                "publication.age",
                f"{PUBLICATION} was made or altered after the position at which the slot stands",
            )
        )
    elif publication.younger is not None:
        findings.append(ok("publication.age", f"{PUBLICATION} is older than what the slot keeps"))
    return findings


def judge_slot(
    slot: Slot | None, name: str, around: Surroundings, *, relay_was_here: bool
) -> list[Finding]:
    if slot is None:
        again = "a relay had one before: " if relay_was_here else ""
        return [error("slot.exists", f"{again}there is no replication slot {name}")]
    findings = [ok("slot.exists", f"the slot {name} exists"), _usable(slot)]
    findings.append(_holder(slot, relay_was_here=relay_was_here))
    if slot.retained_bytes is not None:
        findings.append(_retention(slot.retained_bytes, around))
    findings += [_idle_timeout(around), _failover(slot, around)]
    return findings


def _usable(slot: Slot) -> Finding:
    if not slot.here or slot.plugin != PLUGIN:
        return error(
            "slot.usable",
            f"the slot is of another database or plugin ({slot.plugin or 'physical'})",
        )
    if slot.wal_status == "lost" or slot.invalidation_reason:
        why = slot.invalidation_reason or "the WAL that it needs was removed"
        return error("slot.usable", f"PostgreSQL has invalidated the slot: {why}")
    if slot.wal_status == "unreserved":
        return error(
            "slot.usable",
            "the slot loses its WAL at the next checkpoint (wal_status is unreserved)",
            "let the relay catch up at once, or raise max_slot_wal_keep_size and reload",
        )
    return ok("slot.usable", f"wal_status is {slot.wal_status}")


def _holder(slot: Slot, *, relay_was_here: bool) -> Finding:
    if slot.active_pid is None:
        tell = error if relay_was_here else warning
        since = "" if slot.inactive_s is None else f" for {seconds_text(slot.inactive_s)}"
        return tell("slot.holder", f"nobody reads the slot{since}: WAL is kept and nothing is sent")
    who = f"{slot.holder or 'somebody'} (server process {slot.active_pid})"
    if slot.holder is not None and slot.holder != "mailstreams relay":
        return warning("slot.holder", f"{who} reads the slot")
    return ok("slot.holder", f"{who} reads the slot")


def _retention(retained: int, around: Surroundings) -> Finding:
    keep, free = around.keep_bytes, around.disk_free
    if keep is None:
        disk = "" if free is None else f", {bytes_text(free)} of its disk are free"
        found = f"the slot keeps {bytes_text(retained)} of WAL and max_slot_wal_keep_size sets no limit{disk}"
        full = free is not None and retained > FAIL_AT * (retained + free)
        return error("slot.retention", found) if full else _unlimited(retained, found)
    found = (
        f"the slot keeps {bytes_text(retained)} of the {bytes_text(keep)} of max_slot_wal_keep_size"
    )
    if retained >= FAIL_AT * keep:
        return error("slot.retention", f"{found}: soon it is invalidated")
    if retained >= WARN_AT * keep:
        return warning("slot.retention", found)
    return ok("slot.retention", found)


def _unlimited(retained: int, found: str) -> Finding:
    if retained >= _MUCH:
        return error("slot.retention", found)
    return warning(
        "slot.retention",
        found,
        "set max_slot_wal_keep_size to what the disk can spare: a relay that stands still fills it otherwise",
    )


def _idle_timeout(around: Surroundings) -> Finding:
    if around.idle_timeout in (None, "0"):
        return ok("slot.idle-timeout", "a slot that nobody reads stays")
    return warning(
        "slot.idle-timeout", f"a slot that nobody reads for {around.idle_timeout} is invalidated"
    )


def _failover(slot: Slot, around: Surroundings) -> Finding:
    if not around.standbys:
        return ok("slot.failover", "no standby is connected, so there is nothing to fail over to")
    if around.version < _FIRST_FAILOVER:
        return warning(
            "slot.failover",
            "this PostgreSQL has no failover slots: after a failover the relay makes the slot anew and sends the whole feed again",
            "accept that (subscribers drop duplicates), or upgrade to PostgreSQL 17, or let Patroni or pg_failover_slots keep the slot",
        )
    if not slot.failover:
        return warning(
            "slot.failover",
            "the slot is not a failover slot: after a failover the relay makes it anew and sends the whole feed again",
        )
    if not around.synchronized_standby_slots:
        return warning(
            "slot.failover",
            "synchronized_standby_slots is empty: the relay may be told of transactions that a standby has not got",
        )
    return ok("slot.failover", "the slot is a failover slot and waits for its standbys")


def judge_working(working: Working) -> list[Finding]:
    return [
        _age(
            "relay.checkpoint", "a relay", "stored a position", working.checkpoint_age_s, _QUIET_S
        ),
        _age(
            "scheduler.heartbeat",
            "a scheduler",
            "put a heartbeat into the feed",
            working.heartbeat_age_s,
            _BEAT_LATE_S,
        ),
    ]


def _age(id_: str, who: str, did: str, age_s: float | None, most_s: float) -> Finding:
    if age_s is None:
        return warning(id_, f"{who} has never {did} in this database")
    found = f"{who} {did} {seconds_text(max(age_s, 0.0))} ago"
    return error(id_, f"{found}: none is at work") if age_s > most_s else ok(id_, found)
