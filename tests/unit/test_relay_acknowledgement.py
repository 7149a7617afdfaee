"""The slot is confirmed only up to the contiguous prefix of acknowledged transactions (I8)."""

from hypothesis import given
from hypothesis import strategies as st

from streams.domain.acknowledgement import (
    NOWHERE,
    AcknowledgedPrefix,
    Lsn,
    Outstanding,
    Transaction,
    lsn_text,
    parse_lsn,
)


def transaction(ordinal: int) -> Transaction:
    return Transaction(ordinal, committed_at=1000.0 + ordinal, end=Lsn(ordinal * 10))


def test_nothing_is_confirmable_before_anything_was_read() -> None:
    assert AcknowledgedPrefix().confirmable() == NOWHERE


def test_an_acknowledged_transaction_waits_for_the_one_before_it() -> None:
    prefix, first, second = AcknowledgedPrefix(), transaction(1), transaction(2)
    one, two = prefix.opened(first), prefix.opened(second)
    prefix.committed([first, second])
    prefix.acknowledged(two)
    assert prefix.confirmable() == NOWHERE
    prefix.acknowledged(one)
    assert prefix.confirmable() == second.end


def test_a_transaction_is_not_confirmable_before_its_commit_is_read() -> None:
    prefix, only = AcknowledgedPrefix(), transaction(1)
    prefix.acknowledged(prefix.opened(only))
    assert prefix.confirmable() == NOWHERE
    prefix.committed([only])
    assert prefix.confirmable() == only.end


def test_a_transaction_that_ends_in_a_later_batch_waits_for_that_batch() -> None:
    prefix, first, second = AcknowledgedPrefix(), transaction(1), transaction(2)
    one = prefix.opened(first)
    rest_of_first = prefix.opened(first)
    prefix.committed([first, second])
    prefix.acknowledged(one)
    assert prefix.confirmable() == NOWHERE
    prefix.acknowledged(rest_of_first)
    assert prefix.confirmable() == second.end


def test_an_idle_position_is_confirmable_only_behind_everything_before_it() -> None:
    prefix, first = AcknowledgedPrefix(), transaction(1)
    batch = prefix.opened(first)
    prefix.committed([first])
    prefix.reached(Lsn(15), 1)
    prefix.reached(Lsn(17), 1)
    assert prefix.confirmable() == NOWHERE
    prefix.acknowledged(batch)
    assert prefix.confirmable() == 17
    assert prefix.commit == first.end


def test_the_oldest_waiting_transaction_is_known_by_its_commit_time() -> None:
    prefix, first, second = AcknowledgedPrefix(), transaction(1), transaction(2)
    one, two = prefix.opened(first), prefix.opened(second)
    assert prefix.oldest_committed_at() == 1001.0
    prefix.acknowledged(one)
    assert prefix.oldest_committed_at() == 1002.0
    prefix.acknowledged(two)
    assert prefix.oldest_committed_at() is None


@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=40),
    order=st.randoms(use_true_random=False),
)
def test_any_order_of_acknowledgements_confirms_exactly_the_contiguous_prefix(
    rows: list[tuple[int, bool]], order: object
) -> None:
    """Each row goes to one of three partitions; the flag ends its transaction and closes every batch now and then."""
    prefix = AcknowledgedPrefix()
    open_batches: dict[int, Outstanding] = {}
    content: dict[int, set[int]] = {}
    batches: list[Outstanding] = []
    transactions: list[Transaction] = []
    current = transaction(1)
    for place, (partition, ends) in enumerate(rows):
        if partition not in open_batches:
            open_batches[partition] = prefix.opened(current)
            batches.append(open_batches[partition])
        content.setdefault(id(open_batches[partition]), set()).add(current.ordinal)
        if place % 5 == 4:
            open_batches.clear()
        if ends:
            transactions.append(current)
            prefix.committed([current])
            current = transaction(current.ordinal + 1)
    waiting = list(batches)
    order.shuffle(waiting)  # type: ignore[attr-defined]
    while True:
        unacknowledged = {ordinal for batch in waiting for ordinal in content[id(batch)]}
        expected = NOWHERE
        for done in transactions:
            if done.ordinal in unacknowledged:
                break
            expected = done.end
        assert prefix.confirmable() == expected
        if not waiting:
            break
        prefix.acknowledged(waiting.pop())


@given(st.integers(0, 2**64 - 1))
def test_the_text_of_a_position_reads_back(number: int) -> None:
    assert parse_lsn(lsn_text(number)) == number


def test_a_position_is_written_as_postgresql_writes_it() -> None:
    assert lsn_text(0x1_0D3E_FE8A) == "1/D3EFE8A"
