"""Rules of `mailstreams doctor` on a relay in polling mode."""

from dataclasses import dataclass

from streams.domain.diagnosis import Finding, error, ok, warning


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """shards: how many there are, held: by relays that live; slot: that of wal mode is still there; streaming: and read."""

    index: bool
    cached: int
    shards: int
    held: int
    slot: bool
    streaming: bool


def judge_polling(polling: Polling) -> Finding:
    """The most important of what there is."""
    id_ = "relay.polling"
    if polling.streaming:
        return error(
            id_,
            "a relay in wal mode streams from the slot",
            "stop it, or set MAILSTREAMS_RELAY_MODE=wal for every relay and migrate",
        )
    if not polling.index:
        return error(id_, "the index that polling reads the feed by is missing")
    if polling.cached != 1:
        return error(
            id_,
            f"the sequence outbox_feed_seq keeps {polling.cached} numbers a session",
            "ALTER SEQUENCE outbox_feed_seq CACHE 1",
        )
    if polling.slot:
        return warning(
            id_,
            "the slot of wal mode is still there and keeps WAL for nobody",
            "start a relay, which drops it, or drop it with pg_drop_replication_slot",
        )
    if not polling.shards:
        return warning(id_, "no relay has ever polled in this database")
    if polling.held < polling.shards:
        return error(
            id_, f"{polling.shards - polling.held} of {polling.shards} shards are read by no relay"
        )
    return ok(id_, f"each of {polling.shards} shards is read by a relay")
