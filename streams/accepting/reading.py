"""What a tenant asks of its messages, and does with those that are not sent yet."""

from collections.abc import Mapping
from datetime import datetime
from email.utils import formataddr
from typing import Any, Final
from uuid import UUID

from streams.accepting.calls import Answer, Call
from streams.accepting.turns import Turns
from streams.domain.addresses import recipient_key
from streams.domain.api_problems import Fault, Kind, Refused, invalid, refused
from streams.domain.api_requests import EmailQuery, PostedCancel, PostedReschedule
from streams.domain.errors import BadMessage
from streams.ports.accepting import AcceptStore, EmailFilter, Row

_NEWEST: Final = UUID(int=2**128 - 1)


class Reading:
    """Everything here is looked for among the messages of the key's tenant alone."""

    def __init__(self, store: AcceptStore, turns: Turns, *, salt: bytes) -> None:
        self._store = store
        self._turns = turns
        self._salt = salt

    async def get(self, call: Call) -> Answer:
        """One message with its events."""
        row = await self._turns.run(lambda: self._store.read(call.key.tenant, _id(call)))
        if row is None:
            raise _absent()
        return Answer(body=_email(row) | {"events": row["events"]})

    async def page(self, call: Call) -> Answer:
        """Messages, newest first."""
        query = call.query
        assert isinstance(query, EmailQuery)  # noqa: S101 the route's table says so
        which = EmailFilter(
            tenant=call.key.tenant,
            before=query.cursor or _NEWEST,
            state=query.state,
            lane=query.lane,
            recipient=None if query.to is None else recipient_key(query.to, self._salt),
            limit=query.limit,
        )
        rows, following = await self._turns.run(lambda: self._store.page(which))
        data = [_email(row) for row in rows]
        return Answer(body={"data": data, "next_cursor": _text(following)})

    async def cancel(self, call: Call) -> Answer:
        """A message that is not sent yet ends as cancelled."""
        call.change()
        posted = call.posted(PostedCancel)
        outcome = await self._turns.run(
            lambda: self._store.cancel(
                call.key.tenant, _id(call), by_whom=call.by_whom, why=posted.reason
            )
        )
        if outcome != "cancelled":
            raise _not_done(outcome)
        return Answer(body={"id": str(call.id), "state": "cancelled"})

    async def reschedule(self, call: Call) -> Answer:
        """A scheduled message gets another time."""
        call.change()
        posted = call.posted(PostedReschedule)
        try:
            outcome = await self._turns.run(
                lambda: self._store.reschedule(
                    call.key.tenant, _id(call), posted.send_after, by_whom=call.by_whom
                )
            )
        except BadMessage as error:
            raise Refused(invalid([Fault("/send_after", str(error))])) from error
        if outcome != "rescheduled":
            raise _not_done(outcome)
        return Answer(body={"id": str(call.id), "send_after": _text(posted.send_after)})


def _id(call: Call) -> UUID:
    if call.id is None:
        raise RuntimeError("this route has an id")
    return call.id


def _absent() -> Refused:
    return refused(Kind.NOT_FOUND, "this tenant has no message of this id")


def _not_done(outcome: str) -> Refused:
    """Why a message was left as it is."""
    match outcome:
        case "absent":
            return _absent()
        case "busy":
            detail = "the message is being sent or looked at: ask again in a moment"
            return refused(Kind.BUSY, detail, retry_after_s=1)
        case "due":
            detail = "the message is due, or was never scheduled: cancel it and post another one"
            return refused(Kind.NOT_POSSIBLE, detail)
        case state:
            detail = f"the message is {state}: that does not change any more"
            return refused(Kind.NOT_POSSIBLE, detail, members={"state": state})


def _email(row: Row) -> dict[str, Any]:
    name = row.get("sender_name")
    found = {
        "id": str(row["id"]),
        "state": row["state"],
        "reason": row["reason"],
        "lane": row["lane"],
        "from": formataddr((name, row["sender"]), "utf-8") if name else row["sender"],
        "to": row["recipient"],
        "send_after": _text(row["send_after"]),
        "created_at": _text(row["created"]),
        "changed_at": _text(row["changed"]),
    }
    return found | {n: _text(row[n]) for n in _DETAILS if n in row}


_DETAILS: Final = (
    "cc",
    "bcc",
    "reply_to",
    "subject",
    "template",
    "template_version",
    "tags",
    "dedup_key",
    "expires_at",
    "attempts",
)


def _text(value: Any) -> Any:
    """Times and ids as JSON has them. expires_at may be PostgreSQL's infinity, which asyncpg gives as the last year."""
    if isinstance(value, datetime):
        return None if value.year == 9999 else value.isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, UUID) else value


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON has it."""
    return {name: _text(value) for name, value in row.items()}
