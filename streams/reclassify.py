"""Another version of the bounce rules over the stored evidence, page by page of recipients: what it adds, and what it lifts.

Each page is read without a lock; only recipients whose rows change are then locked as the fold locks them, read again, and
changed in one transaction. So it runs beside the stages, and may be broken off and begun again at any time.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import RuleSet
from streams.domain.reclassification import Evidence, Reclassified, Report, reclassify, together
from streams.ports.recipients import EvidencePage, EvidenceStore

log = logging.getLogger(__name__)

PAGE: Final = 200
BY_WHOM: Final = "mailstreams reclassify"


async def reclassify_all(
    store: EvidenceStore,
    *,
    rules: RuleSet,
    dry_run: bool,
    after: RecipientKey | None = None,
    page: int = PAGE,
    told: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Goes through all recipients behind `after`; told after each page. A dry run decides the same and writes nothing."""
    report = Report(rules_version=rules.version, dry_run=dry_run, last=after)
    while keys := await store.keys(after=report.last, limit=page):
        await _page(store, keys, rules, report)
        report.last = keys[-1]
        told(report)
    log.info(
        "stored evidence was classified again",
        extra={
            "action": "evidence.reclassified",
            "rules_version": rules.version,
            "dry_run": dry_run,
            "recipients": report.recipients,
            "changed": report.changed,
        },
    )
    return report


async def _page(
    store: EvidenceStore, keys: Sequence[RecipientKey], rules: RuleSet, report: Report
) -> None:
    decided = decide(await store.read(keys), rules)
    changing = [key for key, found in decided.items() if found.changes_anything]
    if changing and not report.dry_run:
        decided |= await store.transact(changing, partial(change, rules=rules))
    for found in decided.values():
        report.count(found)


def decide(page: Sequence[Evidence], rules: RuleSet) -> dict[RecipientKey, Reclassified]:
    """What changes, by recipient."""
    now = datetime.now(UTC)
    return {one.recipient_key: reclassify(one, rules=rules, now=now) for one in page}


async def change(page: EvidencePage, *, rules: RuleSet) -> dict[RecipientKey, Reclassified]:
    """Decides again under the locks, and writes it."""
    decided = decide(await page.lock(), rules)
    found = together(list(decided.values()))
    if found.states:
        await page.restate(found.states)
    if found.moved:
        await page.suppressions.withdraw([row.scope for row in found.moved])
    if found.lifted:
        await page.lift(found.lifted, by_whom=BY_WHOM, rules=rules.version)
    if written := [*found.added, *found.replaced]:
        await page.suppressions.replace(written)
    return decided
