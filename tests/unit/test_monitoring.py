"""monitoring/: alert rules and dashboard. That what they name exists is tested against a sidecar that runs."""

import re
import subprocess
from pathlib import Path

import pytest

from monitoring.__main__ import GENERATED, ROOT
from tests.support.promql import ALERTS, OF_PROMETHEUS, dashboard, panels, queries, rules, selectors

UNITS = {"s", "short", "reqps", "ops", "bytes", "percentunit", "dateTimeAsIso"}
"""Grafana's, of those that the panels use."""


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_what_is_generated_is_up_to_date(path: Path) -> None:
    assert path.read_text() == GENERATED[path](), "write it anew: python -m monitoring"


# --- alerts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_it_is_and_what_to_do(rule: dict[str, object]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"})
    annotations = rule["annotations"]
    assert isinstance(annotations, dict)
    assert set(annotations) == {"summary", "description", "runbook_url"}
    assert len(annotations["summary"]) < 120
    assert len(annotations["description"]) > 60
    assert annotations["runbook_url"] == f"docs/runbook.md#{str(rule['alert']).lower()}"


def test_the_runbook_has_a_section_for_each_alert_and_no_other() -> None:
    text = (ROOT / "docs" / "runbook.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == [rule["alert"] for rule in rules()], "in the order of the rules"
    for name, section in sections.items():
        parts = re.findall(r"^\*\*(\w+)\*\*", section, re.MULTILINE)
        assert parts == ["Means", "Look", "Do"], name


def test_every_alert_is_tested() -> None:
    tests = (ROOT / "monitoring" / "alerts_test.yaml").read_text()
    untested = [rule["alert"] for rule in rules() if f'alertname="{rule["alert"]}"' not in tests]
    assert not untested


@pytest.mark.parametrize("tool", ["promtool"], indirect=True)
def test_prometheus_takes_the_rules_and_they_fire_when_they_should(tool: str) -> None:
    for command in ("check", "test"):
        path = ALERTS if command == "check" else ALERTS.with_name("alerts_test.yaml")
        answer = subprocess.run([tool, command, "rules", str(path)], capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stdout + answer.stderr


# --- dashboard --------------------------------------------------------------------------------------------------------


def test_every_panel_says_what_it_shows_in_which_unit() -> None:
    shown = list(panels())
    assert len(shown) >= 30
    for panel in shown:
        title = panel["title"]
        assert len(panel["description"]) > 15, title
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, title
        assert panel["targets"], title
    titles = [(panel["title"], panel["type"]) for panel in shown]
    assert len(set(titles)) == len(titles)


def test_pods_of_one_name_in_two_namespaces_are_not_added_up() -> None:
    by = [re.findall(r"by \(([^)]*)\)", target["expr"]) for panel in panels() for target in panel["targets"]]
    apart = [labels.split(", ") for found in by for labels in found if "instance" in labels]
    assert len(apart) > 20
    assert all("job" in labels for labels in apart)


def test_every_query_goes_to_the_chosen_data_source_and_instances() -> None:
    assert [variable["name"] for variable in dashboard()["templating"]["list"]] == ["datasource", "job", "instance"]
    for panel in panels():
        for target in panel["targets"]:
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references), panel["title"]
    for query in queries():
        if query.where not in {rule["alert"] for rule in rules()} | {"job", "instance"}:
            for selector in selectors(query.expression):
                assert {"job", "instance"} <= selector.labels, f"{query.where}: {selector.metric}"


def test_panels_do_not_overlap_and_fill_the_width() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken.get((x, y))}"
                taken[x, y] = panel["title"]


def test_the_dashboard_names_no_other_metric_than_ours_and_the_process() -> None:
    for query in queries():
        for selector in selectors(query.expression):
            assert selector.metric.startswith(("timewheel_", "process_", "python_")) or selector.metric in OF_PROMETHEUS
