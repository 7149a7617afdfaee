"""The story of rows that broke a promise: what the tables, the journals and SES know of each, by time."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from crash.rounds import Round
from crash.verdict import Evidence

MOST = 10


def tell(broken: Round, kept: Path) -> None:
    """Prints the first rows' stories, writes all of them beside the evidence."""
    evidence = broken.evidence
    rows = list(dict.fromkeys(o.outbox_id for o in broken.verdict.offences if o.outbox_id))
    stories = [story(evidence, outbox_id) for outbox_id in rows]
    offences = [f"{o.kind} {o.outbox_id or '-'} {o.words}" for o in broken.verdict.offences]
    text = "\n\n".join(["\n".join(offences), *stories])
    (kept / "stories.txt").write_text(text + "\n", encoding="utf-8")
    print(f"evidence, scenario and stories: {kept}")
    for text in stories[:MOST]:
        print(text)


def story(evidence: Evidence, outbox_id: str) -> str:
    """Everything that is known of one row, a line each, by time."""
    row = evidence.rows.get(outbox_id)
    head = f"{outbox_id}: {'no row' if row is None else f'{row.state} ({row.reason})'}"
    return "\n".join(
        [head, *(f"  {_clock(at)} {words}" for at, words in sorted(_lines(evidence, outbox_id)))]
    )


def _lines(evidence: Evidence, outbox_id: str) -> Iterable[tuple[float, str]]:
    attempts = set()
    for c in evidence.changes:
        if c.outbox_id == outbox_id:
            attempts |= {c.token, c.next_token}
            yield c.at, f"{c.was} -> {c.state} (token {c.token or c.next_token}) {c.reason or ''}"
    for token in attempts - {None}:
        attempt = evidence.attempts.get(str(token))
        if attempt is None:
            yield 0.0, f"attempt {token}: no worker noted it"
            continue
        died = ", its worker died with it" if attempt.died else ""
        yield (
            attempt.claimed_at,
            (
                f"attempt {token} of {attempt.worker}: called {attempt.called}, answered {attempt.answers}, told {attempt.told}, "
                f"written {attempt.recorded}{died}"
            ),
        )
    for call in evidence.calls:
        if call.outbox_id == outbox_id:
            yield call.at, f"SES took attempt {call.attempt}"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")
