"""Who is announced again, when, and how many at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from streams.domain.addresses import RecipientKey
from streams.ports.sender import SuppressionGuard
from streams.sending.announcing import AGAIN_S, MOST, SETTLE_S, Announcing

ANN = RecipientKey("a" * 32)


@dataclass
class Table:
    """What is overtaken, and what was announced."""

    held: dict[RecipientKey, int] = field(default_factory=dict)
    announced: list[tuple[list[RecipientKey], int]] = field(default_factory=list)
    now: float = 0.0

    def overtaken(self) -> dict[RecipientKey, int]:
        return dict(self.held)

    async def announce(self, keys: Sequence[RecipientKey], *, behind: int) -> None:
        self.announced.append((list(keys), behind))

    def announcing(self) -> Announcing:
        guard = cast(SuppressionGuard, cast(Any, self))
        return Announcing(guard, self, clock=lambda: self.now)


async def test_recipient_that_stays_overtaken_is_announced_once_and_again_after_a_minute() -> None:
    table = Table({ANN: 7})
    announcing = table.announcing()
    for _ in range(3):
        await announcing.step()
        assert table.announced == []
        table.now += SETTLE_S / 3 + 0.01
    for _ in range(3):
        await announcing.step()
    assert table.announced == [([ANN], 7)]
    table.now += AGAIN_S
    await announcing.step()
    assert len(table.announced) == 2


async def test_recipient_whose_newer_record_comes_in_time_is_not_announced() -> None:
    table = Table({ANN: 7})
    announcing = table.announcing()
    await announcing.step()
    table.held.clear()
    table.now += SETTLE_S * 2
    await announcing.step()
    table.held[ANN] = 8
    await announcing.step()
    assert table.announced == []


async def test_many_are_announced_a_hundred_at_a_time_behind_the_highest_sequence() -> None:
    table = Table({RecipientKey(f"{n:032x}"): n for n in range(MOST + 50)})
    announcing = table.announcing()
    await announcing.step()
    table.now += SETTLE_S
    await announcing.step()
    await announcing.step()
    await announcing.step()
    assert [len(keys) for keys, _ in table.announced] == [MOST, 50]
    assert [behind for _, behind in table.announced] == [MOST - 1, MOST + 49]
