"""What the report says of verdicts, where there is more than it shows."""

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.answers import Answers, bounded
from spark.facts import SCHEMA
from spark.reconcile import Rules, reconcile
from spark.report import model
from tests.support.audit_story import NAMES, SEND_BACK, Story, facts_of

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
HOURS = 24 * 100
PLACES = 150


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> Answers:
    """Of a message an hour for a hundred days; all are missing, and they are for many destinations."""
    facts = spark.createDataFrame([], SCHEMA)
    return Answers(_missing(spark), facts, NAMES, Rules(as_of_ms=HOURS * HOUR_MS))


def _missing(spark: SparkSession) -> DataFrame:
    nothing = {"group": "string", "delivered_partition": "int", "lateness_ms": "bigint"}
    return spark.range(HOURS).select(
        F.lit("missing").alias("verdict"),
        F.concat(F.lit("orders-"), F.pmod("id", F.lit(PLACES))).alias("destination"),
        (F.col("id") * HOUR_MS).alias("due_ms"),
        F.lit(0).alias("level"),
        F.lit(0).alias("arrivals"),
        *(F.lit(None).cast(kind).alias(name) for name, kind in nothing.items()),
    )


def test_hours_before_the_latest_days_are_counted(answers: Answers) -> None:
    hours, left_out = answers.hours()
    assert (len(hours), left_out) == (24 * model.MAX_HEAT_DAYS, HOURS - 24 * model.MAX_HEAT_DAYS)
    assert (hours[0].day, hours[-1].day) == ("1970-02-08", "1970-04-10")


def test_places_where_faults_gather_are_counted_where_not_all_are_shown(answers: Answers) -> None:
    offenders = answers.offenders()
    assert (len(offenders.rows), offenders.left_out) == (model.MAX_ROWS, PLACES + 1 - model.MAX_ROWS)
    assert (offenders.rows[0].kind, offenders.rows[0].name, offenders.rows[0].faulty) == ("level", "wheel", HOURS)


def test_retries_are_all_counted_though_there_are_more_depths_than_places_and_groups_that_no_topic_can_have(
    spark: SparkSession,
) -> None:
    story = Story()
    depths = model.MAX_ROWS + 50
    for depth in range(depths):
        sent = {"UNIQ_KEY": f"a{depth}", "RECONSUME_TIME": depth, "MAX_RECONSUME_TIMES": 1_000}
        story.write(SEND_BACK, 0, CONSUMER_GROUP="billing", RETRY_TOPIC="orders", **sent)
        story.write("RETRY-billing", 10_000_000, UNIQ_KEY=f"a{depth}", RECONSUME_TIME=depth + 1)
    for ending in "ab":
        story.write(SEND_BACK, 0, CONSUMER_GROUP="g" * 1_100 + ending, RETRY_TOPIC="orders", UNIQ_KEY=ending)
    rules = Rules(as_of_ms=story.due(100_000_000))
    facts = spark.createDataFrame(facts_of(spark, story.records).collect(), SCHEMA)
    judged = reconcile(facts, NAMES, rules)
    answers = Answers(spark.createDataFrame(judged.collect(), judged.schema), facts, NAMES, rules)
    spark.catalog.clearCache()
    rows = answers.retries_by_depth()
    assert [row.depth for row in rows] == list(range(1, model.MAX_ROWS))
    assert [row.messages for row in rows] == [1] * (model.MAX_ROWS - 2) + [depths - model.MAX_ROWS + 2]
    assert [row.group for row in answers.retries_by_group().rows] == ["billing"]
    assert answers.counts().missing == 2


def test_what_was_redriven_twice_was_never_due_and_is_named(spark: SparkSession) -> None:
    story = Story()
    story.write("DLQ-billing", 0, UNIQ_KEY="a", RECONSUME_TIME=1)
    for at_ms in (1_000, 2_000):
        story.write("orders", at_ms, UNIQ_KEY="a", REDRIVE_COUNT=1)
    rules = Rules(as_of_ms=story.due(100_000))
    facts = spark.createDataFrame(facts_of(spark, story.records).collect(), SCHEMA)
    judged = reconcile(facts, NAMES, rules)
    verdicts = spark.createDataFrame(judged.collect(), judged.schema)
    spark.catalog.clearCache()
    report = Answers(verdicts, facts, NAMES, rules).report()
    assert [(message.id, message.verdict) for message in report.faulty] == [("a", model.Verdict.DUPLICATE)]
    assert (report.verdicts.duplicate, report.due_over_time) == (1, ())


def test_messages_that_rolled_equally_often_and_are_due_together_are_named_in_the_order_of_their_ids(
    spark: SparkSession,
) -> None:
    rolled = spark.range(9, -1, -1, numPartitions=3).select(
        F.concat(F.lit("m"), "id").alias("id"),
        F.lit("SCHEDULE_TOPIC_XXXX-wheel").alias("topic"),
        F.lit(0).alias("partition"),
        (9 - F.col("id")).alias("offset"),
        F.lit(HOUR_MS).alias("due_ms"),
        F.lit(2).alias("rolls"),
    )
    facts = spark.createDataFrame([], SCHEMA)
    rows = Answers(rolled, facts, NAMES, Rules(as_of_ms=HOUR_MS)).rolled().rows
    assert [row.id for row in rows] == [f"m{number}" for number in range(10)]


def test_notes_that_are_left_out_are_counted() -> None:
    notes = [f"No topic orders-{number} is to be seen." for number in range(model.MAX_ROWS + 50)]
    shown = bounded(notes)
    assert len(shown) == model.MAX_ROWS
    assert shown[-1] == "There are 51 more of these notes, which are left out."
    assert bounded(notes[:-50]) == tuple(notes[:-50])
