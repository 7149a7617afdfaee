"""Table suppression within one transaction of the fold or of reclassify."""

from collections.abc import Collection, Sequence

from streams.adapters.postgres import Connection
from streams.adapters.queries import query
from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import Suppression, SuppressionReason
from streams.domain.delivery_events import EventId
from streams.domain.facts import RecipientScope
from streams.domain.lifts import Lift, Lifts, Scope


class SuppressionRows:
    """Statements about suppressions; whoever changes one locks its recipient first."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def lock(self, keys: Collection[RecipientKey]) -> Lifts:
        """Locks these recipients' suppressions before any of them is changed; the lifts that concern them."""
        rows = await self._connection.fetch(query("lock_suppressions"), sorted(keys))
        return Lifts(Lift(**row) for row in rows)

    async def suppress(self, suppressions: Sequence[Suppression]) -> int:
        """Puts them in force; how many rows were new or changed."""
        rows = await self._connection.fetch(query("upsert_suppressions"), *_columns(suppressions))
        return len(rows)

    async def replace(self, suppressions: Sequence[Suppression]) -> int:
        """Sets them to exactly this; how many rows were new or changed."""
        rows = await self._connection.fetch(
            query("replace_suppressions"),
            *_columns(suppressions),
            [s.expires for s in suppressions],
        )
        return len(rows)

    async def withdraw(self, scopes: Collection[Scope]) -> int:
        """Takes rows away that nothing supports any more; how many were there."""
        columns = zip(*sorted(scopes), strict=True)
        rows = await self._connection.fetch(
            query("withdraw_suppressions"), *(list(column) for column in columns)
        )
        return len(rows)

    async def withdraw_unattributed(
        self, evidence: Collection[tuple[RecipientKey, EventId, SuppressionReason]]
    ) -> int:
        """Withdraws suppressions of all tenants that rest on evidence which has a tenant now."""
        columns = zip(*sorted(evidence), strict=True)
        rows = await self._connection.fetch(
            query("withdraw_unattributed"), *(list(column) for column in columns)
        )
        return len(rows)

    async def suppressed_softly(
        self, scopes: Collection[RecipientScope]
    ) -> Collection[RecipientScope]:
        """Which of these a streak of soft bounces suppresses."""
        columns = zip(*sorted(scopes), strict=True)
        rows = await self._connection.fetch(
            query("find_soft_suppressions"), *(list(column) for column in columns)
        )
        return {(row["tenant"], row["recipient_key"]) for row in rows}


def _columns(suppressions: Sequence[Suppression]) -> tuple[list[object], ...]:
    return (
        [s.recipient_key for s in suppressions],
        [s.tenant for s in suppressions],
        [s.lane for s in suppressions],
        [s.reason.value for s in suppressions],
        [s.evidence_id for s in suppressions],
        [s.evidence_at for s in suppressions],
        [s.unattributed for s in suppressions],
        [s.rule_version for s in suppressions],
    )
