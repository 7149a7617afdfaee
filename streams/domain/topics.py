"""Names of the Kafka topics and how each is kept."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DAY_MS: Final = 24 * 60 * 60 * 1000
# The largest envelope of SNS, or the largest record of another topic, encrypted.
LARGEST_SET_ASIDE: Final = 4 * 1024 * 1024


class Lane(StrEnum):
    """A class of mail with its own topic."""

    TRANSACTIONAL = "transactional"
    BULK = "bulk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topic names under one prefix. A feed row's aggregatetype is the name without the prefix."""

    prefix: str = "mail."

    def outbox(self, lane: Lane) -> str:
        return f"{self.prefix}outbox.{lane}"

    @property
    def suppressions(self) -> str:
        return f"{self.prefix}suppressions"

    @property
    def delivery_events(self) -> str:
        return f"{self.prefix}delivery-events"

    @property
    def dead_letters(self) -> str:
        return f"{self.prefix}dead-letters"

    def of_aggregate(self, aggregatetype: str) -> str:
        """The topic of a feed row, as the Outbox Event Router makes it."""
        return f"{self.prefix}{aggregatetype}"

    def configurations(self) -> dict[str, dict[str, str]]:
        """Every topic that must exist, with its settings."""
        pointers = _deleted_after(7)
        kept = {
            self.outbox(Lane.TRANSACTIONAL): pointers,
            self.outbox(Lane.BULK): pointers,
            self.suppressions: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"},
            self.delivery_events: _deleted_after(30),
            self.dead_letters: _deleted_after(30),
        }
        set_aside = _deleted_after(30) | {"max.message.bytes": str(LARGEST_SET_ASIDE)}
        return kept | {unreadable(topic): set_aside for topic in kept}


def unreadable(topic: str) -> str:
    """Where a consumer puts a record of this topic that it cannot read."""
    return f"{topic}.unreadable"


def _deleted_after(days: int) -> dict[str, str]:
    return {"cleanup.policy": "delete", "retention.ms": str(days * DAY_MS)}
