"""The Protocols that stages need, each as narrow as its stage; adapters provide them, the command wires them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Protocol, TypeVar
from uuid import UUID

from streams.domain.acknowledgement import AcknowledgedPrefix, Lsn, Transaction
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
from streams.domain.bounce_rules import Suppression
from streams.domain.delivery_events import DeliveryEvent, EventId
from streams.domain.facts import (
    Kept,
    Placed,
    RecipientOutcome,
    RecipientState,
    Settled,
    UnmatchedPage,
)
from streams.domain.feed_rows import FeedRow, Refusal
from streams.domain.pacing import Grant, ServerClock
from streams.domain.pointers import Pointer
from streams.domain.records import NewRecord, Record, TopicPartition
from streams.domain.schedule import (
    Backlog,
    Expired,
    OldestPending,
    Swept,
    TakenDue,
    UnsettledPage,
)
from streams.domain.sending_account import SendingAccount
from streams.domain.ses_answers import Answer, Fault, Missed, SignedCall
from streams.domain.slots import Checkpoint, Cluster, NewSlot, Slot
from streams.domain.sns import TopicArn
from streams.domain.sns_certificates import Certificate
from streams.domain.suppressions import SuppressionRecord
from streams.domain.templates import Template, TemplateName
from streams.domain.topics import Lane

T = TypeVar("T")

# Relay --------------------------------------------------------------------------------------------------------------


class ReplicationSource(Protocol):
    """One connection to the replication slot. Unavailable means: close() it and connect again."""

    async def connect(self) -> None: ...

    @property
    def backend_pid(self) -> int: ...

    async def try_lock(self) -> bool:
        """Becomes the one relay of this slot as long as the connection lives; False if another one is."""

    async def identify(self) -> Cluster: ...

    async def create_slot(self) -> NewSlot:
        """The exported snapshot lasts until the next call. Waits for the transactions that write at the moment."""

    async def drop_slot(self) -> None: ...

    async def start(self) -> bool:
        """Starts the stream where the slot stands; False if somebody else reads the slot."""

    async def receive(self) -> list[bytes]:
        """Messages of the server, at least one, in order; none after wake()."""

    def wake(self) -> None: ...

    def send_status(self, *, written: Lsn, flushed: Lsn) -> None:
        """The server may forget what is before flushed. Never blocks."""

    async def close(self) -> None: ...


class RecordSink(Protocol):
    """Rows of the feed on their way to Kafka, in order within each partition. What is appended and not acknowledged
    when the sink fails or is closed may have been written or not."""

    largest_record: int

    async def open(
        self,
        prefix: AcknowledgedPrefix,
        *,
        on_progress: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Connects. Later calls back: records were acknowledged (the prefix knows), or one delivery failed for good,
        with Unavailable or RecordsRefused; then the sink is of no use any more."""

    async def know_topics(self, aggregates: Sequence[bytes]) -> None:
        """Must be called for an aggregatetype before its first row; Unavailable if there is no such topic."""

    def append(self, rows: Sequence[FeedRow]) -> None: ...

    @property
    def rows_in_flight(self) -> int: ...

    @property
    def bytes_in_flight(self) -> int: ...

    def flush(self) -> None:
        """Sends what waits for a fuller batch."""

    async def room(self, timeout_s: float) -> bool:
        """Waits until what is in flight is below the bounds, or for so long; whether it is."""

    async def drained(self, timeout_s: float) -> bool:
        """Waits until nothing is in flight, or for so long; whether it is."""

    async def close(self) -> None:
        """Disconnects and forgets what is in flight."""


class RelayStore(Protocol):
    """What the relay reads and writes by SQL. Unavailable when PostgreSQL is away."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def check_setup(self) -> None:
        """Misconfigured, with one sentence, if server or database are not as the relay needs them."""

    async def slot(self) -> Slot | None: ...

    async def checkpoint(self) -> Checkpoint | None: ...

    async def store_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Returns when it is durable."""

    def snapshot(
        self, snapshot: str, transaction: Transaction
    ) -> AbstractAsyncContextManager[AsyncIterator[list[FeedRow]]]:
        """Pages of every row of the feed that the snapshot sees, in the order of seq."""

    async def set_aside(self, row: FeedRow, reason: Refusal, detail: str | None) -> None:
        """Returns when the row is kept where a person finds it."""

    async def writing_transactions(self) -> list[str]:
        """What a new slot waits for, one short text each."""


# Events ---------------------------------------------------------------------------------------------------------------


class EventPublisher(Protocol):
    """Writes records so that they count only when every in-sync replica has them."""

    async def start(self) -> None:
        """Connects, if it is not connected; Unavailable when no broker answers."""

    async def publish(self, records: Sequence[NewRecord]) -> None:
        """Returns when all of them are acknowledged; Unavailable when one may not be."""

    async def stop(self) -> None: ...


class SetAside(Protocol):
    """Keeps what cannot be read, encrypted."""

    async def put(self, record: Record, *, reason: str) -> None:
        """Returns when it is acknowledged; Unavailable otherwise."""


class SigningCertificates(Protocol):
    """The certificates that SNS signs with. It is only asked for URLs that passed the rules."""

    async def get(self, url: str) -> Certificate:
        """The certificate of this URL; Unavailable if there is none now, BadMessage if it is none that can be taken."""

    async def stop(self) -> None: ...


class SubscriptionConfirmer(Protocol):
    """Confirms the subscription of this endpoint by a signed call, so that only we can undo it."""

    async def confirm(self, topic: TopicArn, token: str) -> None:
        """Returns when it is confirmed, also when it was before; Unavailable otherwise."""


# Recipients -----------------------------------------------------------------------------------------------------------


class RecordConsumer(Protocol):
    """A member of a consumer group that commits by hand. A rebalance may take partitions away at any time: what was read of
    them is read again by their next owner."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def poll(self) -> Sequence[Record]:
        """The next records, in order within each partition; none after a short while without any."""

    async def commit(self, records: Sequence[Record]) -> None:
        """The outcome of all records up to these is durable. Unavailable when the broker does not answer."""


class UnreadableRecords(SetAside, Protocol):
    """A SetAside with a connection of its own."""

    async def stop(self) -> None: ...


class FactsTransaction(Protocol):
    """The statements of one fold, in the order in which it needs them."""

    async def correlate(self, events: Sequence[DeliveryEvent]) -> list[Placed]:
        """Each event with its message, in the same order."""

    async def lock(self, scopes: Sequence[tuple[str, RecipientKey]]) -> None:
        """Locks the recipients' rows; nothing of their history may be read before."""

    async def keep(self, placed: Sequence[Placed]) -> list[Kept]:
        """Keeps the events; returns those that are new or now know more of their message than before."""

    async def merge_outcomes(self, outcomes: Sequence[RecipientOutcome]) -> None: ...

    async def merge_states(self, states: Sequence[RecipientState]) -> None: ...

    async def suppress(self, suppressions: Sequence[Suppression]) -> int:
        """Puts them in force, each with its earliest evidence; how many rows were new or changed."""

    async def unattributed(self, keys: Sequence[RecipientKey]) -> list[DeliveryEvent]:
        """What is kept of these recipients and belongs to no known message."""

    async def restate(self, states: Sequence[RecipientState]) -> None:
        """Sets the rows of no known tenant to exactly this."""

    async def withdraw(self, evidence: Sequence[tuple[RecipientKey, EventId]]) -> int:
        """Withdraws suppressions of all tenants that rest on evidence which has a tenant now."""

    async def remember_attempts(self, forgotten: Sequence[Placed]) -> int:
        """Keeps attempts that only their events know; how many of their messages SES took twice."""

    async def settle(self, outbox_ids: Sequence[UUID]) -> Settled:
        """Settles rows by the evidence that there is; those under a call or a lock are left for later."""


class Facts(Protocol):
    """The facts of recipients."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def transact(self, work: Callable[[FactsTransaction], Awaitable[T]]) -> T:
        """Runs work in one transaction and commits; from its start again after a deadlock. BadMessage: a value can never be kept."""

    async def unmatched(self, *, after: datetime, before: datetime, limit: int) -> UnmatchedPage:
        """Kept events without a message that were received in this span, oldest first, at most so many."""


# Scheduler ------------------------------------------------------------------------------------------------------------


class Schedule(Protocol):
    """What the scheduler does in PostgreSQL, each method one transaction and safe beside other replicas."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def take_duty(self, name: str, every: timedelta) -> bool:
        """Whether this replica does it this time."""

    async def take_due(self, limit: int) -> TakenDue:
        """Moves what is due into the feed; what turns out to be taken by SES is settled instead."""

    async def expire_leases(self, limit: int) -> Expired:
        """Turns what ran out into ambiguous, and settles at once what there is evidence of."""

    async def unsettled(self, *, after: UUID, limit: int) -> UnsettledPage:
        """Attempts of unknown outcome in the order of their ids."""

    async def settle(self, outbox_ids: Sequence[UUID]) -> Settled:
        """Settles rows by the evidence that there is; those under a call or a lock are left for later."""

    async def hold_ambiguous(self, *, after: timedelta, limit: int) -> int:
        """Gives what stayed ambiguous for so long to a person; how many rows."""

    async def make_duty(self, name: str) -> None:
        """Must be called before sweep_pending with this name."""

    async def sweep_pending(self, name: str, *, age: timedelta, limit: int) -> Swept:
        """Wakes rows of this age that are pending and wait nowhere; each row is looked at once under a name."""

    async def beat(self, keys: Sequence[str], *, every: timedelta) -> bool:
        """Puts the heartbeats into the feed, if it is this replica's turn."""

    async def expire_suppressions(self, limit: int) -> int:
        """Removes what is over; how many rows."""

    async def make_feed_partitions(self, days_ahead: int) -> int | None:
        """How many were made; None if the feed was too busy for it."""

    async def set_rate(self, scope: str, per_second: float) -> None: ...

    async def pause_account(self, value: str, *, reason: str, who: str, lasting: timedelta) -> bool:
        """Pauses the account, or keeps it paused; whether that is new."""

    async def resume_account(self, value: str, *, who: str) -> bool:
        """Lifts that pause, if it is by the same; whether there was one."""

    async def backlog(self, *, heartbeats_every: timedelta) -> Backlog:
        """What waits now."""

    async def oldest_pending(self, lane: Lane, *, start: UUID, limit: int) -> OldestPending | None:
        """The oldest pending row among the next ones from this id, or where the search goes on; None if there is no row."""


class AccountReader(Protocol):
    """What SES says of the sending account."""

    @property
    def region(self) -> str:
        """The region of the account; Misconfigured without one."""

    async def read(self) -> SendingAccount:
        """Unavailable if SES does not answer or refuses us."""

    async def stop(self) -> None: ...


# Sender ---------------------------------------------------------------------------------------------------------------


class PointerFeed(Protocol):
    """The pointers of both lanes, as a member of the senders' group. Unavailable means: stop() and start() again."""

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

    async def stop(self) -> None: ...


class SuppressionFeed(Protocol):
    """Partitions of the suppression topic, assigned by hand. Unavailable means: follow() again."""

    async def follow(self, positions: Mapping[int, int | None]) -> dict[int, int]:
        """Reads these partitions from these positions on (None: the beginning); returns their ends of this moment."""

    async def fetch(
        self, *, most: int, timeout_s: float
    ) -> tuple[list[SuppressionRecord], dict[int, int]]:
        """Records in the order of each partition, and the position of every partition after them."""

    async def stop(self) -> None: ...


class SuppressionGuard(Protocol):
    """The suppression table as the sender sees it: what it owns, whether it may be asked, what it says."""

    def own(self, partitions: frozenset[int]) -> None:
        """From now on these; the tables of those that were owned before are kept."""

    async def follow(self) -> float:
        """Takes in what is new; the seconds until it should be called again."""

    def usable(self, partition: int) -> bool:
        """Whether the partition is caught up and fresh, so that something may be decided for it."""

    def missing(self) -> str | None:
        """What keeps owned partitions from being usable; None if all are."""

    def hit(self, partition: int, key: RecipientKey, tenant: str, lane: Lane) -> int | None:
        """The sequence of the recipient's set, if it has a suppression in force for this tenant and lane."""

    async def stop(self) -> None: ...


class Outbox(Protocol):
    """The rows that the sender works on. Unavailable: the statement may have been done or not."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def read_pending(self, pointers: Sequence[Pointer]) -> list[Presence]:
        """Of each pointer, in order, whether its row still waits to be sent."""

    async def close_unsendable(self, ids: Sequence[UUID]) -> dict[UUID, Verdict]:
        """Writes SUPPRESSED or EXPIRED where the database confirms it; the ids that it did not confirm are left out."""

    async def claim(self, requests: Sequence[ClaimRequest], *, lease_s: float) -> list[Claim]:
        """A claim for each request, in order."""

    async def record(self, outcomes: Sequence[Outcome]) -> dict[AttemptId, Recorded]:
        """Writes the outcomes, each under its token. Safe to repeat."""

    async def pause(self, pause: Pause) -> None:
        """Stops something for all senders."""

    async def take_permits(
        self, scope: str, costs: Sequence[float], *, lead_s: float
    ) -> tuple[Grant, ServerClock] | None:
        """Permits for the first of these messages, and the server's clock; None while the rate is not known."""

    async def templates(self, names: Sequence[TemplateName]) -> dict[TemplateName, Template]:
        """The templates of these names; those that do not exist are left out."""


class EmailProvider(Protocol):
    """Where mail is handed over. Never tries again by itself."""

    async def start(self) -> None: ...

    @property
    def region(self) -> str:
        """The scope of the sending rate."""

    async def sign(self, body: bytes) -> SignedCall | Fault: ...

    def forget_credentials(self) -> None:
        """They were refused: they are looked up anew before the next call."""

    async def send(
        self, call: SignedCall, *, latest: float, within_s: float
    ) -> Answer | Fault | Missed:
        """Posts it once; begins to write at `latest` (monotonic) at the last, ends within so many seconds."""

    async def stop(self) -> None: ...
