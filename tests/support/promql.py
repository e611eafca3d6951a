"""What alert rules and the dashboard ask of Prometheus: metrics, and labels of theirs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser as promql
import yaml
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parent.parent.parent
ALERTS = ROOT / "monitoring" / "alerts.yaml"
DASHBOARD = ROOT / "monitoring" / "grafana-dashboard.json"

TARGET_LABELS = frozenset({"job", "instance"})
"""Prometheus adds them to every sample."""
OF_PROMETHEUS = frozenset({"up"})


class Selector(NamedTuple):
    """A metric as an expression names it; ``values`` are those of its equality matchers."""

    metric: str
    labels: frozenset[str]
    values: frozenset[tuple[str, str]]


class Query(NamedTuple):
    where: str
    text: str

    @property
    def expression(self) -> promql.Expr:
        return promql.parse(self.text.replace("$__rate_interval", "5m"))


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return board


def panels() -> Iterator[dict[str, Any]]:
    for panel in dashboard()["panels"]:
        if panel["type"] != "row":
            yield panel
        yield from panel.get("panels", [])


def queries() -> list[Query]:
    """Every expression of rules, panels and variables."""
    found = [Query(rule["alert"], rule["expr"]) for rule in rules()]
    found += [Query(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            found.append(Query(variable["name"], variable["query"].removeprefix("label_values(").rpartition(",")[0]))
    return found


def selectors(expression: promql.Expr) -> list[Selector]:
    """The metrics an expression reads."""
    found: list[Selector] = []

    def visit(node: promql.Expr) -> None:
        if isinstance(node, promql.VectorSelector):
            matchers = node.matchers.matchers
            equal = [matcher for matcher in matchers if matcher.op == promql.MatchOp.Equal]
            found.append(
                Selector(
                    node.name,
                    frozenset(matcher.name for matcher in matchers),
                    frozenset((matcher.name, matcher.value) for matcher in equal),
                )
            )

    promql.walk(expression, visit)
    return found


def grouping(expression: promql.Expr) -> list[tuple[list[str], list[Selector], set[str]]]:
    """Labels that expressions group or join by, the metrics below, and labels that they make themselves."""
    found: list[tuple[list[str], list[Selector], set[str]]] = []

    def visit(node: promql.Expr) -> None:
        labels: list[str] = []
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            labels = list(node.modifier.labels)
        if isinstance(node, promql.BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
            labels = list(node.modifier.matching.labels)
        if labels:
            found.append((labels, selectors(node), _made(node)))

    promql.walk(expression, visit)
    return found


def _made(expression: promql.Expr) -> set[str]:
    made: set[str] = set()

    def visit(node: promql.Expr) -> None:
        if isinstance(node, promql.Call) and node.func.name == "label_replace":
            made.add(node.args[1].val)

    promql.walk(expression, visit)
    return made


class Exposition:
    """The samples of a ``/metrics``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples: dict[str, list[dict[str, str]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._samples.setdefault(sample.name, []).append(sample.labels)

    def has(self, selector: Selector) -> bool:
        absent = {name for name, value in selector.values if not value}  # which an empty value stands for
        return any(
            selector.labels - TARGET_LABELS - absent <= set(labels)
            and all(labels.get(name, "") == value for name, value in selector.values)
            for labels in self._samples.get(selector.metric, [])
        )

    def labels_of(self, metric: str) -> set[str]:
        return {label for labels in self._samples.get(metric, []) for label in labels}
