"""The audit's report: what it says, what it shows of texts from Kafka, how large it gets."""

import re
import sys
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError
from typer.testing import CliRunner

from sidecar.cli import audit_report
from sidecar.errors import TimewheelError, UsageError
from spark.report import AuditReport, ReportError, load_report, plots, write_report
from spark.report.model import (
    FAULTY,
    LATENESS_EDGES_MS,
    MAX_BUCKETS,
    MAX_FAULTY,
    MAX_HEAT_DAYS,
    MAX_ROWS,
    MAX_TEXT,
    Bounded,
    DueAt,
    Faulty,
    GroupRetries,
    Hour,
    Lateness,
    LatenessAt,
    LatenessBucket,
    NamedLateness,
    Offender,
    PendingAt,
    RetryDepth,
    Rolled,
    TopicRead,
    Verdict,
    Verdicts,
    bucket_ms_for,
)
from spark.report.page import MAX_SHOWN, render
from spark.report.prometheus import prometheus_text
from spark.report.words import State, duration, headline, moment, shown
from tests.support.audit import AS_OF, AS_OF_MS, DAY_MS, MINUTE_MS, day_with_faults, day_without_faults

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> {{ 7*7 }} \u202e\n $x^2$ &amp;"


def _report(**verdicts: int) -> AuditReport:
    return AuditReport(as_of=AS_OF, grace_ms=5_000, late_after_ms=1_000, verdicts=Verdicts(**verdicts))


class _Parsed(HTMLParser):
    """Elements with their attributes, and all text outside of style and script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, text: str) -> None:
        if self._inside not in ("style", "script"):
            self.text += text


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdicts", "state", "sentence", "rest"),
    [
        ({"on_time": 1_204_233}, State.KEPT, "Every one of 1,204,233 messages arrived once and on time.", ""),
        ({"on_time": 1}, State.KEPT, "The one message arrived once and on time.", ""),
        (
            {"on_time": 5, "pending": 2, "cancelled": 1, "rejected": 1},
            State.KEPT,
            "Every one of 5 messages that had to arrive arrived once and on time.",
            "Besides: 2 still waiting, 1 cancelled and 1 rejected.",
        ),
        (
            {"on_time": 9, "late": 2},
            State.LATE,
            "All 11 messages that had to arrive did so once, but 2 came late.",
            "",
        ),
        (
            {"on_time": 9, "missing": 1},
            State.BROKEN,
            "1 of 10 messages broke the promise: 1 missing.",
            "",
        ),
        (
            {"on_time": 4, "late": 1, "missing": 1, "duplicate": 2, "early": 3, "cancel_ignored": 4},
            State.BROKEN,
            "10 of 15 messages broke the promise: 1 missing, 2 too often or unasked, 3 too early and "
            "4 delivered though cancelled.",
            "Besides: 1 late.",
        ),
        ({}, State.EMPTY, "No message had to arrive, so nothing has been proved.", ""),
        (
            {"pending": 3},
            State.EMPTY,
            "No message had to arrive, so nothing has been proved.",
            "Besides: 3 still waiting.",
        ),
    ],
)
def test_the_verdict_in_words(verdicts: dict[str, int], state: State, sentence: str, rest: str) -> None:
    told = headline(_report(**verdicts))
    assert (told.state, told.sentence, told.rest) == (state, sentence, rest)


def test_an_audit_of_nothing_but_cancelled_too_late_is_on_time_for_them() -> None:
    told = headline(_report(cancelled_too_late=2))
    assert told.state is State.EMPTY
    assert told.rest == "Besides: 2 cancelled or replaced too late."


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (-4, "-4 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (1_240, "1.24 s"),
        (59_999, "59.9 s"),
        (60_000, "1 min"),
        (94_210, "1 min 34 s"),
        (7_500_000, "2 h 5 min"),
        (3 * DAY_MS + 4 * 3_600_000, "3 d 4 h"),
    ],
)
def test_durations_as_people_say_them(duration_ms: int | None, text: str) -> None:
    assert duration(duration_ms) == text


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [(None, "–"), (0, "1970-01-01 00:00:00.000"), (AS_OF_MS + 7, "2026-03-14 02:47:12.007"), (2**62, f"{2**62} ms")],
)
def test_moments_are_in_utc_to_the_millisecond(at_ms: int | None, text: str) -> None:
    assert moment(at_ms) == text


@settings(max_examples=50)
@given(st.text(max_size=250))
def test_what_is_shown_can_be_seen_and_is_short(text: str) -> None:
    seen = shown(text)
    assert len(seen) <= 200
    assert all(letter.isprintable() for letter in seen)


# --- model ------------------------------------------------------------------------------------------------------------


def test_the_report_is_read_back_as_it_was_written() -> None:
    report = day_with_faults()
    assert AuditReport.model_validate_json(report.model_dump_json()) == report


def test_its_json_is_what_the_contract_says() -> None:
    report = day_with_faults().model_dump(mode="json")
    assert report["as_of"] == "2026-03-14T02:47:12.000+00:00"
    assert list(report["verdicts"]) == [str(verdict) for verdict in Verdict]
    assert {"id", "verdict", "topic", "partition", "offset"} <= report["faulty"][0].keys()


def test_times_are_cut_to_milliseconds_and_put_to_utc() -> None:
    local = datetime(2026, 3, 14, 3, 0, 0, 1_999, tzinfo=UTC).astimezone()
    report = AuditReport(as_of=local, grace_ms=0, late_after_ms=0, verdicts=Verdicts())
    assert report.model_dump(mode="json")["as_of"] == "2026-03-14T03:00:00.001+00:00"
    with pytest.raises(ValidationError, match="as_of"):
        AuditReport(as_of=datetime(2026, 3, 14), grace_ms=0, late_after_ms=0, verdicts=Verdicts())


def test_texts_from_kafka_are_cut() -> None:
    message = Faulty(id="x" * 1_000_000, verdict=Verdict.LATE, topic="t", partition=0, offset=0)
    assert len(message.id) == MAX_TEXT
    assert message.id.endswith("…")


@given(st.integers(0, 2**50), st.integers(0, 2**50))
def test_buckets_are_as_narrow_as_the_bound_allows(one: int, other: int) -> None:
    first_ms, last_ms = sorted((one, other))
    bucket_ms = bucket_ms_for(first_ms, last_ms)
    assert last_ms // bucket_ms - first_ms // bucket_ms < MAX_BUCKETS
    assert bucket_ms >= MINUTE_MS


# --- page -------------------------------------------------------------------------------------------------------------


def _hostile_report() -> AuditReport:
    where = {"topic": HOSTILE, "partition": 0, "offset": 1}
    return day_without_faults().model_copy(
        update={
            "faulty": tuple(
                Faulty(id=HOSTILE, verdict=verdict, **where, destination=HOSTILE, why=HOSTILE) for verdict in FAULTY
            ),
            "notes": (HOSTILE,),
            "lateness": Lateness(count=1, p50_ms=1),
            "lateness_by_topic": Bounded(rows=(NamedLateness(name=HOSTILE, count=1),)),
            "lateness_by_level": Bounded(rows=(NamedLateness(name=HOSTILE, count=1),)),
            "retries_by_group": Bounded(rows=(GroupRetries(group=HOSTILE, messages=1, retries=1),)),
            "rolled": Bounded(rows=(Rolled(id=HOSTILE, **where, due_ms=2**62, rolls=1),)),
            "offenders": Bounded(rows=(Offender(kind="topic", name=HOSTILE, messages=1, faulty=1),)),
            "topics_read": Bounded(rows=(TopicRead(topic=HOSTILE, kind=HOSTILE, facts=1),)),
        }
    )


@pytest.fixture(scope="module")
def page() -> str:
    return render(day_with_faults())


def test_texts_from_kafka_are_only_ever_text(page: str) -> None:
    harmless, hostile = _Parsed(page), _Parsed(render(_hostile_report()))
    kinds = {tag for tag, _ in harmless.elements}
    assert {tag for tag, _ in hostile.elements} <= kinds
    assert [tag for tag, _ in hostile.elements].count("script") == 1
    assert not [name for _, attributes in hostile.elements for name in attributes if name.startswith("on")]
    visible = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> {{ 7*7 }} \\u202e\\n $x^2$ &amp;"
    fields = 4 * len(FAULTY) + 8  # id, topic, destination, why of each; the rows of the other tables, and the note
    assert hostile.text.count(visible[:35]) == fields + 1  # of a rolled message both id and topic
    assert visible in hostile.text  # where there is room for all of it


def test_the_page_refers_to_nothing_outside_itself(page: str) -> None:
    for tag, attributes in _Parsed(page).elements:
        for name in ("src", "href", "xlink:href", "action", "data", "srcset", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:,")), f"<{tag} {name}={value}>"
    assert not re.findall(r"url\((?!#)|@import", page)
    assert not re.findall(r"https?://(?!www\.w3\.org/)", page)


def test_ids_are_unique_and_references_meet_them(page: str) -> None:
    elements = _Parsed(page).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = {(attributes.get("xlink:href") or "#")[1:] for _, attributes in elements} - {""}
    assert wanted
    assert wanted <= set(ids)


def test_no_color_of_the_plots_is_fixed(page: str) -> None:
    plots = re.findall(r'<svg class="plot".*?</svg>', page, re.DOTALL)
    assert len(plots) == 7
    for plot in plots:
        assert re.findall(r"var\(--\w+\)", plot)
        assert set(re.findall(r"(?:fill|stroke): ?(#[0-9a-f]{6})", plot)) <= {"#000000"}, "in light as in dark"


def test_every_plot_is_told_in_words(page: str) -> None:
    labels = [a["aria-label"] or "" for tag, a in _Parsed(page).elements if a.get("role") == "img"]
    assert len(labels) == 7
    assert any("Half came within 11 ms, 99 in 100 within 43 ms" in label for label in labels)


@pytest.mark.parametrize(
    "report",
    [
        _report(),
        day_without_faults(),
        _report(pending=1).model_copy(update={"forecast": (PendingAt(at_ms=AS_OF_MS, pending=1),)}),
        _report(pending=1).model_copy(update={"forecast": (PendingAt(at_ms=2**62, pending=1),)}),
        _report(pending=2).model_copy(
            update={"forecast": (PendingAt(at_ms=AS_OF_MS, pending=1), PendingAt(at_ms=2**62, pending=1))}
        ),
        _report(on_time=1).model_copy(
            update={
                "due_over_time": (DueAt(at_ms=0, expected=1, delivered=1),),
                "hours": (Hour(day="2026-03-14", hour=23, due=1, p99_ms=-3),),
                "lateness_over_time": (LatenessAt(at_ms=0, count=1, p50_ms=-3, max_ms=-3),),
                "lateness_histogram": (LatenessBucket(up_to_ms=-1, count=1),),
                "retries_by_depth": (RetryDepth(depth=0, messages=0),),
            }
        ),
        _report(on_time=1).model_copy(update={"hours": (Hour(day="2026-03-14", hour=0, due=0),)}),
        # To two digits that is 86,000.
        _report(on_time=85_979).model_copy(
            update={"hours": (Hour(day="2026-03-14", hour=0, due=85_979, p99_ms=9_960),)}
        ),
    ],
    ids=[
        "nothing",
        "no faults",
        "one pending",
        "due beyond the calendar",
        "far apart",
        "one early",
        "an idle hour",
        "one busy hour",
    ],
)
def test_little_is_shown_as_well_as_much(report: AuditReport) -> None:
    assert headline(report).sentence in _Parsed(render(report)).text


@given(st.lists(st.integers(1, 10**9), max_size=30))
def test_the_colours_of_the_heat_map_have_bounds_that_grow(due: list[int]) -> None:
    edges = plots._heat_edges(np.array(due, dtype=float))
    assert edges == sorted(set(edges))
    assert all(edges[0] < number < edges[-1] for number in due)


def test_the_largest_report_stays_below_one_and_a_half_megabytes() -> None:
    name, now_ms = "n" * 60, AS_OF_MS
    where = {"topic": "SCHEDULE_TOPIC_XXXX-wheel", "partition": 3, "offset": 10**9}
    points = range(MAX_BUCKETS)
    report = day_with_faults().model_copy(
        update={
            "faulty": tuple(
                Faulty(
                    id=f"{number:040}",
                    verdict=Verdict.LATE,
                    **where,
                    due_ms=now_ms,
                    delivered_ms=now_ms,
                    lateness_ms=1,
                    destination=name,
                    why="w" * 60,
                )
                for number in range(MAX_FAULTY)
            ),
            "faulty_left_out": 5,
            "due_over_time": tuple(
                DueAt(at_ms=now_ms + 60_000 * i, expected=i * 7919 % 1000, delivered=i * 31 % 900, faulty=i % 2)
                for i in points
            ),
            "lateness_over_time": tuple(
                LatenessAt(
                    at_ms=now_ms + 60_000 * i, count=9, p50_ms=i % 13, p99_ms=i * 31 % 97, max_ms=i * 7919 % 9973
                )
                for i in points
            ),
            "forecast": tuple(PendingAt(at_ms=now_ms + 60_000 * i, pending=i * 7919 % 1000) for i in points),
            "hours": tuple(
                Hour(day=f"2026-{1 + day // 31:02}-{1 + day % 31:02}", hour=hour, due=day * hour, p99_ms=day + hour)
                for day in range(MAX_HEAT_DAYS)
                for hour in range(24)
            ),
            "lateness_by_topic": Bounded(rows=(NamedLateness(name=name, count=1),) * MAX_ROWS),
            "lateness_by_level": Bounded(rows=(NamedLateness(name=name, count=1),) * MAX_ROWS),
            "retries_by_group": Bounded(rows=(GroupRetries(group=name, messages=1, retries=1),) * MAX_ROWS),
            "rolled": Bounded(rows=(Rolled(id=name, **where, due_ms=now_ms, rolls=1),) * MAX_ROWS),
            "offenders": Bounded(rows=(Offender(kind="topic", name=name, messages=1, faulty=1),) * MAX_ROWS),
            "topics_read": Bounded(rows=(TopicRead(topic=name, kind="wheel", facts=1),) * MAX_ROWS),
        }
    )
    page = render(report)
    assert len(page.encode()) < 1_500_000
    assert page.count("<tr data-verdict") == MAX_SHOWN
    assert "The first 1,000 of 10,005, the gravest first; report.json names 10,000, the table of verdicts all." in page


# --- Prometheus -------------------------------------------------------------------------------------------------------


def test_prometheus_reads_every_figure_with_help_and_type() -> None:
    report = day_with_faults()
    families = {family.name: family for family in text_string_to_metric_families(prometheus_text(report))}
    assert all(family.documentation and family.type == "gauge" for family in families.values())
    assert all(name.startswith("timewheel_audit_") for name in families)
    counts = {sample.labels["verdict"]: sample.value for sample in families["timewheel_audit_messages"].samples}
    assert counts == {str(verdict): report.verdicts[verdict] for verdict in Verdict}
    assert families["timewheel_audit_promise_kept"].samples[0].value == 0
    assert families["timewheel_audit_notes"].samples[0].value == len(report.notes) == 1
    assert families["timewheel_audit_as_of_timestamp_seconds"].samples[0].value == AS_OF.timestamp()
    due = sum(point.pending for point in report.forecast if point.at_ms < AS_OF_MS + 3_600_000)
    assert families["timewheel_audit_due_within_an_hour"].samples[0].value == due


def test_ids_and_reasons_are_no_labels_and_hostile_names_stay_inside_theirs() -> None:
    text = prometheus_text(_hostile_report())
    families = list(text_string_to_metric_families(text))
    labels = {
        (name, value) for family in families for sample in family.samples for name, value in sample.labels.items()
    }
    assert {name for name, _ in labels} == {
        "verdict",
        "quantile",
        "group",
    }  # a topic without a percentile has no sample
    assert ("group", HOSTILE) in labels
    assert text.count("\n") == len(text.splitlines()), "one sample a line"


@pytest.mark.parametrize(
    ("late_after_ms", "count", "edge_ms"), [(1_000, 10, 1_000), (1_500, 9, 2_000), (10**9, 1, 86_400_000)]
)
def test_the_words_of_the_histogram_call_no_delivery_later_than_it_was(
    late_after_ms: int, count: int, edge_ms: int
) -> None:
    one_each = tuple(LatenessBucket(up_to_ms=edge, count=1) for edge in (*LATENESS_EDGES_MS, None))
    told = {"lateness_histogram": one_each, "late_after_ms": late_after_ms}
    svg = plots.lateness_histogram(day_without_faults().model_copy(update=told))
    assert f"; {count} later than {duration(edge_ms)}." in (svg or "")


# --- files and command ------------------------------------------------------------------------------------------------


def test_a_directory_holds_all_three_forms_and_nothing_else(tmp_path: Path) -> None:
    write_report(day_without_faults(), tmp_path / "out")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["report.html", "report.json", "report.prom"]
    assert load_report(tmp_path / "out") == load_report(tmp_path / "out" / "report.json") == day_without_faults()


def test_a_page_that_cannot_be_made_leaves_none_of_an_earlier_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(day_without_faults(), tmp_path)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "spark.report.page", raising=False)
    with pytest.raises(ReportError, match="the page needs the package jinja2"):
        write_report(day_with_faults(), tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.json", "report.prom"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "does not exist; 'timewheel audit batch --out DIR' writes it"),
        ("", "is not an audit report of this version: the file: Invalid JSON"),
        ("{}", "is not an audit report of this version: as_of: Field required"),
        (day_without_faults().model_dump_json().replace('"format":1', '"format":2'), "format: Input should be 1"),
        (day_without_faults().model_dump_json().replace('"grace_ms":5000', '"grace_ms":-1'), "grace_ms: Input should"),
        (day_without_faults().model_dump_json().replace('"late":', '"latest":'), "verdicts.latest: Extra inputs"),
    ],
)
def test_a_file_that_is_no_report_is_refused_with_what_is_wrong(
    tmp_path: Path, content: str | None, complaint: str
) -> None:
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    with pytest.raises(ReportError, match=re.escape(complaint)):
        load_report(tmp_path)


def _run(*arguments: str) -> str:
    app = typer.Typer()
    audit_report.register(app)
    ended = CliRunner().invoke(app, list(arguments), catch_exceptions=False, standalone_mode=False)
    if ended.exception is not None:
        raise ended.exception
    return ended.stdout


def test_the_command_writes_the_page_beside_its_findings(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(day_without_faults().model_dump_json())
    told = _run(str(tmp_path))
    assert told.splitlines() == [
        "Every one of 1,204,233 messages arrived once and on time.",
        str(tmp_path / "report.html"),
    ]
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert _run(str(tmp_path), "--out", "-") == (tmp_path / "report.html").read_text()


def test_the_command_prints_prometheus_and_json(tmp_path: Path) -> None:
    report = day_without_faults()
    (tmp_path / "report.json").write_text(report.model_dump_json())
    assert AuditReport.model_validate_json(_run(str(tmp_path), "--json")) == report
    assert _run(str(tmp_path), "--format", "prometheus") == prometheus_text(report)
    _run(str(tmp_path / "report.json"), "--format", "prometheus", "--out", str(tmp_path / "x.prom"))
    assert (tmp_path / "x.prom").read_text() == prometheus_text(report)


def test_the_command_says_what_it_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(TimewheelError, match="does not exist"):
        _run(str(tmp_path))
    (tmp_path / "report.json").write_text(day_without_faults().model_dump_json())
    with pytest.raises(UsageError, match="--open"):
        _run(str(tmp_path), "--json", "--open")
    with pytest.raises(TimewheelError, match="cannot be written"):
        _run(str(tmp_path), "--out", str(tmp_path / "no" / "such" / "x.html"))


def test_open_hands_the_page_to_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.json").write_text(day_without_faults().model_dump_json())
    opened: list[str] = []
    monkeypatch.setattr(audit_report.webbrowser, "open", lambda url: opened.append(url) or True)
    _run(str(tmp_path), "--open")
    assert opened == [(tmp_path / "report.html").as_uri()]


def test_a_day_with_faults_is_a_day() -> None:
    report = day_with_faults()
    assert not report.is_kept
    assert day_without_faults().is_kept
    assert report.until is not None
    assert report.since is not None
    assert report.until - report.since < timedelta(days=1, minutes=1)
    assert len(report.lateness_histogram) == len(LATENESS_EDGES_MS) + 1
