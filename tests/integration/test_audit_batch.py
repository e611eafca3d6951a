"""What ``audit batch`` says of what it could not read; there is no Kafka here, and nothing in its topics."""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from typer.testing import CliRunner

from connectors.contract import Place, TopicNames
from sidecar.cli import audit_batch
from sidecar.cli.main import make_app
from sidecar.errors import UsageError
from spark import tables
from spark.batch import Job, audit, failures_read, letters_lost, read_facts
from spark.cluster import Cluster, Range
from spark.reconcile import Rules
from spark.stream import ONLY, READ_UNTIL, Ingest
from tests.support.audit_story import LEVELS, NAMES, SEND_BACK, WHEEL, Story, facts_of

pytestmark = [pytest.mark.slow]

AT_MS = Story.BEGIN_MS
FROM = "2030-01-01T00:00:00Z"


class Empty(Cluster):
    """Topics of a partition each, without a record; where the wheel topic is, so are the others of the sidecar's."""

    def __init__(self, *topics: str, hidden: str = "") -> None:
        self.options = {}
        ours = [topic for topic in NAMES.schedule_topics(LEVELS) if topic != hidden]
        self._topics = [*topics, *ours] if WHEEL in topics else topics

    def topics(self) -> dict[str, list[int]]:
        return {topic: [0] for topic in self._topics}

    def compacted(self, topics: Iterable[str]) -> list[str]:
        return []

    def kept_since_ms(self, places: Iterable[Place], empty_ms: int) -> dict[str, int]:
        return {}

    def written(self, places: Iterable[Place]) -> dict[Place, int]:
        return dict.fromkeys(places, 0)

    def held_back(self, written: Mapping[Place, int]) -> dict[Place, int]:
        return {}

    def ranges(self, places: Iterable[Place], since_ms: int | None = None) -> dict[Place, Range]:
        return {}

    def unreadable(self, places: Iterable[Place]) -> dict[Place, int]:
        return {}


def notes_of(
    spark: SparkSession,
    path: Path,
    cluster: Cluster,
    names: TopicNames = NAMES,
    rules: Rules = Rules(0, destinations=("orders",)),  # noqa: B008
) -> list[str]:
    job = Job(names, LEVELS, rules)
    return read_facts(spark, cluster, job, str(path), lambda _: nullcontext())


def has_read(spark: SparkSession, path: Path, story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    def append(*_: object, is_first: bool) -> dict[Place, int]:
        if is_first:
            tables.write_facts(facts_of(spark, story.records), str(path), "overwrite")
        return {}

    monkeypatch.setattr("spark.batch._append", append)


@pytest.mark.parametrize(("as_of_s", "is_told"), [(16, True), (14, False)])
def test_a_retry_topic_that_is_not_seen_is_named_when_something_ought_to_be_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_of_s: int, *, is_told: bool
) -> None:
    story = Story()
    for group in ("billing", "mails"):  # due after 10 s; the grace is 5 s
        story.write(SEND_BACK, 0, UNIQ_KEY="a", CONSUMER_GROUP=group, RETRY_TOPIC="orders")
    has_read(spark, tmp_path, story, monkeypatch)
    rules = Rules(story.due(as_of_s * 1_000), destinations=("orders",))
    notes = notes_of(spark, tmp_path, Empty(WHEEL, "orders", "RETRY-mails"), rules=rules)
    assert [
        note.startswith("Topic RETRY-billing, which messages are scheduled for, cannot be seen") for note in notes
    ] == [True] * is_told


def test_a_destination_that_is_not_seen_may_be_there(spark: SparkSession, tmp_path: Path) -> None:
    (note,) = notes_of(spark, tmp_path, Empty(WHEEL))
    assert note.startswith("Topic orders, which messages are scheduled for, cannot be seen")
    assert "or it may not be described" in note


def test_an_audit_that_sees_no_topic_of_ours_says_so(spark: SparkSession, tmp_path: Path) -> None:
    (note,) = notes_of(spark, tmp_path, Empty(WHEEL, "orders"), TopicNames("typo."))
    assert f"such as typo.{WHEEL}: nothing was read" in note


def test_a_destination_that_no_longer_has_what_came_first_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story()
    for destination in ("orders", "payments"):
        story.write(WHEEL, 0, REAL_TOPIC=destination, UNIQ_KEY="a", TIMER_DELAY_MS=10_000)

    class Cut(Empty):
        def kept_since_ms(self, places: Iterable[Place], empty_ms: int) -> dict[str, int]:
            kept = {"orders": story.due(10_001), "payments": story.due(10_000)}
            return {topic: kept[topic] for topic, _ in places if topic in kept}

    has_read(spark, tmp_path, story, monkeypatch)
    (note,) = notes_of(spark, tmp_path, Cut(WHEEL, "orders", "payments"))
    assert note.startswith("orders no longer has its records of before 2023-11-14T22:13:30.001+00:00")


@pytest.mark.parametrize(("since_ms", "is_told"), [(None, True), (AT_MS - 1, True), (AT_MS, False)])
def test_a_schedule_topic_that_no_longer_has_what_asked_first_is_named(
    spark: SparkSession, tmp_path: Path, since_ms: int | None, *, is_told: bool
) -> None:
    class Cut(Empty):
        def kept_since_ms(self, places: Iterable[Place], empty_ms: int) -> dict[str, int]:
            kept = {WHEEL: AT_MS, NAMES.level(1): empty_ms}
            return {topic: kept[topic] for topic, _ in places if topic in kept}

    cluster = Cut(WHEEL, NAMES.level(1), "orders")
    notes = notes_of(spark, tmp_path, cluster, rules=Rules(AT_MS + 1, since_ms=since_ms, destinations=("orders",)))
    told = [f"{WHEEL} no longer has its records of before 2023-11-14T22:13:20.000+00:00: what they asked for"]
    told = told if is_told else []
    if since_ms is None:  # whether that has been empty for long
        told = [f"{NAMES.level(1)} no longer has its records of before 2023-11-14T22:13:20.001+00:00: what they", *told]
    assert [note[: len(begin)] for note, begin in zip(notes, told, strict=True)] == told


def test_what_is_behind_an_open_transaction_is_named(spark: SparkSession, tmp_path: Path) -> None:
    class Held(Empty):
        def held_back(self, written: Mapping[Place, int]) -> dict[Place, int]:
            return {place: 17 for place in written if place in [(WHEEL, 0), ("orders", 0)]}

    notes = notes_of(spark, tmp_path, Held(WHEEL, "orders"))
    for note, topic in zip(notes, (WHEEL, "orders"), strict=True):
        assert note.startswith(f"{topic}, partition 0: a transaction has been open")
        assert "nothing from offset 17 on was" in note


def test_a_transaction_is_looked_for_before_what_is_behind_it_is_passed_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It may end while the rest is read, and leave no trace of what was not."""

    class Ending(Empty):
        is_read = False

        def held_back(self, written: Mapping[Place, int]) -> dict[Place, int]:
            return {} if self.is_read or (WHEEL, 0) not in written else {(WHEEL, 0): 17}

        def ranges(self, places: Iterable[Place], since_ms: int | None = None) -> dict[Place, Range]:
            self.is_read = True
            return {}

    (note,) = notes_of(spark, tmp_path, Ending(WHEEL, "orders"))
    assert "nothing from offset 17 on was" in note


def test_a_destination_that_is_younger_than_what_is_missing_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    story = Story()
    for destination in ("anew", "empty", "lost", "whole"):
        story.write(WHEEL, 0, REAL_TOPIC=destination, UNIQ_KEY=destination, TIMER_DELAY_MS=10_000)
    story.write("whole", 10_005, UNIQ_KEY="whole")

    class Young(Empty):
        def begins_ms(self, topics: Iterable[str]) -> dict[str, int | None]:
            assert set(topics) == {"anew", "empty", "lost"}
            return {"anew": story.due(15_001), "empty": None, "lost": story.due(15_000)}

    path = str(tmp_path / "facts")
    tables.write_facts(facts_of(spark, story.records), path, "overwrite")
    job = Job(NAMES, LEVELS, Rules(story.due(100_000)))
    notes = audit(spark, job, path, str(tmp_path), [], lambda _: nullcontext(), Young()).notes
    assert [note.split(",")[0] for note in notes] == [
        "anew begins with a record of 2023-11-14T22:13:35.001+00:00",
        "empty holds nothing",
    ]


@pytest.mark.parametrize("hidden", [NAMES.level(1), NAMES.send_back])
def test_a_schedule_topic_that_is_not_seen_may_hold_messages(spark: SparkSession, tmp_path: Path, hidden: str) -> None:
    (note,) = notes_of(spark, tmp_path, Empty(WHEEL, "orders", hidden=hidden))
    assert note.startswith(f"Topic {hidden} cannot be seen: what was asked for there was not judged")


@pytest.mark.parametrize(("topic", "told"), [(NAMES.level(1), "was not judged"), ("orders", "counts as missing")])
def test_a_topic_that_is_compacted_is_named(spark: SparkSession, tmp_path: Path, topic: str, told: str) -> None:
    class Compacted(Empty):
        def compacted(self, topics: Iterable[str]) -> list[str]:
            return [name for name in topics if name == topic]

    (note,) = notes_of(spark, tmp_path, Compacted(WHEEL, "orders"))
    assert note.startswith(f"{topic} is compacted: ")
    assert told in note


def test_a_level_beyond_the_table_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (note,) = notes_of(spark, tmp_path, Empty(WHEEL, "orders", NAMES.level(6)))
    assert note.startswith(f"{NAMES.level(6)} is of no level of the table")


@pytest.mark.parametrize(
    ("arguments", "is_whole"),
    [([], True), (["--from", FROM], False), (["--from", FROM, "--facts", "table"], True)],
)
def test_only_topics_that_are_read_from_some_time_on_are_not_read_whole(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], *, is_whole: bool
) -> None:
    class JudgedError(Exception):
        pass

    def audit(_: SparkSession, job: Job, *rest: object) -> None:
        raise JudgedError(job.rules.is_whole, job.rules.failures_ms, job.rules.are_letters_whole)

    read, streamed = (0, 1), (2, 3)
    monkeypatch.setattr("spark.batch.letters_lost", Mock(return_value=["DLQ-billing"]))
    monkeypatch.setattr("spark.batch.failures_read", Mock(return_value=read))
    monkeypatch.setattr("spark.stream.failures_streamed", Mock(return_value=streamed))
    monkeypatch.setattr("spark.tables.read_facts", Mock())
    for name in ("session", "cluster"):
        monkeypatch.setattr(audit_batch, name, Mock())
    monkeypatch.setattr(audit_batch, "_check_may_be_written", Mock())
    monkeypatch.setattr(audit_batch, "_kept", Mock(return_value=()))
    monkeypatch.setattr("spark.batch.read_facts", Mock())
    monkeypatch.setattr("spark.batch.audit", audit)
    command = ["audit", "batch", "--out", "unused", "--as-of", "2030-01-02T00:00:00Z", *arguments]
    ended = CliRunner().invoke(make_app("audit"), command)
    assert isinstance(ended.exception, JudgedError), ended.output
    is_of_table = "--facts" in arguments
    assert ended.exception.args == (is_whole, streamed if is_of_table else read, is_of_table)


def test_dead_letter_topics_that_have_lost_records_are_told() -> None:
    cluster = Mock()
    cluster.topics.return_value = {"orders": [0], "DLQ-mails": [0], "DLQ-billing": [0, 1]}
    cluster.kept_since_ms.return_value = {"DLQ-mails": AT_MS, "DLQ-billing": AT_MS}
    job = Job(NAMES, LEVELS, Rules(AT_MS))
    assert letters_lost(cluster, job) == ["DLQ-billing", "DLQ-mails"]
    ((places, _),) = (call.args for call in cluster.kept_since_ms.call_args_list)
    assert sorted(places) == [("DLQ-billing", 0), ("DLQ-billing", 1), ("DLQ-mails", 0)]


@pytest.mark.parametrize(("lost_ms", "since_ms"), [(None, None), (AT_MS, None), (None, AT_MS + 1), (AT_MS, 1)])
def test_what_came_for_groups_is_judged_when_all_that_was_sent_back_before_has_come(
    lost_ms: int | None, since_ms: int | None
) -> None:
    class Cut(Empty):
        def kept_since_ms(self, places: Iterable[Place], empty_ms: int) -> dict[str, int]:
            return {} if lost_ms is None else {SEND_BACK: lost_ms}

    job = Job(NAMES, LEVELS, Rules(0, since_ms=since_ms))
    begin_ms = max(lost_ms or 0, since_ms or 0)
    expected = begin_ms + 60_000 + 86_400_000 if begin_ms else 0
    assert failures_read(Cut(WHEEL), job, AT_MS + 10_000) == (expected, AT_MS + 5_000)


def test_what_came_for_groups_is_not_judged_where_it_is_not_known_what_was_sent_back() -> None:
    class Compacted(Empty):
        def compacted(self, topics: Iterable[str]) -> list[str]:
            return list(topics)

    class Unreadable(Empty):
        def unreadable(self, places: Iterable[Place]) -> dict[Place, int]:
            return dict.fromkeys(places, 0)

    job = Job(NAMES, LEVELS, Rules(0))
    for cluster in (Compacted(WHEEL), Unreadable(WHEEL), Empty(WHEEL, hidden=SEND_BACK)):
        assert failures_read(cluster, job, AT_MS) is None


def test_a_table_of_a_stream_is_not_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    streamed, out = str(tmp_path / "facts"), str(tmp_path)
    paths = [f"{out}/verdicts", streamed]
    audit_batch._check_may_be_written(spark, out, paths)  # there is nothing yet
    Ingest(spark, Empty(), Job(NAMES, LEVELS, Rules(0)), streamed, f"{out}/new", 1_000, lambda _: None, lambda: 0)
    with pytest.raises(UsageError, match=rf"--out {out}: {streamed} is the table of an 'audit stream'"):
        audit_batch._check_may_be_written(spark, out, paths)


@pytest.mark.parametrize("kind", [READ_UNTIL, ONLY])
def test_a_table_of_a_stream_that_was_begun_before_tables_said_so_is_not_overwritten_either(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    path = str(tmp_path)
    story = Story()
    story.write(WHEEL, 0, REAL_TOPIC="orders", UNIQ_KEY="a", TIMER_DELAY_MS=10_000)
    facts = facts_of(spark, story.records)
    tables.write_facts(facts, path, "append")
    audit_batch._check_may_be_written(spark, path, [path])
    tables.write_facts(facts.withColumn("kind", F.lit(kind)), path, "append")
    with pytest.raises(UsageError, match="is the table of an 'audit stream'"):
        audit_batch._check_may_be_written(spark, path, [path])


def test_of_a_table_that_is_of_some_destinations_only_those_are_judged(spark: SparkSession, tmp_path: Path) -> None:
    cluster, table = Empty(), str(tmp_path / "facts")
    job = Job(NAMES, LEVELS, Rules(0, destinations=("orders", "payments")))
    Ingest(spark, cluster, job, table, str(tmp_path / "checkpoint"), 1_000, lambda _: None, lambda: 0)
    assert audit_batch._kept(spark, table, ()) == ("orders", "payments")
    assert audit_batch._kept(spark, table, ("orders",)) == ("orders",)
    with pytest.raises(UsageError, match=r"--destination mails: .* was begun for orders, payments alone"):
        audit_batch._kept(spark, table, ("orders", "mails"))
