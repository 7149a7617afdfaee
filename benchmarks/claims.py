"""What a message costs PostgreSQL: claim and outcome of the sender, in batches, beside the least that they can be.

The processor time of the one PostgreSQL process that runs the statements. Both shapes run in turns on the same rows, so that the
ratio of the two bears a noisy machine.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any, Final
from uuid import UUID

from benchmarks import machine
from benchmarks.bare_claims import CLAIM, OUTCOME
from benchmarks.claims_stand import ClaimsStand, token
from streams.domain.attempts import ClaimRequest, Outcome, OutcomeKind, Recorded

NAME: Final = "claims"
TARGET_US: Final = 60.0
TARGET_HOT: Final = 0.99
# The bootstrap transaction, visible to every snapshot.
VISIBLE_XID: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured, in each order of ids."""

    rows: int
    suppressions: int
    batch: int
    rounds: int


FULL: Final = Sizes(rows=60_000, suppressions=200_000, batch=200, rounds=5)
QUICK: Final = Sizes(rows=400, suppressions=100, batch=200, rounds=1)

Batch = Callable[[ClaimsStand, Sequence[UUID]], Awaitable[tuple[float, float]]]


def run(*, quick: bool) -> dict[str, Any]:
    """The numbers; what is measured is told on the way."""
    sizes = QUICK if quick else FULL
    return asyncio.run(_run(sizes, quick=quick))


def say(line: str) -> None:
    print(line, flush=True)


async def _run(sizes: Sizes, *, quick: bool) -> dict[str, Any]:
    orders: dict[str, Any] = {}
    for order in ("time", "random"):
        say(f"{sizes.rows} rows and {sizes.suppressions} suppressions are made: not timed")
        async with ClaimsStand(rows=sizes.rows, suppressions=sizes.suppressions) as stand:
            orders[f"{order}_order"] = await _measure(stand, sizes, order)
            where = {"clock": stand.clock_kind, "postgres": stand.postgres}
    return {
        "benchmark": NAME,
        "quick": quick,
        "target_us": TARGET_US,
        "target_hot_share": TARGET_HOT,
        "batch": sizes.batch,
        **orders,
        **where,
        **machine.description(),
    }


async def _measure(stand: ClaimsStand, sizes: Sizes, order: str) -> dict[str, Any]:
    ids = list(stand.ids)
    if order == "random":
        random.Random(2).shuffle(ids)  # noqa: S311 the same order every time
    # The first batch makes the connection ready: it parses and plans.
    await _sender_batch(stand, ids[: sizes.batch])
    await _bare_batch(stand, ids[: sizes.batch])
    size = (len(ids) - sizes.batch) // sizes.rounds
    ours, bare = [], []
    for number in range(sizes.rounds):
        part = ids[sizes.batch + number * size :][:size]
        ours.append(await _round(stand, part, sizes.batch, "email_outbox", _sender_batch))
        bare.append(await _round(stand, part, sizes.batch, "bare_outbox", _bare_batch))
        say(f"{order} order, round {number + 1}: {_line(ours[-1])}; bare: {_line(bare[-1])}")
    summary, least = _summary(ours), _summary(bare)
    return {
        **summary,
        "bare": least,
        "ratio_to_bare": round(
            median(a["us"] / b["us"] for a, b in zip(ours, bare, strict=True)), 2
        ),
    }


def _line(numbers: dict[str, float]) -> str:
    return f"{numbers['claim_us']:.1f} + {numbers['outcome_us']:.1f} us, {numbers['wal_bytes']:.0f} bytes of WAL, {numbers['hot_share']:.1%} HOT"


async def _round(
    stand: ClaimsStand, ids: Sequence[UUID], batch: int, table: str, work: Batch
) -> dict[str, float]:
    before = await stand.counters(table)
    began = time.perf_counter()
    claim_s = outcome_s = 0.0
    for start in range(0, len(ids), batch):
        claiming, telling = await work(stand, ids[start : start + batch])
        claim_s += claiming
        outcome_s += telling
    took = time.perf_counter() - began
    after = await stand.counters(table)
    updates = after["updates"] - before["updates"]
    assert updates == 2 * len(ids), (updates, len(ids))  # noqa: S101 a benchmark of work that was not done is none
    return {
        "claim_us": claim_s / len(ids) * 1e6,
        "outcome_us": outcome_s / len(ids) * 1e6,
        "us": (claim_s + outcome_s) / len(ids) * 1e6,
        "per_wall_second": len(ids) / took,
        "wal_bytes": (after["wal"] - before["wal"]) / len(ids),
        "hot_share": (after["hot"] - before["hot"]) / updates,
    }


def _summary(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The median of each number, the range of the whole, and the share of heap-only updates in all rounds together."""
    found = {name: round(median(r[name] for r in rounds), 1) for name in rounds[0]}
    return {
        **found,
        "lowest_us": round(min(r["us"] for r in rounds), 1),
        "highest_us": round(max(r["us"] for r in rounds), 1),
        "hot_share": round(sum(r["hot_share"] for r in rounds) / len(rounds), 4),
    }


async def _sender_batch(stand: ClaimsStand, ids: Sequence[UUID]) -> tuple[float, float]:
    """The processor time of the claim and of the outcomes."""
    requests = [ClaimRequest(id=id_, attempt_id=token(), xid=VISIBLE_XID) for id_ in ids]
    began = stand.clock()
    claims = await stand.store.claim(requests, lease_s=45.0)
    claimed = stand.clock()
    now = datetime.now(UTC)
    emails = [claim.email for claim in claims if claim.email is not None]
    outcomes = [
        Outcome(
            id=email.id,
            attempt_id=email.attempt_id,
            number=email.attempt,
            kind=OutcomeKind.ACCEPTED,
            started=now,
            finished=now,
            provider_message_id=f"0107019a{email.attempt_id.hex}-000000",
            http_status=200,
        )
        for email in emails
    ]
    telling = stand.clock()
    recorded = await stand.store.record(outcomes)
    done = stand.clock()
    assert list(recorded.values()) == [Recorded.APPLIED] * len(ids)  # noqa: S101
    return claimed - began, done - telling


async def _bare_batch(stand: ClaimsStand, ids: Sequence[UUID]) -> tuple[float, float]:
    tokens = [token() for _ in ids]
    async with stand.database.connection() as connection:
        began = stand.clock()
        rows = await connection.fetch(CLAIM, list(ids), tokens)
        claimed = stand.clock()
        messages = [f"0107019a{row['attempt_id'].hex}-000000" for row in rows]
        columns = [row["id"] for row in rows], [row["attempt_id"] for row in rows], messages
        telling = stand.clock()
        await connection.fetch(OUTCOME, *columns)
        done = stand.clock()
    assert len(rows) == len(ids)  # noqa: S101
    return claimed - began, done - telling
