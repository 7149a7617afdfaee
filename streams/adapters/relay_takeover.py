"""What a relay in wal mode had sent when polling follows it, told by its slot: everything but the transactions that it has not confirmed."""

import logging
from typing import Final

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.adapters.relay_store import RelayStore
from streams.domain.acknowledgement import NOWHERE
from streams.domain.errors import MailstreamsError, Unavailable
from streams.domain.polling import snapshot_without
from streams.domain.slots import PUBLICATION, Cluster, Usable, judge

log = logging.getLogger(__name__)

# Decoding what is not confirmed; longer, and the relay would seem to be stuck.
_DECODING_S: Final = 40.0
# Of a snapshot that is given to every statement.
_MOST: Final = 50_000


async def sent_by_wal(database: Database, slot: str, cluster: Cluster) -> str | None:
    """The snapshot that sees it, as pg_snapshot's text; None if that cannot be known, or no such relay was here."""
    store = RelayStore(database, slot=slot)
    checkpoint = await store.checkpoint()
    # Only a relay that has stored a position has read the slot from its beginning on.
    if checkpoint is None or checkpoint.lsn == NOWHERE:
        return None
    try:
        if not isinstance(judge(await store.slot(), checkpoint, cluster), Usable):
            return None
        # Seen before the slot is asked: what commits between is not seen, and sent.
        snapshot = await database.value("read_snapshot")
        async with database.transaction() as connection:
            rows = await connection.fetch(
                query("list_unconfirmed_transactions"), slot, PUBLICATION, timeout=_DECODING_S
            )
        if len(rows) > _MOST:
            raise Unavailable(f"{len(rows)} transactions are not confirmed")
    except MailstreamsError as error:
        log.warning(
            "the slot cannot tell what was sent",
            extra={"action": "relay.slot_mute", "slot": slot, "error": str(error)},
        )
        return None
    return snapshot_without(snapshot, [row["xid"] for row in rows])
