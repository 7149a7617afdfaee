"""What an erasure of a recipient came to."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# What subscribers are told of a message that was cancelled for it.
WHY_CANCELLED: Final = "erased"


class Kind(StrEnum):
    """OWN: messages to the recipient; COPIES: messages to others with a copy."""

    OWN = "own"
    COPIES = "copies"


@dataclass(slots=True)
class Erased:
    """Counts of one run. left: messages that are not ended, or in other hands this moment; suppressions: what stays."""

    messages: int = 0
    copies: int = 0
    cancelled: int = 0
    left: int = 0
    events: int = 0
    states: int = 0
    addresses: int = 0
    suppressions: int = 0

    @property
    def nothing(self) -> bool:
        found = (self.messages, self.copies, self.cancelled, self.left)
        return not any((*found, self.events, self.states, self.addresses))
