"""docs/faults.md names actions, alerts, metrics, error classes and settings that exist."""

import re
from pathlib import Path

import yaml
from prometheus_client import REGISTRY

import streams.runtime.metrics  # noqa: F401 declares what the registry is asked for
from streams.domain.ses_errors import TABLE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
ROWS = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| ")][1:]
CODE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "streams").rglob("*.py"))


def quoted(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_every_action_is_logged_by_the_code() -> None:
    named = {name for row in ROWS for name in quoted(row[2]) if "." in name}
    named |= {"duty.failed", "duty.recovered", "sender.stuck"} & quoted(PAGE)
    assert len(named) > 10
    assert {name for name in named if f'"action": "{name}"' not in CODE} == set()


def test_every_error_class_is_one_of_the_table() -> None:
    named = {name for row in ROWS for name in quoted(row[2]) if "." not in name}
    assert named
    assert named <= {row.name for row in TABLE}


def test_every_alert_and_metric_exists() -> None:
    groups = yaml.safe_load((ROOT / "ops/prometheus/alerts.yml").read_text(encoding="utf-8"))
    alerts = {rule["alert"] for group in groups["groups"] for rule in group["rules"]}
    metrics = {family.name + "_total" for family in REGISTRY.collect()}
    named = {name.partition("{")[0] for row in ROWS for name in quoted(row[3])}
    assert named
    assert named <= alerts | metrics


def test_what_readiness_is_said_to_name_is_named_in_the_code() -> None:
    named = {name for row in ROWS for name in quoted(row[1])}
    assert named
    assert {name for name in named if f'"{name}"' not in CODE} == set()
