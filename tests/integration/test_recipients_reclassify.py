"""Another version of the bounce rules over what the fold has stored in a real PostgreSQL."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from streams.adapters.facts_store import EvidenceStore, FactsStore
from streams.adapters.postgres import Database
from streams.domain.bounce_rules import RULES, Effect, RuleSet, StreakRule, SuppressionReason
from streams.domain.delivery_events import BounceReason, BounceType, DeliveryEvent, EventType
from streams.domain.reclassification import Report
from streams.folding.fold import fold
from streams.reclassify import reclassify_all
from tests.command_line import mailstreams
from tests.integration.outbox_rows import (
    START,
    all_facts,
    bounced,
    complained,
    event,
    execute,
    fetch,
    make_row,
)

pytestmark = pytest.mark.servers

NOW = datetime.now(UTC)


def hours_ago(hours: float) -> float:
    """As seconds after START."""
    return (NOW - timedelta(hours=hours) - START).total_seconds()


# What another team might have made of it: 5.4.1 may pass, policy blocks are final, three soft bounces in two days are enough,
# complaints hold for every tenant.
def stricter() -> RuleSet:
    classes = replace(
        RULES.classes,
        by_class={**RULES.classes.by_class, (5, 4, 1): BounceReason.DNS},
        passing_reasons=RULES.classes.passing_reasons | {BounceReason.DNS},
    )
    rules = []
    for rule in RULES.rules:
        if rule.bounce_reasons is not None:
            rules.append(replace(rule, bounce_reasons=rule.bounce_reasons - {BounceReason.POLICY}))
        elif rule.effect is not None and rule.effect.reason is SuppressionReason.COMPLAINT:
            rules.append(replace(rule, effect=Effect(reason=SuppressionReason.COMPLAINT)))
        else:
            rules.append(rule)
    streak = StreakRule(bounces=3, over=timedelta(hours=48), lasting=timedelta(days=14))
    return RuleSet(version=2, rules=rules, streak=streak, classes=classes)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> RuleSet:
    """Version 2, released."""
    rules = stricter()
    monkeypatch.setattr(
        "streams.domain.bounce_rules.RULE_VERSIONS", {RULES.version: RULES, rules.version: rules}
    )
    return rules


async def apply(database: Database, *events: DeliveryEvent) -> None:
    await FactsStore(database).transact(partial(fold, events=events))


async def evidence_of_all_kinds(database: Database) -> dict[str, Any]:
    rows = {}
    for name in ("not-found", "dns", "policy", "both", "soft", "complaint", "opt-out"):
        rows[name] = await make_row(
            database, "submitted", recipient=f"{name}@example.com", provider_message_id=name
        )
    await apply(
        database,
        bounced(rows["not-found"], status="5.1.1"),
        bounced(rows["dns"], status="5.4.1"),
        bounced(rows["policy"], status="5.7.1"),
        bounced(rows["both"], status="5.4.1", name="first", at_s=1),
        bounced(rows["both"], status="5.1.1", name="second", at_s=2),
        *(
            bounced(
                rows["soft"],
                label="Transient",
                name=f"soft {n}",
                provider_message_id=f"soft {n}",
                at_s=hours_ago(60 - 25 * n),
            )
            for n in range(3)
        ),
        complained(rows["complaint"]),
        event(EventType.UNSUBSCRIBED, rows["opt-out"]),
    )
    return rows


async def run(database: Database, rules: RuleSet, **options: Any) -> Report:
    options = {"dry_run": False, "page": 3} | options
    return await reclassify_all(EvidenceStore(database), rules=rules, **options)


def counts(report: Report) -> dict[str, dict[str, int]]:
    return {change: dict(rows) for change, rows in report.by_change.items()}


EXPECTED = {
    "added": {"hard-bounce": 1, "complaint": 1, "soft-bounces": 1},
    "lifted": {"hard-bounce": 1, "complaint": 1},
    "replaced": {"hard-bounce": 1},
    "moved": {},
}


async def rows_of(database: Database) -> dict[str, list[dict[str, Any]]]:
    found = await all_facts(database)
    for table in ("suppression_log", "provider_unlisting", "outbox_feed", "suppression"):
        found[table] = await fetch(database, f"SELECT * FROM {table} ORDER BY 1, 2, 3")
    return found


async def test_a_dry_run_changes_nothing_and_tells_what_the_real_run_does(
    database: Database, known: RuleSet
) -> None:
    await evidence_of_all_kinds(database)
    before = await rows_of(database)
    dry = await run(database, known, dry_run=True)
    assert counts(dry) == EXPECTED
    assert await rows_of(database) == before
    real = await run(database, known)
    assert counts(real) == counts(dry)
    assert (real.recipients, real.changed) == (dry.recipients, dry.changed) == (7, 5)


async def test_what_the_old_version_got_wrong_is_lifted_and_what_it_missed_is_added(
    database: Database, known: RuleSet
) -> None:
    rows = await evidence_of_all_kinds(database)
    await run(database, known)
    found = await fetch(
        database, "SELECT recipient_key, tenant, reason, evidence_id, rule_version FROM suppression"
    )
    told = {(f["recipient_key"], f["tenant"], f["reason"], f["rule_version"]) for f in found}
    assert told == {
        (rows["not-found"].key, "*", "hard-bounce", 1),
        (rows["policy"].key, "*", "hard-bounce", 2),
        (rows["both"].key, "*", "hard-bounce", 2),
        (rows["soft"].key, "shop", "soft-bounces", 2),
        (rows["complaint"].key, "*", "complaint", 2),
        (rows["opt-out"].key, "shop", "unsubscribed", 1),
    }
    [evidence] = [f["evidence_id"] for f in found if f["recipient_key"] == rows["both"].key]
    assert evidence.startswith("second")
    logged = await fetch(
        database,
        "SELECT recipient_key, tenant, reason, by_whom, why, rule_version FROM suppression_log ORDER BY reason",
    )
    assert [(r["recipient_key"], r["tenant"], r["reason"]) for r in logged] == [
        (rows["complaint"].key, "shop", "complaint"),
        (rows["dns"].key, "*", "hard-bounce"),
    ]
    assert {(r["by_whom"], r["why"], r["rule_version"]) for r in logged} == {
        ("mailstreams reclassify", "reclassify v1->v2", 2)
    }
    unlisted = await fetch(database, "SELECT recipient_key, address FROM provider_unlisting")
    assert {(u["recipient_key"], u["address"]) for u in unlisted} == {
        (rows["complaint"].key, "complaint@example.com"),
        (rows["dns"].key, "dns@example.com"),
    }
    states = await fetch(
        database, "SELECT recipient_key FROM recipient_state WHERE hard_bounce IS NOT NULL"
    )
    assert {s["recipient_key"] for s in states} == {
        rows[name].key for name in ("not-found", "policy", "both")
    }


async def test_a_second_run_finds_nothing_to_do(database: Database, known: RuleSet) -> None:
    await evidence_of_all_kinds(database)
    await run(database, known)
    before = await rows_of(database)
    again = await run(database, known)
    assert again.changed == 0
    assert await rows_of(database) == before


async def test_the_version_that_was_folded_with_changes_nothing(database: Database) -> None:
    await evidence_of_all_kinds(database)
    before = await rows_of(database)
    report = await run(database, RULES)
    assert (report.recipients, report.changed) == (7, 0)
    assert await rows_of(database) == before


async def test_a_complaint_about_the_only_person_mailed_stays_attributed(
    database: Database,
) -> None:
    """Whatever else the report names: how many people the mail went to counts in the fold and here alike."""
    row = await make_row(database, "submitted", recipient="ann@example.com")
    named = [{"emailAddress": row.key}, {"emailAddress": "f" * 32}]
    raw = {"mail": {"destination": [row.key]}, "complaint": {"complainedRecipients": named}}
    await apply(database, complained(row, raw=raw))
    before = await fetch(database, "SELECT * FROM suppression")
    assert [one["unattributed"] for one in before] == [False]
    report = await run(database, RULES)
    assert (report.recipients, report.changed) == (1, 0)
    assert await fetch(database, "SELECT * FROM suppression") == before


def test_a_place_to_go_on_from_that_is_no_recipient_key_is_refused() -> None:
    done = mailstreams("reclassify", "--after", "ann", environment={})
    assert done.returncode == 2
    assert (
        done.stderr.strip()
        == "mailstreams: --after 'ann': a recipient key has 32 hex digits, 0-9 and a-f"
    )


async def test_a_run_that_was_broken_off_goes_on_where_it_was(
    database: Database, known: RuleSet
) -> None:
    await evidence_of_all_kinds(database)
    dry = await run(database, known, dry_run=True)

    class BrokenOffError(Exception):
        pass

    seen: list[Report] = []

    def told(report: Report) -> None:
        seen.append(report)
        if len(seen) == 2:
            raise BrokenOffError

    with pytest.raises(BrokenOffError):
        await run(database, known, page=2, told=told)
    rest = await run(database, known, after=seen[-1].last)
    assert rest.recipients == 3
    together = {
        change: dict(seen[-1].by_change[change] + rest.by_change[change]) for change in EXPECTED
    }
    assert together == counts(dry)


async def test_evidence_older_than_a_lift_stays_lifted(database: Database, known: RuleSet) -> None:
    rows = await evidence_of_all_kinds(database)
    for name in ("policy", "not-found", "soft"):
        await execute(
            database,
            "SELECT lift_suppressions(ARRAY[$1], ARRAY['*'], ARRAY['*'], ARRAY['*'], 'ann', 'she asked')",
            rows[name].key,
        )
    report = await run(database, known)
    assert dict(report.by_change["added"]) == {"complaint": 1}
    suppressed = await fetch(database, "SELECT recipient_key FROM suppression")
    assert not {rows[n].key for n in ("policy", "not-found", "soft")} & {
        s["recipient_key"] for s in suppressed
    }


async def test_newer_evidence_that_was_under_way_meanwhile_suppresses(
    database: Database, known: RuleSet
) -> None:
    row = await make_row(database, "submitted", provider_message_id="p")
    await apply(database, bounced(row, status="5.4.1", at_s=5))
    await run(database, known)
    assert await execute(database, "SELECT at FROM suppression_log") == START + timedelta(seconds=5)
    await apply(database, bounced(row, name="late", at_s=4))
    assert await fetch(database, "SELECT reason FROM suppression") == []
    await apply(database, bounced(row, name="newer", at_s=6))
    assert await fetch(database, "SELECT reason FROM suppression") == [{"reason": "hard-bounce"}]


async def test_rows_that_rest_on_no_stored_event_are_left(
    database: Database, known: RuleSet
) -> None:
    row = await make_row(database, "submitted", provider_message_id="p")
    await apply(database, bounced(row, status="5.4.1"))
    for reason, evidence in (("manual", None), ("complaint", None), ("hard-bounce", "elsewhere")):
        await execute(
            database,
            "INSERT INTO suppression (recipient_key, reason, evidence_id) VALUES ($1, $2, $3) ON CONFLICT (recipient_key, tenant, lane, reason) DO UPDATE SET evidence_id = excluded.evidence_id",
            row.key,
            reason,
            evidence,
        )
    report = await run(database, known)
    assert report.changed == 0
    left = await fetch(database, "SELECT reason FROM suppression ORDER BY reason")
    assert [r["reason"] for r in left] == ["complaint", "hard-bounce", "manual"]


async def test_a_narrower_scope_moves_the_row_and_is_not_locked_out_by_a_lift(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = replace(
        RULES,
        version=2,
        rules=[
            replace(r, effect=replace(r.effect, of_tenant=True))
            if r.effect is not None and r.effect.reason is SuppressionReason.HARD_BOUNCE
            else r
            for r in RULES.rules
        ],
    )
    row = await make_row(database, "submitted", provider_message_id="p", tenant="shop")
    await apply(database, bounced(row))
    report = await run(database, rules)
    assert counts(report) == {
        "added": {"hard-bounce": 1},
        "lifted": {},
        "replaced": {},
        "moved": {"hard-bounce": 1},
    }
    assert await fetch(database, "SELECT tenant, rule_version FROM suppression") == [
        {"tenant": "shop", "rule_version": 2}
    ]
    assert (await run(database, rules)).changed == 0


async def test_a_bounce_that_no_version_classifies_as_published_stays_as_published(
    database: Database, known: RuleSet
) -> None:
    """Its diagnostic text was cut: what is kept of it would make another bounce of it."""
    row = await make_row(database, "submitted", provider_message_id="p")
    cut = bounced(row, status="5.4.1")
    assert cut.bounce is not None
    published = replace(cut.bounce, type=BounceType.PERMANENT, reason=BounceReason.REPUTATION)
    await apply(database, replace(cut, bounce=published))
    assert (await run(database, known)).changed == 0
    assert await fetch(database, "SELECT reason FROM suppression") == []
