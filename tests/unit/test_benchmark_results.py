"""The committed figures of the benchmarks, and what of the documentation follows from them."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import chart, compared, in_short, report, results
from benchmarks.figures import CPU, RATE, Pair, Result
from benchmarks.rows import ROWS
from benchmarks.workload import Load

MACHINE: dict[str, Any] = {"processor": "a processor", "cores": 2, "memory_bytes": 2**34, "load_before": 0.1}
LOAD = Load(records=1_000, value_bytes=200, seconds=8, pending=1_000)


def told(name: str, *rates: float, date: str = "2027-01-31", load: Load = LOAD) -> dict[str, Any]:
    pairs = [Pair({RATE: rate, CPU: 9.0}, {RATE: 100.0, CPU: 5.0}) for rate in rates]
    return report.as_json({name: Result(ROWS[name], pairs)}, load, MACHINE) | {"date": date}


def test_rows_that_were_measured_take_the_place_of_what_was_there_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results.save(told("burst", 50.0, date="2027-01-30"), path)
    results.save(told("straight-10000", 70.0), path)
    results.save(told("burst", 60.0, 90.0, 80.0), path)
    saved = results.load(path)
    assert saved["machine"] == {"processor": "a processor", "cores": 2, "memory_bytes": 2**34, "date": "2027-01-31"}
    assert set(saved["rows"]) == {"burst", "straight-10000"}
    burst = saved["rows"]["burst"]
    assert (burst["date"], burst["pairs"], burst["load"]) == ("2027-01-31", 3, LOAD._asdict())
    rate = burst["figures"][RATE]
    assert [rate[name] for name in ("timewheel", "floor", "beside", "lowest", "highest")] == [80, 100, 0.8, 0.6, 0.9]
    assert burst["figures"][CPU]["beside"] == 4
    assert saved["rows"]["straight-10000"]["load"]["value_bytes"] == 10_000


def test_a_row_measured_with_more_pending_stays(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    more = LOAD._replace(pending=10 * LOAD.pending)
    assert results.save(told("burst", 50.0, load=more), path) == []
    assert results.save(told("burst", 60.0), path) == ["burst"]
    assert results.save(told("level", 60.0), path) == []
    assert {name: row["figures"][RATE]["timewheel"] for name, row in results.load(path)["rows"].items()} == {
        "burst": 50.0,
        "level": 60.0,
    }
    assert results.save(told("burst", 70.0, load=more), path) == []


def test_rows_of_another_machine_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert results.why_not_saved(MACHINE, path) is None
    results.save(told("burst", 50.0), path)
    assert results.why_not_saved(MACHINE | {"load_before": 1.0}, path) is None
    assert "another machine, 2 × a processor" in str(results.why_not_saved(MACHINE | {"cores": 64}, path))


def test_the_committed_figures_are_of_rows_and_of_a_machine_without_a_name() -> None:
    committed = results.load()
    versions = {"python", "librdkafka", "kafka"}
    assert set(committed["machine"]) == {"processor", "cores", "memory_bytes", "system", "date"} | versions
    for name, row in committed["rows"].items():
        assert set(row["figures"]) == {figure.name.strip() for figure in ROWS[name].figures}


def test_the_chart_and_the_table_are_up_to_date() -> None:
    committed = results.load()
    assert chart.SVG.read_text() == chart.chart(committed), "run 'make docs'"
    page = compared.PAGE.read_text()
    assert page == compared.with_table(page, committed), "run 'make docs'"
    page = in_short.PAGE.read_text()
    assert page == in_short.with_sentence(page, committed), "run 'make docs'"


def test_the_chart_has_a_bar_for_each_rate_and_the_same_figures_give_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results.save(told("burst", 60.0, 80.0), path)
    results.save(told("level", 90.0), path)
    found = results.load(path) | {"machine": results.load()["machine"]}
    assert [(bar.name, bar.ratio, bar.lowest) for bar in chart.bars(found)] == [
        (ROWS["level"].name, 0.9, 0.9),
        (ROWS["burst"].name, 0.7, 0.6),
    ]
    svg = chart.chart(found)
    assert svg == chart.chart(json.loads(json.dumps(found)))
    assert "prefers-color-scheme: dark" in svg
    assert "0.70 · 70/s" in svg


@pytest.mark.parametrize(
    ("pending", "words"), [(1_000_000, "100 MB, 3.0 s ("), (10_000_000, "100 MB, 3.0 s with 10 M (")]
)
def test_the_table_says_how_many_waited(pending: int, words: str) -> None:
    figures = {"memory at rest, MB": {"timewheel": 100.0}, "start after SIGKILL, s to ready": {"timewheel": 3.0}}
    row = {"load": {"pending": pending}, "figures": figures}
    page = compared.with_table(f"before\n{compared.BEGIN}old{compared.END}after\n", {"rows": {"pending": row}})
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert words in page
    assert "| … (`burst`) |" in page
