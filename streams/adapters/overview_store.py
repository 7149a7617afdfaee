"""What `mailstreams status` reads of PostgreSQL: small tables whole, of the outbox some pages of ids."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson

from streams.adapters.postgres import Database
from streams.domain.overview import Polling, Rate, RelaySlot, Waiting
from streams.domain.schedule import Backlog, first_id_of
from streams.domain.topics import Lane

# The walk of the scheduler is in its memory, and a whole one may be long: rows of these ages are looked at, oldest first.
SAMPLED: Final = tuple(
    timedelta(seconds=seconds) for seconds in (86400, 21600, 3600, 900, 300, 120, 60, 30, 10)
)
SAMPLE: Final = 1000


class OverviewStore:
    """Uses a pool that is started."""

    def __init__(self, database: Database, *, slot: str) -> None:
        self._database = database
        self._slot = slot

    async def backlog(self, *, heartbeats_every: timedelta) -> Backlog:
        """What waits now, of each kind at most 100,000 counted."""
        (row,) = await self._database.rows("measure_backlog", heartbeats_every)
        return Backlog(**row)

    async def waiting(self) -> Waiting:
        """What the small tables say of it."""
        (row,) = await self._database.rows("measure_waiting")
        overdue = {Lane(lane): of for lane, of in orjson.loads(row["overdue"]).items()}
        return Waiting(
            overdue={lane: rows for lane, (rows, _) in overdue.items()},
            oldest_due={lane: age for lane, (_, age) in overdue.items()},
            oldest_ambiguous=row["oldest_ambiguous"],
            oldest_dead_letter=row["oldest_dead_letter"],
            refused_by_relay=row["refused_by_relay"],
        )

    async def oldest_pending(self, lane: Lane) -> float | None:
        """Of the samples: an estimate, which a backlog of any size shows in."""
        now = datetime.now(UTC)
        for age in SAMPLED:
            start = first_id_of(now - age)
            rows = await self._database.rows("find_oldest_pending", lane.value, start, SAMPLE)
            if rows and rows[0]["age"] is not None:
                return float(rows[0]["age"])
        return None

    async def pauses(self) -> Sequence[Mapping[str, Any]]:
        """Those in force."""
        return [dict(row) for row in await self._database.rows("list_pauses")]

    async def rates(self) -> Sequence[Rate]:
        """The shared rates with their circuits."""
        return [Rate(**row) for row in await self._database.rows("list_send_rates")]

    async def slot(self) -> RelaySlot | None:
        """The relay's slot, None without one."""
        rows = await self._database.rows("read_relay_slot", self._slot)
        if not rows:
            return None
        (working,) = await self._database.rows("diagnose_working", self._slot)
        (row,) = rows
        keep = row["keep_bytes"]
        return RelaySlot(
            active=row["active_pid"] is not None,
            wal_status=row["wal_status"],
            lag_bytes=row["lag_bytes"],
            kept_share=row["retained_bytes"] / keep if keep else 0.0,
            checkpoint_age=working["checkpoint_age_s"],
        )

    async def polling(self) -> Polling:
        """Relays that read the feed by polling."""
        (row,) = await self._database.rows("measure_polling")
        return Polling(**row)
