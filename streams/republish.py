"""What PostgreSQL knows of suppressions into the topic again, through the feed: after the topic lost records, or got partitions."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from streams.domain.addresses import RecipientKey
from streams.domain.heartbeats import heartbeat_keys
from streams.domain.partitioner import positive_hashes

PAGE: Final = 1000


class AnnouncedRecipients(Protocol):
    """Whom the feed has ever told something of."""

    async def announced(self, *, after: str, limit: int) -> list[RecipientKey]:
        """Behind this key, in the order of keys; lifted ones too."""

    async def announce_again(self, keys: Sequence[RecipientKey]) -> None:
        """The whole set of each into the feed, a tombstone where it is empty; one transaction."""

    async def told_again(self, heartbeats: Sequence[str]) -> None:
        """Says under these keys that everything was told again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Republished:
    """How far it is. last: the recipient to go on behind."""

    recipients: int = 0
    last: str = ""


async def republish(
    store: AnnouncedRecipients,
    *,
    partitions: int,
    only: Collection[int] | None = None,
    after: str = "",
    told: Callable[[Republished], None] = lambda _: None,
) -> Republished:
    """All recipients, or those of some partitions, a page a transaction; at its end senders that wait for it go on.

    A recipient whose suppressions are all lifted gets a tombstone, since the topic may say otherwise. Ended in the middle it can
    go on behind the last recipient; to begin again does no harm.
    """
    done = Republished(last=after)
    while keys := await store.announced(after=done.last, limit=PAGE):
        wanted = _of(keys, partitions, only)
        if wanted:
            await store.announce_again(wanted)
        done = Republished(recipients=done.recipients + len(wanted), last=keys[-1])
        told(done)
    beats = heartbeat_keys(partitions)
    await store.told_again(
        [beats[n] for n in (range(partitions) if only is None else sorted(only))]
    )
    return done


def _of(
    keys: Sequence[RecipientKey], partitions: int, only: Collection[int] | None
) -> list[RecipientKey]:
    if only is None:
        return list(keys)
    hashes = positive_hashes([key.encode() for key in keys])
    return [key for key, hashed in zip(keys, hashes, strict=True) if hashed % partitions in only]
