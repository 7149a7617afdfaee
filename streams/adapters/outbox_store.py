"""The sender's statements on PostgreSQL: reading, closing, claiming, outcomes, permits, pauses, templates."""

import time
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg
import orjson

from streams.adapters.postgres import Database
from streams.domain.addresses import RecipientKey
from streams.domain.attachments import Attachment, read_attachments
from streams.domain.attempts import (
    AttemptId,
    Claim,
    ClaimRequest,
    Email,
    Outcome,
    Pause,
    Presence,
    Recorded,
    Undecodable,
    Verdict,
)
from streams.domain.circuit import CircuitState, ProbeIntervals, Report
from streams.domain.errors import BadMessage, Unavailable
from streams.domain.outcomes import LONGEST_PAUSE_S
from streams.domain.pacing import WINDOW_S, Grant, ServerClock
from streams.domain.pointers import Pointer
from streams.domain.templates import Template, TemplateName
from streams.domain.topics import Lane

# For the pool of a sender: its statements read by key only. A generic plan that was made while a table was small must
# not read the whole of it later, and compiling costs more than any of them.
PLANNER: Final = {"enable_seqscan": "off", "enable_mergejoin": "off", "jit": "off"}
WHO: Final = "sender"


class OutboxStore:
    """One statement a method. Unavailable when PostgreSQL is away: then a statement may have been done or not."""

    def __init__(self, database: Database, *, max_attempts: int) -> None:
        self._database = database
        self._max_attempts = max_attempts
        self._clock = ServerClock()

    async def start(self) -> None:
        await self._database.start()
        await self.read_clock()

    def now(self) -> float:
        """Seconds since 1970 on the server's clock. Unavailable before start()."""
        now = self._clock.now(time.monotonic())
        if now is None:
            raise Unavailable("PostgreSQL: its clock was not read yet")
        return now

    async def read_clock(self) -> None:
        """Asks for the time, so that now() is right also while no permits are asked for."""
        asked_at = time.monotonic()
        server_now = await self._database.value("read_clock")
        self._clock.observe(asked_at=asked_at, server_now=server_now, answered_at=time.monotonic())

    async def stop(self) -> None:
        await self._database.stop()

    async def read_pending(self, pointers: Sequence[Pointer]) -> list[Presence]:
        """Of each pointer, in order, whether its row still waits to be sent."""
        rows = await self._database.rows(
            "read_pending", [p.id for p in pointers], [p.xid for p in pointers]
        )
        return [Presence(row["presence"]) for row in rows]

    async def close_unsendable(self, ids: Sequence[UUID]) -> dict[UUID, Verdict]:
        """Writes SUPPRESSED or EXPIRED where the database confirms it; the ids that it did not confirm are left out."""
        rows = await self._database.rows("close_unsendable", list(ids))
        return {row["id"]: Verdict(row["verdict"]) for row in rows}

    async def hold_paused(self, ids: Sequence[UUID]) -> list[UUID]:
        """Puts to sleep what a pause holds, and returns it; the others stay as they are."""
        return [row["id"] for row in await self._database.rows("hold_paused", list(ids))]

    async def claim(self, requests: Sequence[ClaimRequest], *, lease_s: float) -> list[Claim]:
        """A claim for each request, in order. Each id may be asked for once in a batch."""
        ids = [request.id for request in requests]
        if len(set(ids)) != len(ids):
            raise ValueError("an id is asked for twice in one batch")
        rows = await self._database.rows(
            "claim_emails",
            ids,
            [request.attempt_id for request in requests],
            [request.xid for request in requests],
            lease_s,
        )
        found = {row["id"]: _claim(row) for row in rows}
        return [found[id_] for id_ in ids]

    async def record(self, outcomes: Sequence[Outcome]) -> dict[AttemptId, Recorded]:
        """Writes the outcomes, each under its token. Safe to repeat."""
        rows = await self._database.rows("record_outcomes", *_columns(outcomes), self._max_attempts)
        return {AttemptId(row["attempt_id"]): Recorded(row["recorded"]) for row in rows}

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
        asked_at = time.monotonic()
        rows = await self._database.rows(
            "take_permits",
            scope,
            list(costs),
            WINDOW_S,
            lead_s,
            report.reached_ago_s if report.reached else None,
            list(report.failed),
            report.reason,
            report.is_unwritten,
            report.unused_probe,
            intervals.first_s,
            intervals.longest_s,
            intervals.unreachable_s,
            intervals.answer_s,
            report.began_ago_s,
            report.failed_probe,
        )
        answered_at = time.monotonic()
        if not rows:
            return None
        row = rows[0]
        self._clock.observe(
            asked_at=asked_at, server_now=row["server_now"], answered_at=answered_at
        )
        return _grant(row), self._clock, _circuit(row)

    async def pause(self, pause: Pause) -> None:
        """Stops something for all senders, for longer each time it is repeated; a longer pause of somebody else stays as it is."""
        await self._database.rows(
            "add_pause",
            pause.scope,
            pause.value,
            pause.reason,
            WHO,
            pause.seconds,
            LONGEST_PAUSE_S,
        )

    async def templates(self, names: Sequence[TemplateName]) -> dict[TemplateName, Template]:
        """The templates of these names; those that do not exist are left out."""
        rows = await self._database.rows(
            "read_templates",
            [n.tenant for n in names],
            [n.name for n in names],
            [n.version for n in names],
        )
        return {
            TemplateName(row["tenant"], row["name"], row["asked_version"]): Template(
                name=TemplateName(row["tenant"], row["name"], row["version"]),
                subject=row["subject"],
                text=row["text"],
                html=row["html"],
            )
            for row in rows
        }


def _grant(row: asyncpg.Record) -> Grant:
    return Grant(
        messages=row["messages"],
        permits=row["permits"],
        server_now=row["server_now"],
        start_at=row["start_at"],
        per_second=row["per_second"],
        wait_s=row["wait"],
        was_ahead=row["was_ahead"],
    )


def _circuit(row: asyncpg.Record) -> CircuitState:
    return CircuitState(
        failing=row["failing"],
        failing_messages=row["failing_messages"],
        open_since=row["open_since"],
        reason=row["reason"],
        probe=row["probe"],
        has_opened=row["has_opened"],
    )


def _claim(row: asyncpg.Record) -> Claim:
    """One row for itself: the claim has committed, so that an error here must not cost its neighbours."""
    verdict = Verdict(row["verdict"])
    if verdict is not Verdict.CLAIMED:
        return Claim(id=row["id"], verdict=verdict)
    try:
        return Claim(id=row["id"], verdict=verdict, email=_email(row))
    except BadMessage as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 whatever is wrong with a row is wrong with that row alone
        reason = f"the row cannot be read ({type(error).__name__}): insert it anew, and report it"
    undecodable = Undecodable(
        id=row["id"],
        attempt_id=AttemptId(row["attempt_id"]),
        attempt=row["attempts"],
        reason=reason,
    )
    return Claim(id=row["id"], verdict=verdict, undecodable=undecodable)


def _email(row: asyncpg.Record) -> Email:
    left_out = frozenset(row["left_out"] or ())
    return Email(
        id=row["id"],
        attempt_id=AttemptId(row["attempt_id"]),
        attempt=row["attempts"],
        tenant=row["tenant"],
        lane=Lane(row["lane"]),
        recipient=row["recipient"],
        recipient_key=RecipientKey(row["recipient_key"]),
        cc=_kept("cc", row["cc"], row["cc_keys"], left_out),
        bcc=_kept("bcc", row["bcc"], row["bcc_keys"], left_out),
        left_out=tuple(sorted(left_out)),
        sender=row["sender"],
        sender_name=row["sender_name"],
        reply_to=row["reply_to"],
        subject=row["subject"],
        text=row["text"],
        html=row["html"],
        template=row["template"],
        template_version=row["template_version"],
        variables=_json("variables", row["variables"]),
        headers=_json("headers", row["headers"]),
        tags=_json("tags", row["tags"]),
        traceparent=row["traceparent"],
        attachments=_attachments(row["attachments"]),
    )


def _attachments(text: str | None) -> tuple[Attachment, ...]:
    return () if text is None else read_attachments(orjson.loads(text))


def _kept(
    field: str, addresses: list[str] | None, keys: list[str] | None, left_out: frozenset[str]
) -> tuple[str, ...]:
    given, known = addresses or [], keys or []
    # An array of several dimensions arrives as lists in a list, its keys as one flat list.
    if len(given) != len(known) or not all(isinstance(address, str) for address in given):
        raise BadMessage(f"{field} is not a plain list of addresses: insert the row anew with one")
    return tuple(address for address, key in zip(given, known, strict=True) if key not in left_out)


def _json(field: str, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = orjson.loads(text)
    except ValueError as error:  # PostgreSQL takes longer numbers and deeper nesting
        raise BadMessage(
            f"{field} cannot be read: numbers must be less than 1e308 and nesting at most 1,000 deep; insert the row anew"
        ) from error
    if not isinstance(found, dict):
        raise BadMessage(f"{field} is not a JSON object: insert the row anew with one")
    return found


def _columns(outcomes: Sequence[Outcome]) -> list[list[Any]]:
    return [
        [o.id for o in outcomes],
        [o.attempt_id for o in outcomes],
        [o.number for o in outcomes],
        [o.kind for o in outcomes],
        [o.started for o in outcomes],
        [o.finished for o in outcomes],
        [o.delay_s for o in outcomes],
        [o.provider_message_id for o in outcomes],
        [o.error_class for o in outcomes],
        [o.code for o in outcomes],
        [o.http_status for o in outcomes],
        [o.reason for o in outcomes],
        [",".join(o.left_out) or None for o in outcomes],
    ]
