"""What the relay's eye on its slot tells: the bytes that are kept, and their share of the limit."""

from typing import Any, cast

from prometheus_client import REGISTRY

from streams.domain.acknowledgement import Lsn
from streams.domain.slots import Slot
from streams.ports.relay import RelayStore, ReplicationSource
from streams.relay_slot import SlotOpening
from streams.runtime.lifecycle import Health


class Store:
    """A slot that keeps 60 of 100 bytes."""

    checked = 0

    async def check_setup(self) -> None:
        self.checked += 1

    async def slot(self) -> Slot:
        return Slot(
            plugin="pgoutput",
            here=True,
            active_pid=None,
            wal_status="reserved",
            confirmed=Lsn(10),
            lag_bytes=20,
            safe_wal_size=40,
            retained_bytes=60,
            keep_bytes=100,
        )


async def test_the_slot_is_told_in_bytes_and_as_a_share_of_its_limit() -> None:
    store = Store()
    opening = SlotOpening(
        source=cast(ReplicationSource, object()),
        store=cast(RelayStore, store),
        health=Health(stage="relay"),
    )
    await opening.watch()
    told: Any = {
        name: REGISTRY.get_sample_value(f"mailstreams_relay_slot_{name}")
        for name in ("lag_bytes", "retained_bytes", "safe_wal_bytes", "keep_ratio")
    }
    assert told == {
        "lag_bytes": 20,
        "retained_bytes": 60,
        "safe_wal_bytes": 40,
        "keep_ratio": 0.6,
    }
    await opening.watch()
    assert store.checked == 1
