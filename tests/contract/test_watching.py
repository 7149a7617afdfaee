"""Dashboards, alert rules and metrics name each other rightly."""

import re
import runpy
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from prometheus_client import REGISTRY

import streams.runtime.metrics  # noqa: F401 declares what the registry is asked for

OPS = Path(__file__).parents[2] / "ops"
DASHBOARDS = sorted((OPS / "grafana").glob("*.json"))
RULES = yaml.safe_load((OPS / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
NAME = re.compile(r"\bmailstreams_[a-z_]+")


def declared() -> set[str]:
    """Every series name that our processes can tell."""
    names = set()
    for family in REGISTRY.collect():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
        names |= {family.name + suffix for suffix in suffixes.get(family.type, ("",))}
    return names


def expressions(node: Any) -> list[str]:
    if isinstance(node, dict):
        found = [str(node["expr"])] if "expr" in node else []
        return found + [e for value in node.values() for e in expressions(value)]
    if isinstance(node, list):
        return [e for value in node for e in expressions(value)]
    return []


def test_the_dashboard_is_what_its_program_writes() -> None:
    program = runpy.run_path(str(OPS / "grafana" / "generate.py"))
    assert program["OVERVIEW"].read_text(encoding="utf-8") == program["text"]()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda p: p.stem)
def test_every_query_of_a_dashboard_asks_for_metrics_that_exist(path: Path) -> None:
    queries = expressions(orjson.loads(path.read_bytes()))
    assert queries
    asked = {name for query in queries for name in NAME.findall(query)}
    assert asked <= declared()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda p: p.stem)
def test_every_panel_has_a_unit_and_says_what_it_shows(path: Path) -> None:
    panels = [p for p in orjson.loads(path.read_bytes())["panels"] if p["type"] != "row"]
    assert panels
    for panel in panels:
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]


@pytest.mark.parametrize("rule", [r for g in RULES for r in g["rules"]], ids=lambda r: r["alert"])
def test_every_alert_asks_for_metrics_that_exist_and_says_what_to_do(rule: dict[str, Any]) -> None:
    asked = set(NAME.findall(rule["expr"]))
    assert asked
    assert asked <= declared()
    assert rule["annotations"].keys() == {"summary", "action"}
    assert rule["labels"]["severity"] in ("page", "ticket")


def test_every_metric_says_what_it_means() -> None:
    ours = [f for f in REGISTRY.collect() if f.name.startswith("mailstreams_")]
    assert ours
    assert [f.name for f in ours if not f.documentation.endswith(".")] == []
