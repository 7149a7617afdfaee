"""POST /v1/emails and /v1/emails/batch: checked, written, and only then answered."""

import math
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from streams.accepting.calls import Answer, Call
from streams.accepting.turns import Turns
from streams.accepting.writer import Writer
from streams.domain.api_bodies import digest
from streams.domain.api_email import Allowed, PostedEmail, new_outbox_id, read_email
from streams.domain.api_problems import Fault, Kind, Problem, Refused, invalid, refused
from streams.domain.api_requests import MOST_IN_A_BATCH
from streams.domain.attachments import Places
from streams.domain.errors import BadMessage
from streams.ports.accepting import Accepted, AcceptRequest, AcceptStore, Decision, Row
from streams.runtime import metrics

REPLAYED: Final = "Idempotent-Replayed"
Checked = PostedEmail | Sequence[Fault]


class Posting:
    """A request is one transaction, and its answer 202 comes after the commit."""

    def __init__(
        self, store: AcceptStore, writer: Writer, turns: Turns, *, salt: bytes, places: Places
    ) -> None:
        self._store = store
        self._writer = writer
        self._turns = turns
        self._salt = salt
        self._places = places

    async def post(self, call: Call) -> Answer:
        """One e-mail."""
        checked = read_email(call.body, self._allowed(call))
        done = await self._accept(call, [checked], route="emails")
        outcome = _by_place(done.emails).get(0)
        if outcome is None:
            raise Refused(_faulty(checked, at=""))
        result = _result(outcome, at="")
        if isinstance(result, Problem):
            raise Refused(result)
        metrics.API_EMAILS.labels(outcome=_counted(done, outcome)).inc()
        where = {"Location": f"/v1/emails/{result['id']}"}
        return Answer(
            status=202,
            body=result | _test(call),
            headers=where | _rate_headers(done) | _replay_header(done),
            outcome=_outcome(done),
        )

    async def post_batch(self, call: Call) -> Answer:
        """Many e-mails, each with its own result, in the order of the request."""
        given = call.body
        if not isinstance(given, list) or not 1 <= len(given) <= MOST_IN_A_BATCH:
            raise Refused(
                invalid([Fault("", f"post a JSON list of 1 to {MOST_IN_A_BATCH} e-mails")])
            )
        allowed = self._allowed(call)
        checked = [read_email(item, allowed, at=f"/{n}") for n, item in enumerate(given)]
        done = await self._accept(call, checked, route="batch")
        outcomes = _by_place(done.emails)
        results = [
            _faulty(one, at=f"/{n}")
            if (outcome := outcomes.get(n)) is None
            else _result(outcome, at=f"/{n}")
            for n, one in enumerate(checked)
        ]
        for outcome in outcomes.values():
            metrics.API_EMAILS.labels(outcome=_counted(done, outcome)).inc()
        data = [{"error": r.document()} if isinstance(r, Problem) else r for r in results]
        headers = _rate_headers(done) | _replay_header(done)
        if all(isinstance(r, Problem) for r in results):
            detail = "none of the e-mails was accepted: see data"
            raise refused(Kind.INVALID, detail, members={"data": data}, headers=headers)
        return Answer(
            status=202, body={"data": data} | _test(call), headers=headers, outcome=_outcome(done)
        )

    def _allowed(self, call: Call) -> Allowed:
        return Allowed(senders=call.key.senders, places=self._places, now=datetime.now(UTC))

    async def _accept(self, call: Call, checked: Sequence[Checked], *, route: str) -> Accepted:
        """What was committed now, or under this Idempotency-Key before."""
        body_digest = digest(call.body, route=route)
        rows = [
            self._row(call, email) | {"n": n}
            for n, email in enumerate(checked)
            if isinstance(email, PostedEmail)
        ]
        if not rows:
            return await self._before(call, body_digest) or Accepted(decision=Decision.DECIDED)
        request = AcceptRequest(
            tenant=call.key.tenant,
            test=call.key.test,
            idempotency_key=call.idempotency_key,
            digest=body_digest,
            rows=rows,
        )
        try:
            done = await self._writer.accept(request, size=call.size)
        except BadMessage as error:
            raise Refused(invalid([Fault("", str(error))])) from error
        if done.decision is Decision.CONFLICT:
            raise Refused(_CONFLICT)
        if done.decision in (Decision.RATE_LIMITED, Decision.QUOTA_USED_UP):
            raise Refused(_too_many(done))
        return done

    async def _before(self, call: Call, body_digest: bytes) -> Accepted | None:
        """A body that has faults now may have had none when it was posted first: times pass."""
        if call.idempotency_key is None:
            return None
        idempotency_key = call.idempotency_key
        found = await self._turns.run(
            lambda: self._store.replay(call.key.tenant, idempotency_key, test=call.key.test)
        )
        if found is None:
            return None
        if found[0] != body_digest:
            raise Refused(_CONFLICT)
        return found[1]

    def _row(self, call: Call, email: PostedEmail) -> dict[str, Any]:
        id_ = new_outbox_id(time.time_ns() // 1_000_000, os.urandom(10))
        return email.row(id_, salt=self._salt, test=call.key.test, traceparent=call.traceparent)


def _by_place(emails: Sequence[Row]) -> dict[int, Row]:
    return {email["n"]: email for email in emails}


def _faulty(checked: Checked, *, at: str) -> Problem:
    if isinstance(
        checked, PostedEmail
    ):  # valid by now, and refused when the request was first made
        return invalid([Fault(at, "it was refused the first time: post it under another key")])
    return invalid(checked)


def _result(outcome: Row, *, at: str) -> dict[str, Any] | Problem:
    match outcome["outcome"]:
        case "accepted":
            return {"id": outcome["id"]}
        case "known":
            return {"id": outcome["id"], "duplicate": True}
        case "no-template":
            what = "the tenant has no template of this name and version: insert it, or correct this"
            return invalid([Fault(f"{at}/template", what)])
        case _:
            return _suppressed(outcome, at=at)


def _suppressed(outcome: Row, *, at: str) -> Problem:
    members = {name: outcome[name] for name in ("reason", "since", "until") if outcome.get(name)}
    return Problem(
        kind=Kind.SUPPRESSED,
        detail=f"nothing is sent to this recipient since {outcome['since']} ({outcome['reason']}): "
        "leave it out, or have the suppression lifted",
        faults=[Fault(f"{at}/to", "the recipient is suppressed")],
        members=members,
    )


def _counted(done: Accepted, outcome: Row) -> str:
    return "replayed" if done.decision is Decision.REPLAYED else str(outcome["outcome"])


def _outcome(done: Accepted) -> str:
    return "replayed" if done.decision is Decision.REPLAYED else "accepted"


def _replay_header(done: Accepted) -> dict[str, str]:
    return {REPLAYED: "true"} if done.decision is Decision.REPLAYED else {}


def _test(call: Call) -> dict[str, bool]:
    return {"test": True} if call.key.test else {}


def _rate_headers(done: Accepted) -> dict[str, str]:
    """RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers), where the tenant has a rate."""
    if done.burst is None or done.per_second is None:
        return {}
    left = max(done.left or 0, 0)
    full = math.ceil((done.burst - left) / done.per_second)
    window = math.ceil(done.burst / done.per_second)
    return {
        "RateLimit-Policy": f'"accept";q={done.burst};w={window}',
        "RateLimit": f'"accept";r={left};t={full}',
    }


def _too_many(done: Accepted) -> Problem:
    is_rate = done.decision is Decision.RATE_LIMITED
    wait_s = max(math.ceil(done.wait_s), 1)
    return Problem(
        kind=Kind.RATE_LIMITED if is_rate else Kind.QUOTA_USED_UP,
        detail=f"post it again in {wait_s} s, or have the tenant's {'rate' if is_rate else 'quota'} raised",
        retry_after_s=wait_s,
        headers=_rate_headers(done),
    )


_CONFLICT: Final = Problem(
    kind=Kind.IDEMPOTENCY_CONFLICT,
    detail="another body was posted under this Idempotency-Key within a day: use a new key for a new request",
)
