"""The evidence of a round that broke a promise, kept where nothing removes it, and its story by time."""

import shutil
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from relayfuzz.rounds import Round
from relayfuzz.verdict import Evidence, Offence

MOST: Final = 5


def keep(done: Round, directory: Path) -> Path:
    """Logs, journals, plan, disturbances, all records and rows, and the story of each offence."""
    kept = Path(tempfile.mkdtemp(prefix="mailstreams-relayfuzz-evidence-"))
    shutil.copytree(directory, kept / "relays")
    done.plan.write(kept / "plan.json")
    (kept / "disturbances.log").write_text("\n".join(done.log) + "\n", encoding="utf-8")
    evidence = done.evidence
    (kept / "records.txt").write_text("\n".join(map(str, evidence.copies)), encoding="utf-8")
    rows = "\n".join(f"{row_id} {row}" for row_id, row in evidence.written.items())
    (kept / "rows.txt").write_text(rows, encoding="utf-8")
    stories = "\n\n".join(story(evidence, offence) for offence in done.verdict.offences[:200])
    (kept / "stories.txt").write_text(stories + "\n", encoding="utf-8")
    return kept


def story(evidence: Evidence, offence: Offence) -> str:
    """What is known of the row or key, by time, between what was disturbed and who became the one that writes."""
    copies = [c for c in evidence.copies if offence.about in (str(c.row_id), c.key)]
    copies.sort(key=lambda c: c.seq)
    copies = copies[-12:]
    lines = list(_lines(evidence, {str(c.row_id) for c in copies}))
    times = [c.at for c in copies]
    if times:
        lines = [(at, words) for at, words in lines if min(times) - 15 < at < max(times) + 15]
    text = [f"  {_clock(at)} {words}" for at, words in sorted(lines)]
    return "\n".join([f"{offence.kind} {offence.about}: {offence.words}", *text])


def _lines(evidence: Evidence, rows: set[str]) -> Iterable[tuple[float, str]]:
    for d in evidence.disturbances:
        yield d.start, f"{d.do} {d.who}, for {d.end - d.start:.2f} s"
    for s in evidence.sessions:
        yield s.at, f"{s.relay} became the one that writes{', the slot was lost' if s.lost else ''}"
    for late in evidence.late:
        yield late.at, f"{late.relay} gave a producer up with {len(late.keys)} suppressions"
    for c in evidence.copies:
        if str(c.row_id) in rows:
            yield c.at, f"read for {c.aggregate} {c.partition}/{c.offset}: {c.key} sequence {c.seq}"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]
