"""The frontier of a polling relay passes no row, however its writers' transactions interleave with its looks and pages."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.domain.polling import Frontier, Round, Window, snapshot_without

# What happens next: a step of a writer, or of the reader.
WRITERS = 4
STEPS = st.lists(st.integers(0, WRITERS + 2), min_size=1, max_size=120)


@dataclass
class Feed:
    """A table of which rows are seen once their transaction has committed, and the locks on it."""

    sequence: int = 0
    committed: set[int] = field(default_factory=set)
    locks: set[str] = field(default_factory=set)


@dataclass
class Writer:
    """Locks the feed, draws and inserts a few numbers, and commits, rolls back, or is prepared first; each call is one step."""

    feed: Feed
    name: str
    turn: int = 0
    drawn: list[int] = field(default_factory=list)
    transaction: str = ""

    def step(self, choice: int) -> None:
        if not self.transaction:
            self.turn += 1
            self.transaction = f"{self.name}/{self.turn}"
            self.feed.locks.add(self.transaction)
        elif len(self.drawn) <= choice % 3:
            self.feed.sequence += 1
            self.drawn.append(self.feed.sequence)
        elif choice % 5 == 1 and not self.transaction.startswith("-1/"):
            self.feed.locks.discard(self.transaction)
            self.transaction = f"-1/{self.name}{self.turn}"
            self.feed.locks.add(self.transaction)
        else:
            if choice % 7:
                self.feed.committed.update(self.drawn)
            self.feed.locks.discard(self.transaction)
            self.transaction, self.drawn = "", []


@dataclass
class Reader:
    """Reads as the relay does: the end, the writers, then pages, each in a step of its own."""

    feed: Feed
    frontier: Frontier = field(default_factory=Frontier)
    found: set[int] = field(default_factory=set)
    end: int | None = None

    def step(self, page: int) -> None:
        if self.frontier.is_behind:
            after, end = self.frontier.cursor, self.frontier.end
            rows = sorted(n for n in self.feed.committed if after < n <= end)[:page]
            self.found.update(rows)
            self.frontier.read(after, rows[-1] if len(rows) == page else end)
        elif self.end is None:
            self.end = self.feed.sequence
        else:
            self.frontier.looked(self.end, set(self.feed.locks))
            self.end = None


@settings(max_examples=500, deadline=None)
@given(steps=STEPS, choices=st.lists(st.integers(0, 34), min_size=120, max_size=120))
def test_every_committed_row_is_found_without_a_look_at_everything(
    steps: list[int], choices: list[int]
) -> None:
    feed = Feed()
    writers = [Writer(feed, str(number)) for number in range(WRITERS)]
    reader = Reader(feed)
    for step, choice in zip(steps, choices, strict=False):
        if step < WRITERS:
            writers[step].step(choice)
        else:
            reader.step(page=3)
    for writer in writers:
        while writer.transaction:
            writer.step(4)
    for _ in range(3 + 2 * feed.sequence):
        reader.step(page=3)
    assert reader.found == feed.committed


@given(st.lists(st.integers(1, 100), min_size=1, max_size=5))
def test_a_sequence_that_went_back_is_read_from_its_beginning(ends: list[int]) -> None:
    frontier = Frontier()
    for end in (*ends, 101, 50):
        frontier.looked(end, ())
        frontier.read(frontier.cursor, frontier.end)
    frontier.looked(20, ())
    assert (frontier.cursor, frontier.end) == (0, 20)


def test_a_writer_that_stays_makes_nothing_be_read_again_until_it_ends() -> None:
    frontier = Frontier()
    frontier.looked(10, ())
    frontier.read(0, 10)
    for end in (20, 30, 40):
        frontier.looked(end, {"old"})
        assert frontier.cursor == end - 10
        frontier.read(frontier.cursor, frontier.end)
    frontier.looked(50, ())
    assert frontier.cursor == 10


def test_a_transaction_that_is_prepared_keeps_its_place_under_its_new_name() -> None:
    frontier = Frontier()
    frontier.looked(10, ())
    frontier.read(0, 10)
    for end, writers in ((20, {"3/7"}), (30, {"-1/3"}), (40, {"-1/3"})):
        frontier.looked(end, writers)
        frontier.read(frontier.cursor, frontier.end)
    frontier.looked(50, ())
    assert frontier.cursor == 10


@given(
    ends=st.lists(st.integers(0, 3_000_000), min_size=1, max_size=30),
    took=st.lists(st.sampled_from([0.01, 0.2, 3.0]), min_size=400, max_size=400),
)
def test_rounds_of_statements_leave_nothing_out(ends: list[int], took: list[float]) -> None:
    end, covered, rounds = max(ends), 0, Round()
    for seconds in took:
        after, until = rounds.next(end)
        assert after in (covered, 0)
        covered = until
        rounds.looked(until)
        rounds.window.took(seconds)
        if covered == end:
            return
    raise AssertionError("never came to the end")


def test_a_window_over_removed_rows_that_are_kept_becomes_as_small_as_it_is_slow() -> None:
    window = Window()
    for _ in range(20):
        window.took(5.0)
    assert 0 < window.size < Window.FIRST
    small = window.size
    window.took(0.001)
    assert window.size > small
    assert window.end(10, 12) == 12


@given(
    xmax=st.integers(10, 2**34),
    running=st.sets(st.integers(1, 9), max_size=4),
    hidden=st.sets(st.integers(1, 9), max_size=4),
    newer=st.sets(st.integers(0, 50), max_size=3),
)
def test_a_snapshot_without_some_transactions_sees_all_others(
    xmax: int, running: set[int], hidden: set[int], newer: set[int]
) -> None:
    """Named by the lower half of their ids, which may have begun anew between them."""
    ids = [xmax - n for n in sorted(running, reverse=True)]
    before = f"{min(ids, default=xmax)}:{xmax}:{','.join(map(str, ids))}"
    named = [(xmax - n) % 2**32 for n in hidden] + [(xmax + n) % 2**32 for n in newer]
    xmin, end, listed = snapshot_without(before, named).split(":")
    unseen = {int(xid) for xid in listed.split(",") if xid}
    assert int(end) == xmax
    assert unseen == {xmax - n for n in running | hidden}
    assert int(xmin) == min(unseen, default=xmax)
