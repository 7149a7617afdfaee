"""The contiguous prefix that may be committed."""

import random

import pytest

from streams.domain.offsets import ContiguousOffsets


def tracked(*offsets: int) -> ContiguousOffsets:
    found = ContiguousOffsets()
    for offset in offsets:
        found.track(offset)
    return found


def test_nothing_is_committed_before_the_first_record_is_finished() -> None:
    offsets = tracked(5, 6, 7)
    offsets.finish(6)
    offsets.finish(7)
    assert offsets.committable() is None
    offsets.finish(5)
    assert offsets.committable() == 8


def test_position_behind_a_hole_in_the_log_follows_what_was_finished() -> None:
    offsets = tracked(5, 9)
    offsets.finish(5)
    assert offsets.committable() == 6
    offsets.finish(9)
    assert offsets.committable() == 10


def test_position_is_committed_once() -> None:
    offsets = tracked(1)
    offsets.finish(1)
    offsets.committed(2)
    assert offsets.committable() is None
    offsets.track(2)
    offsets.finish(2)
    assert offsets.committable() == 3


def test_finishing_twice_or_what_was_never_tracked_changes_nothing() -> None:
    offsets = tracked(3, 4)
    for offset in (3, 3, 2, 99):
        offsets.finish(offset)
    assert offsets.committable() == 4
    assert not offsets.settled


def test_partition_is_settled_once_all_of_it_is_finished_and_committed() -> None:
    offsets = tracked(3, 4)
    assert ContiguousOffsets().settled
    offsets.finish(4)
    assert not offsets.settled
    offsets.finish(3)
    assert not offsets.settled
    offsets.committed(5)
    assert offsets.settled


def test_record_is_open_until_it_is_finished() -> None:
    offsets = tracked(3, 4)
    offsets.finish(4)
    assert [offsets.is_open(o) for o in (2, 3, 4, 5)] == [False, True, False, False]


@pytest.mark.parametrize("again", [4, 3])
def test_record_out_of_order_is_refused(again: int) -> None:
    offsets = tracked(3, 4)
    with pytest.raises(ValueError, match="after a later one"):
        offsets.track(again)


def test_record_before_the_position_is_refused_when_nothing_is_open() -> None:
    offsets = tracked(3)
    offsets.finish(3)
    with pytest.raises(ValueError, match="after a later one"):
        offsets.track(3)


def test_position_never_passes_an_unfinished_record_whatever_the_order() -> None:
    shuffled = random.Random(7)  # noqa: S311 repeatable on purpose
    for _ in range(50):
        numbers = sorted(shuffled.sample(range(100), 30))
        offsets, done = tracked(*numbers), set[int]()
        for offset in shuffled.sample(numbers, len(numbers)):
            offsets.finish(offset)
            done.add(offset)
            position = offsets.committable()
            if position is not None:
                assert all(n in done for n in numbers if n < position)
        assert offsets.committable() == numbers[-1] + 1
