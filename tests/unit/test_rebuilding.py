"""Which differences between live and rebuilt facts count, and which the topic is too young to tell."""

from datetime import UTC, datetime, timedelta

import pytest

from streams.domain import rebuilding
from streams.domain.addresses import RecipientKey
from streams.domain.partitioner import partition_of
from streams.domain.rebuilding import Comparison, Difference, Horizon, Table, What, pages

OLDEST = datetime(2026, 1, 15, tzinfo=UTC)
BEFORE, AFTER = OLDEST - timedelta(seconds=1), OLDEST + timedelta(seconds=1)


def key_of(partition: int) -> RecipientKey:
    """A recipient of this partition of two."""
    keys = (RecipientKey(f"{n:032x}") for n in range(100))
    return next(key for key in keys if partition_of(key.encode(), 2) == partition)


WHOLE, CUT = key_of(0), key_of(1)


def comparison() -> Comparison:
    """Of two partitions, of which the second has dropped its oldest records."""
    return Comparison(Horizon(oldest={0: None, 1: OLDEST}))


def difference(
    key: RecipientKey,
    since: datetime | None,
    what: What = What.SURPLUS,
    table: Table = Table.SUPPRESSIONS,
) -> Difference:
    return Difference(table=table, what=what, recipient_key=key, since=since, row="row")


@pytest.mark.parametrize(
    ("key", "since", "counts"),
    [
        (WHOLE, BEFORE, True),
        (WHOLE, None, True),
        (CUT, AFTER, True),
        (CUT, OLDEST, True),
        (CUT, BEFORE, False),
        (CUT, None, False),
    ],
)
def test_only_what_the_partition_still_tells_counts(
    key: RecipientKey, since: datetime | None, counts: bool
) -> None:
    compared = comparison()
    compared.take(difference(key, since))
    assert compared.is_equal is not counts
    table = compared.tables[Table.SUPPRESSIONS]
    assert (table.counts[What.SURPLUS], table.untold) == ((1, 0) if counts else (0, 1))


def test_a_message_known_by_dropped_records_excuses_its_recipient() -> None:
    compared = comparison()
    compared.take(difference(CUT, AFTER, What.FULLER, Table.EVENTS))
    compared.take(difference(CUT, AFTER, What.MISSING, Table.STATES))
    assert compared.is_equal
    assert [compared.tables[t].untold for t in (Table.EVENTS, Table.STATES)] == [1, 1]


def test_where_nothing_was_dropped_a_fuller_event_is_a_difference() -> None:
    compared = comparison()
    compared.take(difference(WHOLE, AFTER, What.FULLER, Table.EVENTS))
    assert compared.tables[Table.EVENTS].counts == {What.DIFFERENT: 1}


def test_what_is_kept_of_many_differences_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "KEPT", 15)
    compared = comparison()
    for _ in range(40):
        compared.take(difference(WHOLE, AFTER))
    assert compared.total == 40
    assert len(compared.found) == 15
    assert len(compared.tables[Table.SUPPRESSIONS].samples) == rebuilding.SAMPLES


def test_pages_hold_one_table_in_the_order_of_recipients() -> None:
    found = [difference(k, AFTER) for k in (CUT, WHOLE, CUT)]
    found += [difference(WHOLE, AFTER, table=Table.OUTCOMES)]
    paged = pages(found, Table.SUPPRESSIONS, 2)
    assert [[one.recipient_key for one in page] for page in paged] == (
        [[WHOLE, CUT], [CUT]] if WHOLE < CUT else [[CUT, CUT], [WHOLE]]
    )
