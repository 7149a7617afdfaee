"""Reads what is there after a round: tables, ledger, journals."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from crash.journal import Reader
from crash.load import Known
from crash.system import LEASE_S, System
from crash.verdict import Attempt, Call, Change, Evidence, Row, Suppressed, read_journal
from demo.events_truth import COLUMNS, Fact, Held, Truth, differences, read_ledger
from demo.system import SALT
from streams.domain.addresses import recipient_key

_ROWS: Final = "SELECT id, state, reason, dedup_key, recipient_key, tenant, lane FROM email_outbox WHERE id >= $1"
_CHANGES: Final = "SELECT at, xid::text, by_whom, outbox_id, was, state, token, next_token, reason, snapshot::text FROM crash_audit.change ORDER BY n"
_SUPPRESSIONS: Final = "SELECT xid::text, made, recipient_key, tenant, lane, reason FROM crash_audit.suppression ORDER BY n"
_EVENTS: Final = "SELECT outbox_id, recipient_key, type FROM email_event WHERE outbox_id >= $1 OR outbox_id IS NULL"
_OUTCOMES: Final = "SELECT * FROM recipient_outcome WHERE outbox_id >= $1"
_SUPPRESSED: Final = "SELECT recipient_key, reason FROM suppression WHERE reason <> 'manual' AND recipient_key = ANY ($1::text[])"


class Books:
    """What lasts over the rounds of one system: the ledger so far, and how far the journals were read."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._readers = {r: Reader(system.journal(r)) for r in system.replicas}
        self._seen = 0
        self._earlier: Counter[str] = Counter()
        self._keys: dict[str, str] = {}

    def key(self, address: str) -> str:
        """The recipient key."""
        if address not in self._keys:
            self._keys[address] = recipient_key(address, SALT.encode())
        return self._keys[address]

    async def begin(self) -> UUID:
        """A round begins: its rows have ids from this one on."""
        self._keys.clear()
        first: UUID = await self._system.database.fetchval("SELECT uuid_v7()")
        masked = first.int >> 80 << 80
        await self._system.database.execute("TRUNCATE crash_audit.change, crash_audit.suppression")
        return UUID(int=masked)

    async def gather(
        self,
        first: UUID,
        known: Known,
        *,
        settled_by_hand: frozenset[str],
        outages: Sequence[tuple[float, float]],
    ) -> Evidence:
        """Everything since begin()."""
        database = self._system.database
        ledger = await self._system.ledger(self._seen)
        self._seen = ledger[-1]["sequence"] if ledger else self._seen
        attempts: dict[str, Attempt] = {}
        for replica, reader in self._readers.items():
            read_journal(replica, reader.new_lines(), attempts)
        rows = {
            str(r["id"]): Row(r["state"], r["reason"], r["dedup_key"], *list(r.values())[4:])
            for r in await database.fetch(_ROWS, first)
        }
        return Evidence(
            rows=rows,
            committed=frozenset(map(str, known.committed)),
            doubtful_keys=frozenset(known.doubtful),
            undone_keys=frozenset(known.undone),
            calls=[self._call(line) for line in ledger],
            changes=[_change(r) for r in await database.fetch(_CHANGES)],
            suppressions=[
                Suppressed(int(r["xid"]), *list(r.values())[1:])
                for r in await database.fetch(_SUPPRESSIONS)
            ],
            attempts=attempts,
            facts_wrong=await self._facts(first, ledger),
            lease_s=LEASE_S,
            settled_by_hand=settled_by_hand,
            outages=outages,
        )

    def _call(self, line: Mapping[str, Any]) -> Call:
        at = datetime.fromisoformat(line["accepted_at"]).timestamp()
        keys = tuple(self.key(address) for address in line["recipients"])
        return Call(line["outbox"], line["attempt"], keys, at)

    async def facts_missing(self, first: UUID) -> int:
        """How many kinds of facts of the ledger PostgreSQL still lacks, or has too many of."""
        return len(await self._facts(first, await self._system.ledger(self._seen)))

    async def _facts(self, first: UUID, ledger: Sequence[Mapping[str, Any]]) -> list[str]:
        database = self._system.database
        addresses = {a for line in ledger for a in line["recipients"]}
        keys = {a: self.key(a) for a in addresses}
        events = await database.fetch(_EVENTS, first)
        outcomes = await database.fetch(_OUTCOMES, first)
        suppressed = await database.fetch(_SUPPRESSED, list(keys.values()))
        columns = [*COLUMNS.values()]
        held = Held(
            events=Counter(
                Fact(str(e["outbox_id"]), e["recipient_key"], e["type"])
                for e in events
                if e["outbox_id"] is not None
            ),
            unmatched=sum(e["outbox_id"] is None for e in events),
            filled={
                (str(o["outbox_id"]), o["recipient_key"]): frozenset(
                    c for c in columns if o[c] is not None
                )
                for o in outcomes
            },
            bounce_types={
                (str(o["outbox_id"]), o["recipient_key"]): o["bounce_type"]
                for o in outcomes
                if o["bounce_type"] is not None
            },
            suppressions=frozenset(),
        )
        truth = read_ledger(ledger, keys)
        lines = differences(replace(truth, suppressions=frozenset()), held)
        return lines + _suppressions_wrong(truth, {s["recipient_key"] for s in suppressed})


def _suppressions_wrong(truth: Truth, held: set[str]) -> list[str]:
    """By recipients alone: a bounce for SES's own list is another reason than the bounce that led to it."""
    wanted = {cause.key for cause in truth.suppressions}
    lines = [f"{key} is not suppressed" for key in wanted - held]
    return lines + [f"{key} is suppressed without a cause" for key in held - wanted]


def _change(row: Any) -> Change:
    return Change(
        row["at"].timestamp(),
        int(row["xid"]),
        row["by_whom"],
        str(row["outbox_id"]),
        row["was"],
        row["state"],
        None if row["token"] is None else str(row["token"]),
        None if row["next_token"] is None else str(row["next_token"]),
        row["reason"],
        row["snapshot"],
    )
