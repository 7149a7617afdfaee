"""What a tenant asks and says of its suppressions."""

from datetime import UTC, datetime
from typing import Any

from streams.accepting.calls import Answer, Call
from streams.accepting.reading import plain
from streams.accepting.turns import Turns
from streams.domain.address_lists import Recipient
from streams.domain.addresses import recipient_key
from streams.domain.api_problems import Fault, Refused, invalid
from streams.domain.api_requests import PostedLift, PostedSuppression, SuppressionQuery
from streams.ports.accepting import AcceptStore, Row


class Suppressing:
    """A tenant sees and changes its own suppressions. Of one recipient it is also told those of all tenants, which an operator lifts."""

    def __init__(self, store: AcceptStore, turns: Turns, *, salt: bytes) -> None:
        self._store = store
        self._turns = turns
        self._salt = salt

    async def page(self, call: Call) -> Answer:
        """Suppressions in force, in the order of their recipients' keys."""
        query = call.query
        assert isinstance(query, SuppressionQuery)  # noqa: S101 the route's table says so
        key = None if query.address is None else recipient_key(query.address, self._salt)
        rows = await self._turns.run(
            lambda: self._store.suppressions(
                call.key.tenant, key=key, after=query.cursor or "", limit=query.limit
            )
        )
        following = rows[-1]["recipient_key"] if key is None and len(rows) >= query.limit else None
        return Answer(body={"data": [_shown(row) for row in rows], "next_cursor": following})

    async def add(self, call: Call) -> Answer:
        """Nothing is sent to the address any more, for this tenant."""
        call.change()
        posted = call.posted(PostedSuppression)
        lasting = None if posted.expires_at is None else posted.expires_at - datetime.now(UTC)
        if lasting is not None and lasting.total_seconds() <= 0:
            raise Refused(
                invalid([Fault("/expires_at", "it is over already: choose a later time")])
            )
        key = recipient_key(posted.address, self._salt)
        outcome = await self._turns.run(
            lambda: self._store.suppress(
                call.key.tenant,
                key,
                lane=posted.lane,
                by_whom=call.by_whom,
                why=posted.why,
                lasting=lasting,
            )
        )
        status = 201 if outcome == "added" else 200
        return Answer(status=status, body={"recipient_key": key, "outcome": outcome})

    async def lift(self, call: Call) -> Answer:
        """The tenant's suppressions of an address are gone; of before now nothing suppresses it again."""
        call.change()
        posted = call.posted(PostedLift)
        who = Recipient(recipient_key(posted.address, self._salt), posted.address)
        lifted = await self._turns.run(
            lambda: self._store.lift(
                call.key.tenant, who, lane=posted.lane, by_whom=call.by_whom, why=posted.why
            )
        )
        left = await self._turns.run(
            lambda: self._store.suppressions(call.key.tenant, key=who.key, after="", limit=100)
        )
        kept = [{"lane": row["lane"], "reason": row["reason"]} for row in lifted]
        body = {"recipient_key": who.key, "lifted": kept, "left": [_shown(row) for row in left]}
        return Answer(body=body)


def _shown(row: Row) -> dict[str, Any]:
    shown = plain(row)
    return shown | {"created_at": shown.pop("created"), "expires_at": shown.pop("expires")}
