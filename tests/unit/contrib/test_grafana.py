"""The dashboard and the alert rules: they parse, and ask for what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from fencelock.contrib.metrics import METRICS

FOLDER = Path(__file__).parents[3] / "docs" / "grafana"
DASHBOARD = json.loads((FOLDER / "fencelock.json").read_text())
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())

SERIES = {
    name: {*metric.labels, *(["le"] if metric.kind == "histogram" else [])}
    for metric in METRICS
    for name in (
        [f"{metric.prometheus}_{part}" for part in ("bucket", "count", "sum")]
        if metric.kind == "histogram"
        else [metric.prometheus]
    )
}
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
RULES = {rule["alert"]: rule for group in ALERTS["groups"] for rule in group["rules"]}
EXPRESSIONS = [target["expr"] for panel in PANELS.values() for target in panel["targets"]]
EXPRESSIONS += [rule["expr"] for rule in RULES.values()]


def used(expression: str) -> list[str]:
    """The series that an expression asks for."""
    return re.findall(r"\bfencelock_\w+", expression)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_each_expression_asks_for_series_that_there_are_by_labels_that_they_have(expression: str) -> None:
    assert used(expression)
    for series in used(expression):
        assert series in SERIES, series
        by = [
            word.strip() for words in re.findall(r"\bby \(([^)]*)\)", expression) for word in words.split(",")
        ]
        selected = re.findall(r"[{,](\w+)=", expression)
        assert {*by, *selected} <= SERIES[series]
    assert all(expression.count(left) == expression.count(right) for left, right in ("()", "{}", "[]"))


def test_no_metric_is_forgotten_by_the_dashboard() -> None:
    shown = {
        series for panel in PANELS.values() for target in panel["targets"] for series in used(target["expr"])
    }
    names = {re.sub(r"_(total|bucket)$", "", series) for series in shown}
    assert {f"fencelock_{metric.name}" for metric in METRICS} - names == set()


def test_the_variables_are_labels_and_panels_do_not_overlap() -> None:
    asked = [var["definition"] for var in DASHBOARD["templating"]["list"] if var["type"] == "query"]
    for definition in asked:
        match = re.fullmatch(r"label_values\((\w+), (\w+)\)", definition)
        assert match and match[2] in SERIES[match[1]]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in PANELS.values()]
    assert len(set(places)) == len(DASHBOARD["panels"]) == len(PANELS)
    assert len({panel["id"] for panel in PANELS.values()}) == len(PANELS)


def test_the_rules_say_what_happened() -> None:
    assert "FencelockLeaseLost" in RULES
    for rule in RULES.values():
        assert rule["annotations"]["summary"] and rule["labels"]["severity"] in {"warning", "critical"}
