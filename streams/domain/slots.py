"""Whether the replication slot still holds everything that the relay has not confirmed. Decided before each stream."""

from dataclasses import dataclass
from typing import Final

from streams.domain.acknowledgement import NOWHERE, Lsn, lsn_text
from streams.domain.errors import Misconfigured

PUBLICATION: Final = "mailstreams_feed"
PLUGIN: Final = "pgoutput"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Which cluster and history the replication connection speaks to."""

    system_id: str
    timeline: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A row of pg_replication_slots. safe_wal_size: bytes until the slot may be invalidated; None: no limit.

    lag_bytes: WAL behind the confirmed position; retained_bytes: WAL that is kept, which is more while a transaction is open;
    keep_bytes: max_slot_wal_keep_size, None without a limit.
    """

    plugin: str | None
    here: bool
    active_pid: int | None
    wal_status: str | None
    confirmed: Lsn | None
    lag_bytes: int
    safe_wal_size: int | None
    retained_bytes: int = 0
    keep_bytes: int | None = None

    @property
    def kept_share(self) -> float:
        """Of max_slot_wal_keep_size; 0 without a limit, 1 with a limit of nothing."""
        if self.keep_bytes is None:
            return 0.0
        return self.retained_bytes / self.keep_bytes if self.keep_bytes else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSlot:
    """A slot just made: where it starts, and the exported snapshot of what was there before."""

    start: Lsn
    snapshot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What the relay stored before it confirmed it to the slot, and where."""

    lsn: Lsn
    cluster: Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """The slot holds everything from `confirmed` on; what is before `start` was acknowledged, though the slot may not know it."""

    confirmed: Lsn
    start: Lsn


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Somebody else reads the slot; it will be free one day."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The slot may have passed rows that Kafka never got: the feed has to be sent again."""

    why: str


def judge(
    slot: Slot | None,
    checkpoint: Checkpoint | None,
    cluster: Cluster,
    *,
    own_pid: int | None = None,
) -> Usable | Held | Lost:
    """What the slot is worth. Misconfigured if it is not a slot for this relay at all.

    The relay stores a position before it confirms it, so a slot beyond the stored position was moved by somebody else.
    """
    if slot is None:
        return Lost(why="the slot does not exist")
    if not slot.here or slot.plugin != PLUGIN:
        raise Misconfigured(
            f"the replication slot belongs to another database or plugin ({slot.plugin}): "
            "name another one in MAILSTREAMS_RELAY_SLOT"
        )
    if slot.active_pid is not None and slot.active_pid != own_pid:
        return Held(why=f"the slot is read by the server process {slot.active_pid}")
    if slot.wal_status == "lost":
        return Lost(why="PostgreSQL has invalidated the slot")
    if slot.confirmed is None:
        return Held(why="the slot is being made")
    if checkpoint is None:
        return Usable(confirmed=slot.confirmed, start=slot.confirmed)
    if checkpoint.cluster.system_id != cluster.system_id:
        return Lost(why="the database was moved to another cluster")
    if checkpoint.lsn == NOWHERE:
        return Lost(why="an earlier recovery did not finish")
    if slot.confirmed > checkpoint.lsn:
        return Lost(
            why=f"the slot was moved to {lsn_text(slot.confirmed)} by somebody else, "
            f"the relay had confirmed up to {lsn_text(checkpoint.lsn)}"
        )
    # A slot goes back to what is on disk of it when the server is killed, before PostgreSQL 17 whenever it is restarted.
    same = checkpoint.cluster.timeline == cluster.timeline
    return Usable(confirmed=slot.confirmed, start=checkpoint.lsn if same else slot.confirmed)
