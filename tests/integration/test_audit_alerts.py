"""Alerts of what is overdue, from a table of facts that grows as the ingest makes it grow."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connectors.contract import TopicNames
from spark import tables
from spark.alerts import HORIZON_MS, STRAGGLERS_MS, Alert, AlertStream, Progress, Watch, survey_of
from spark.facts import SCHEMA
from spark.stream import ONLY, READ_UNTIL
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

S = 1_000
GRACE_MS = 10 * S
BEGIN_MS = 1_700_000_000_000
NAMES = TopicNames()
WHEEL = NAMES.wheel


class Raised:
    """A sink that remembers; it outlives the watches that use it, as Kafka does."""

    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        self.until: Progress | None = None

    def progress(self) -> Progress | None:
        return self.until

    def put(self, alerts: Iterable[Alert], progress: Progress) -> int:
        fresh = list(alerts)
        self.alerts += fresh
        self.until = progress
        return len(fresh)

    @property
    def until_ms(self) -> int | None:
        return self.until and self.until.judged_until_ms

    @property
    def ids(self) -> Counter[str]:
        return Counter(alert.id for alert in self.alerts)


class Table:
    """A table of facts that grows; times are in ms from the beginning."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.path = str(directory / "facts")
        self.checkpoint = str(directory / "alerts")
        self.raised = Raised()
        self.told: list[str] = []
        self._spark = spark
        self._facts: list[dict[str, Any]] = []
        self._offsets: Counter[str] = Counter()
        self.read()
        self.watch = self.new_watch()

    def new_watch(self, grace_ms: int = GRACE_MS) -> Watch:
        """As a process that was started again has it."""
        return Watch(self._spark, NAMES, self.path, survey_of(self.checkpoint), grace_ms, self.raised, self.told.append)

    def write(self, kind: str, name: str | None, at_ms: int, topic: str = WHEEL, **more: Any) -> int:
        """A fact, as `spark.facts` makes them; its offset."""
        offset = self._offsets[topic]
        self._offsets[topic] += 1
        fact = {"kind": kind, "id": name, "topic": topic, "partition": 0, "offset": offset, "retries": 0, "redrives": 0}
        self._facts.append({**fact, "timestamp_ms": BEGIN_MS + at_ms, "append_time": True, **more})
        return offset

    def read(self) -> None:
        rows = [tuple(fact.get(field.name) for field in SCHEMA) for fact in self._facts]
        self._facts.clear()
        tables.write_facts(self._spark.createDataFrame(rows, SCHEMA).coalesce(1), self.path, "append")

    def mark(self, at_ms: int) -> None:
        self.write(READ_UNTIL, None, at_ms, topic="")
        self.read()

    def look(self, at_ms: int) -> Counter[str]:
        """What a look at that time raises."""
        self.read()
        before = self.raised.ids
        self.watch.look(BEGIN_MS + at_ms)
        return self.raised.ids - before

    def schedule(self, name: str, at_ms: int, delay_ms: int, **more: Any) -> int:
        due_ms = BEGIN_MS + at_ms + delay_ms
        return self.write(
            **{
                "kind": "scheduled",
                "name": name,
                "at_ms": at_ms,
                "destination": "orders",
                "due_ms": due_ms,
                "level": 0,
                **more,
            }
        )

    def deliver(self, name: str, at_ms: int, due_ms: int) -> None:
        self.write("delivered", name, at_ms, topic="orders", destination="orders", due_ms=BEGIN_MS + due_ms)

    def reject(self, name: str, at_ms: int, offset: int, code: str, of_topic: str = WHEEL) -> None:
        of = {"of_topic": of_topic, "of_partition": 0, "of_offset": offset}
        letter = {"topic": "DLQ-timewheel", "destination": "DLQ-timewheel", "group": "timewheel"}
        self.write("rejected", name, at_ms, why=code, **letter, **of)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Iterator[Table]:
    yield Table(spark, tmp_path)
    spark.catalog.clearCache()


def test_only_what_is_overdue_is_told_and_only_once(table: Table) -> None:
    schedule = table.schedule
    schedule("delivered", 0, 20 * S)
    schedule("lost", 0, 20 * S)
    schedule("late", 0, 20 * S)
    schedule("within the grace", 0, 21 * S)
    schedule("cancelled", 0, 20 * S)
    table.write("cancel", "cancelled", 1 * S)
    schedule("replaced", 0, 20 * S)
    schedule("replaced", 1 * S, 39 * S, kind="replace", replaces="replaced")
    schedule("replaced by another", 0, 20 * S)
    schedule("another", 1 * S, 10 * S, kind="replace", replaces="replaced by another")
    table.deliver("another", 11 * S, 11 * S)
    schedule("pending", 0, 300 * S)
    origin = schedule("rolled", 0, 20 * S)
    schedule("rolled", 10 * S, 10 * S, kind="rolled", of_topic=WHEEL, of_partition=0, of_offset=origin)
    table.deliver("rolled", 20 * S, 20 * S)
    table.reject("rejected", 20 * S, schedule("rejected", 0, 20 * S), "UNKNOWN_DESTINATION")
    invalid = table.write("invalid", "no destination", 0, why="MISSING_REAL_TOPIC", due_ms=BEGIN_MS)
    table.reject("no destination", 1 * S, invalid, "MISSING_REAL_TOPIC")
    schedule("used again", 0, 5 * S)
    table.deliver("used again", 5 * S, 5 * S)
    schedule("used again", 8 * S, 12 * S)
    table.deliver("delivered", 20 * S, 20 * S)

    assert table.look(30_500) == Counter(["lost", "late", "used again"])
    (alert, *_) = [alert for alert in table.raised.alerts if alert.id == "lost"]
    assert (alert.destination, alert.topic, alert.partition, alert.offset) == ("orders", WHEEL, 0, 1)
    assert (alert.due_ms, alert.as_of_ms, alert.overdue_ms) == (BEGIN_MS + 20 * S, BEGIN_MS + 30_500, 10_500)

    table.deliver("within the grace", 30_600, 21 * S)
    table.deliver("late", 33 * S, 20 * S)
    table.watch = table.new_watch()  # the process is started again, and sees an old mark first
    assert table.look(30_500) == Counter()
    assert table.look(51 * S) == Counter(["replaced"]), "the replacement has not come either"


def test_a_restart_with_another_grace_loses_nothing_and_repeats_nothing(table: Table) -> None:
    for due_s in (5, 20, 75):
        table.schedule(f"due at {due_s}", 0, due_s * S)
    assert table.look(15_500) == Counter(["due at 5"])
    table.watch = table.new_watch(60 * S)
    assert table.look(70 * S) == Counter(), "5 s would be within reach, and has been told"
    table.watch = table.new_watch(10 * S)
    assert table.look(90 * S) == Counter(["due at 20", "due at 75"])
    assert table.told == []


def test_progress_that_does_not_say_by_which_grace_is_gone_on_with_by_that_of_now(table: Table) -> None:
    table.schedule("told before", 0, 20 * S)
    table.schedule("lost", 0, 20 * S + 1)
    table.raised.until = Progress(BEGIN_MS + 30_001, None)
    table.watch = table.new_watch()
    assert table.look(31 * S) == Counter(["lost"])


@pytest.mark.slow
def test_what_waits_for_days_is_in_no_survey_until_it_falls_due(spark: SparkSession, table: Table) -> None:
    day = 24 * HORIZON_MS
    for number in range(50):
        table.schedule(f"far {number}", 0, 2 * day)
    table.schedule("tomorrow", 0, day)
    table.schedule("tomorrow, cancelled", 0, day)
    table.write("cancel", "tomorrow, cancelled", 60 * S)
    table.schedule("tomorrow, delivered", 0, day)
    assert table.look(STRAGGLERS_MS + 61 * S) == Counter()
    assert tables.read(spark, survey_of(table.checkpoint)).count() == 0
    assert table.look(day - 100 * S) == Counter()
    kept = {row["id"] for row in tables.read(spark, survey_of(table.checkpoint)).collect()}
    assert kept == {"tomorrow", "tomorrow, cancelled", "tomorrow, delivered"}
    table.deliver("tomorrow, delivered", day + 5, day)
    assert table.look(day + 11 * S) == Counter(["tomorrow"])
    assert table.look(day + 2 * HORIZON_MS) == Counter()
    survey = tables.read(spark, survey_of(table.checkpoint))
    assert survey.count() == 0, "what has been judged is let go"
    kept_files = {path.name for path in Path(survey_of(table.checkpoint)).glob("*.parquet")}
    assert kept_files == {Path(name).name for name in survey.inputFiles()}, "and so are the files of surveys before"


def test_a_lost_replacement_of_what_was_not_due_for_days_is_told(table: Table) -> None:
    day = 24 * HORIZON_MS
    table.schedule("moved", 0, 3 * day)
    table.schedule("replaced by another", 0, 3 * day)
    table.schedule("gone out", 0, 10 * S)
    table.deliver("gone out", 10 * S, 10 * S)
    table.schedule("cancelled", 0, 3 * day)
    table.write("cancel", "cancelled", 10 * S)
    assert table.look(day) == Counter()
    for name, replaces in (
        ("moved", "moved"),
        ("another", "replaced by another"),
        ("gone out", "gone out"),
        ("cancelled", "cancelled"),
    ):
        table.schedule(name, day + 60 * S, 300 * S, kind="replace", replaces=replaces)
    assert table.look(day + 375 * S) == Counter(["moved", "another"])


def test_the_last_of_several_that_replace_each_other_by_other_ids_is_told_if_it_is_lost(table: Table) -> None:
    day = 24 * HORIZON_MS

    def replace(name: str, replaces: str, at_ms: int, delay_ms: int) -> None:
        table.schedule(name, at_ms, delay_ms, kind="replace", replaces=replaces)

    table.schedule("long ago", 0, 3 * day)
    replace("long ago, again", "long ago", 10 * S, 3 * day)
    assert table.look(day) == Counter()
    table.schedule("lately", day, day)
    table.schedule("gone out", day, 10 * S)
    table.deliver("gone out", day + 10 * S, day + 10 * S)
    replace("lately, again", "lately", day + 60 * S, day)
    replace("gone out, again", "gone out", day + 60 * S, day)
    for name in ("long ago", "lately", "gone out"):
        replace(f"{name}, at last", f"{name}, again", day + 70 * S, 200 * S)
    assert table.look(day + 375 * S) == Counter(["long ago, at last", "lately, at last"])


def test_what_was_rejected_is_told_by_its_place_and_not_by_its_id(table: Table) -> None:
    day, send_back = 24 * HORIZON_MS, NAMES.send_back
    settled = table.schedule("refused long ago", 0, day)
    table.reject(f"{WHEEL}-0-{settled}", 1 * S, settled, "UNKNOWN_DESTINATION")
    table.schedule("lost", 0, day)
    failed = table.schedule(
        "orders-0-17", day, 0, kind="send_back", topic=send_back, destination="RETRY-billing", retries=1
    )
    table.reject(f"{send_back}-0-{failed}", day + 1 * S, failed, "TOO_MANY_GROUP_TOPICS", send_back)
    cancel = table.write("invalid", "order-1", day, why="ILLEGAL_REAL_TOPIC", due_ms=BEGIN_MS + day)
    table.reject(f"{WHEEL}-0-{cancel}", day + 1 * S, cancel, "ILLEGAL_REAL_TOPIC")
    assert table.look(day + 11 * S) == Counter(["lost"])


def test_of_a_table_that_is_of_some_destinations_nothing_else_is_told(table: Table) -> None:
    table.write(ONLY, None, -BEGIN_MS, topic="", destination="orders")
    table.read()
    table.watch = table.new_watch()
    table.schedule("lost", 0, 20 * S)
    table.schedule("elsewhere", 0, 20 * S, destination="payments")
    table.schedule("sent back", 0, 20 * S, kind="send_back", destination="RETRY-billing", retries=1)
    assert table.look(31 * S) == Counter(["lost", "sent back"])


def test_of_what_was_asked_for_twice_the_one_that_is_lost_is_told(table: Table) -> None:
    for _ in range(2):
        table.schedule("one of two", 0, 20 * S)
        table.schedule("both", 0, 20 * S)
        table.deliver("both", 20 * S, 20 * S)
    table.deliver("one of two", 20 * S, 20 * S)
    assert table.look(31 * S) == Counter(["one of two"])


@pytest.mark.slow
def test_what_was_due_more_than_an_hour_ago_is_left_to_the_batch_and_that_is_said(table: Table) -> None:
    table.schedule("lost", 0, 20 * S)
    assert table.look(31 * S) == Counter(["lost"])
    table.schedule("lost unseen", 40 * S, 20 * S)
    table.schedule("lost lately", 40 * S, 2 * HORIZON_MS)
    assert table.told == []
    assert table.look(2 * HORIZON_MS + 60 * S) == Counter(["lost lately"])
    assert "is left to 'audit batch'" in table.told[0]


@pytest.mark.slow
def test_the_query_looks_at_every_mark_and_goes_on_after_a_restart(spark: SparkSession, table: Table) -> None:
    table.schedule("lost", 0, 20 * S)
    table.schedule("delivered", 0, 20 * S)
    table.deliver("delivered", 20 * S, 20 * S)
    table.read()
    query = AlertStream(spark, table.path, table.watch, 100)
    try:
        table.mark(25 * S)
        table.mark(31 * S)
        wait_until(lambda: table.raised.until_ms == BEGIN_MS + 31 * S, "the mark has been looked at", 400)
    finally:
        query.stop()
    assert table.raised.ids == Counter(["lost"])
    table.schedule("lost meanwhile", 32 * S, 1 * S)
    table.read()
    table.mark(40 * S)
    tables.compact(spark, table.path)
    tables.vacuum(spark, table.path, is_private=True)  # as after a week
    query = AlertStream(spark, table.path, table.new_watch(), 100)
    try:
        table.mark(45 * S)
        table.mark(50 * S)
        wait_until(lambda: table.raised.until_ms == BEGIN_MS + 50 * S, "the mark has been looked at", 400)
    finally:
        query.stop()
    assert table.raised.ids == Counter(["lost", "lost meanwhile"])
