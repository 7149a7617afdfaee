"""The stored evidence of some recipients, read and changed in one transaction."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

from streams.adapters.facts_transaction import (
    columns_of,
    lock_recipients,
    placed_of,
    restate_recipients,
)
from streams.adapters.postgres import Connection
from streams.adapters.queries import query
from streams.adapters.suppression_rows import SuppressionRows
from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import SuppressionReason
from streams.domain.facts import Placed, RecipientScope, RecipientState
from streams.domain.lifts import Lift, Lifts
from streams.domain.reclassification import Evidence, LiftedRow, SuppressionRow


class EvidencePage:
    """These recipients within one transaction."""

    def __init__(self, connection: Connection, keys: Sequence[RecipientKey]) -> None:
        self._connection = connection
        self._keys = list(keys)
        self.suppressions = SuppressionRows(connection)

    async def read(self) -> Sequence[Evidence]:
        """All evidence, without any lock."""
        columns = columns_of(await self._scopes())
        states = await self._connection.fetch(query("read_recipients"), *columns)
        lifts = await self._connection.fetch(query("read_lifts"), self._keys)
        return await self._evidence(
            [RecipientState(**row) for row in states], Lifts(Lift(**row) for row in lifts)
        )

    async def lock(self) -> Sequence[Evidence]:
        """Locks these recipients as the fold does, and returns all their evidence."""
        scopes = await self._scopes()
        states = await lock_recipients(self._connection, scopes)
        lifts = await self.suppressions.lock(self._keys)
        # A tenant may have had its first evidence meanwhile. Out of order: a deadlock starts this from anew.
        if missing := sorted({*await self._scopes()} - {*scopes}):
            states += await lock_recipients(self._connection, missing)
        return await self._evidence(states, lifts)

    async def restate(self, states: Sequence[RecipientState]) -> None:
        """Sets the locked rows to exactly this."""
        await restate_recipients(self._connection, states)

    async def lift(self, rows: Sequence[LiftedRow], *, by_whom: str, rules: int) -> int:
        """Lifts these suppressions, which is logged with its reason; how many there were."""
        lifted = 0
        in_order = sorted(rows, key=lambda one: one.why)
        for why, group in groupby(in_order, key=lambda one: one.why):
            some = list(group)
            columns = [list(column) for column in zip(*(o.row.scope for o in some), strict=True)]
            times = [one.up_to for one in some]
            gone = await self._connection.fetch(
                query("lift_suppressions"), *columns, by_whom, why, rules, times
            )
            lifted += len(gone)
        return lifted

    async def _scopes(self) -> list[RecipientScope]:
        rows = await self._connection.fetch(query("find_evidence_scopes"), self._keys)
        return sorted((row["tenant"], RecipientKey(row["recipient_key"])) for row in rows)

    async def _evidence(self, states: Sequence[RecipientState], lifts: Lifts) -> Sequence[Evidence]:
        """Read by statements of their own, so that they see all that committed before the locks were given."""
        history: defaultdict[str, list[Placed]] = defaultdict(list)
        for row in await self._connection.fetch(query("find_evidence"), self._keys):
            history[row["recipient_key"]].append(placed_of(row))
        rows: defaultdict[str, list[SuppressionRow]] = defaultdict(list)
        for row in await self._connection.fetch(query("read_suppressions"), self._keys):
            values = {**row, "reason": SuppressionReason(row["reason"])}
            rows[row["recipient_key"]].append(SuppressionRow(**values))
        return [
            Evidence(
                recipient_key=key,
                history=history[key],
                states=[state for state in states if state.recipient_key == key],
                rows=rows[key],
                lifts=lifts,
            )
            for key in self._keys
        ]
