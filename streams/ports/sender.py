"""What the sender needs: pointers, suppressions, the outbox, the provider."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from streams.domain.addresses import RecipientKey
from streams.domain.attempts import (
    AttemptId,
    Claim,
    ClaimRequest,
    Outcome,
    Pause,
    Presence,
    Recorded,
    Verdict,
)
from streams.domain.circuit import CircuitState, ProbeIntervals, Report
from streams.domain.journal_records import Begin
from streams.domain.pacing import Grant, ServerClock
from streams.domain.pointers import Pointer
from streams.domain.records import Record, TopicPartition
from streams.domain.ses_answers import SEND_EMAIL, Answer, Fault, Missed, SignedCall
from streams.domain.suppressions import PartitionLost, Span, SuppressionPage
from streams.domain.templates import Template, TemplateName
from streams.domain.topics import Lane


class Place(NamedTuple):
    """Where a partition of pointers stands: what is read next, and its end."""

    lane: Lane
    topic_partition: TopicPartition
    position: int
    end: int


class PointerFeed(Protocol):
    """The pointers of both lanes, as a member of the senders' group. Unavailable means: stop() and start() again; Misconfigured:
    another process has our name in the group."""

    async def start(
        self,
        *,
        on_revoked: Callable[[frozenset[int]], Awaitable[None]],
        on_assigned: Callable[[frozenset[int]], Awaitable[None]],
    ) -> None:
        """Joins the group. Calls back with partition numbers, before they are given up and after they were given."""

    async def fetch(self, lanes: Collection[Lane], *, most: int, timeout_s: float) -> list[Record]:
        """Records of these lanes, those of each partition in order; of other lanes fetching pauses."""

    async def commit(self, positions: Mapping[TopicPartition, int]) -> bool:
        """False if the group has moved on meanwhile; then others read again what was not committed."""

    async def places(self) -> Sequence[Place]:
        """Where our partitions stand, asked of Kafka."""

    def partitions(self) -> Mapping[str, int]:
        """How many partitions each lane's topic has, as far as that is known."""

    async def stop(self) -> None: ...


class SuppressionFeed(Protocol):
    """Partitions of the suppression topic, assigned by hand. Unavailable means: follow() again."""

    async def follow(self, positions: Mapping[int, int | None]) -> dict[int, Span]:
        """Reads these partitions from these positions on (None: the beginning); returns what each holds at this moment."""

    async def fetch(self, *, timeout_s: float) -> Sequence[SuppressionPage | PartitionLost]:
        """What has come, pages of a partition in order. A partition that is lost is not read any more: follow() again."""

    def partitions(self) -> int | None:
        """How many the topic has; None while that is not known."""

    async def stop(self) -> None: ...


class SuppressionGuard(Protocol):
    """The suppression table as the sender sees it: what it owns, whether it may be asked, what it says."""

    def tell_time(self, clock: Callable[[], float]) -> None:
        """From now on ages count by this clock, seconds since 1970."""

    def own(self, partitions: frozenset[int]) -> None:
        """From now on these; the tables of those that were owned before are kept."""

    async def follow(self) -> float:
        """Takes in what is new; the seconds until it should be called again."""

    def compare(self, counts: Mapping[str, int]) -> None:
        """How many partitions the topics of pointers have: nothing is usable while the numbers differ."""

    def usable(self, partition: int, lane: Lane) -> bool:
        """Whether the partition is caught up and fresh enough for the lane, so that something may be decided for it."""

    def missing(self) -> str | None:
        """What keeps owned partitions from being usable; None if all are."""

    def hit(self, partition: int, key: RecipientKey, tenant: str, lane: Lane) -> int | None:
        """The sequence of the recipient's set, if it has a suppression in force for this tenant and lane."""

    def overtaken(self) -> dict[RecipientKey, int]:
        """Recipients who have to be announced again, with the sequence that is held of each."""

    async def stop(self) -> None: ...


class SuppressionAnnouncer(Protocol):
    """Who puts suppressions into the feed again."""

    async def announce(self, keys: Sequence[RecipientKey], *, behind: int) -> None:
        """The whole set of each recipient, under sequences behind this one. Safe to repeat."""


class Outbox(Protocol):
    """The rows that the sender works on. Unavailable: the statement may have been done or not."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def now(self) -> float:
        """Seconds since 1970 on the server's clock. Unavailable before start()."""

    async def read_clock(self) -> None:
        """Asks for the time, so that now() is right also while no permits are asked for."""

    async def read_pending(self, pointers: Sequence[Pointer]) -> list[Presence]:
        """Of each pointer, in order, whether its row still waits to be sent."""

    async def close_unsendable(self, ids: Sequence[UUID]) -> dict[UUID, Verdict]:
        """Writes SUPPRESSED or EXPIRED where the database confirms it; the ids that it did not confirm are left out."""

    async def hold_paused(self, ids: Sequence[UUID]) -> list[UUID]:
        """Puts to sleep what a pause holds, and returns it; the others stay as they are."""

    async def claim(self, requests: Sequence[ClaimRequest], *, lease_s: float) -> list[Claim]:
        """A claim for each request, in order."""

    async def record(self, outcomes: Sequence[Outcome]) -> dict[AttemptId, Recorded]:
        """Writes the outcomes, each under its token. Safe to repeat."""

    async def pause(self, pause: Pause) -> None:
        """Stops something for all senders."""

    async def take_permits(
        self,
        scope: str,
        costs: Sequence[float],
        *,
        lead_s: float,
        report: Report,
        intervals: ProbeIntervals,
    ) -> tuple[Grant, ServerClock, CircuitState] | None:
        """Permits for the first of these messages, the server's clock and the circuit after the report; None while the rate is not known."""

    async def templates(self, names: Sequence[TemplateName]) -> dict[TemplateName, Template]:
        """The templates of these names; those that do not exist are left out."""


class AttemptJournal(Protocol):
    """What this process was about to do, kept where the next one finds it after a kill. Nothing here waits."""

    def open(self) -> list[Outcome]:
        """What is to be written about attempts that a dead process left, before anything is claimed.

        Unavailable while another process has it, Misconfigured if it cannot be used.
        """

    def claiming(self, pairs: Sequence[tuple[UUID, AttemptId]]) -> None:
        """These rows are about to be claimed under these attempts. Unavailable: then they must not be."""

    def begun(self, begin: Begin) -> None:
        """The first byte of the call may leave now. Unavailable: then it must not."""

    def answered(self, outcome: Outcome) -> None:
        """The call has ended so; its outcome is not durable yet."""

    def closed(self, attempt_ids: Iterable[AttemptId]) -> None:
        """Nothing is left to find out about these."""

    def close(self) -> None: ...


class EmailProvider(Protocol):
    """Where mail is handed over. Never tries again by itself."""

    async def start(self) -> None: ...

    @property
    def region(self) -> str:
        """The scope of the sending rate."""

    async def sign(self, body: bytes, *, path: str = SEND_EMAIL) -> SignedCall | Fault: ...

    def forget_credentials(self) -> None:
        """They were refused: they are looked up anew before the next call."""

    async def send(
        self,
        call: SignedCall,
        *,
        latest: float,
        within_s: float,
        on_begin: Callable[[], None],
    ) -> Answer | Fault | Missed:
        """Posts it once; begins to write at `latest` (monotonic) at the last, ends within so many seconds.

        on_begin is called right before the first byte can leave, never after, and at most once. What it raises goes
        through to the caller, and then no byte has left.
        """

    async def stop(self) -> None: ...
