"""What is overdue and has not been delivered, told within a minute: a second streaming query beside the ingest.

    audit stream ──► facts ──► marks (how far everything has been read) ──► look ──► alerts topic, metrics

Each mark moves the look on: it judges what fell due between the mark before and this one, less the grace, and nothing
else, by `spark.reconcile`. So a message is judged once. Up to where it has been judged stands in Kafka as the group's
committed metadata, in the same transaction as the alerts: raised exactly once for ``read_committed`` readers, through
kills and restarts, with another grace as well.

What a look needs of the past is bounded, whatever waits for a month: the facts since the last survey, and a table of
what a survey found to fall due within the hour. A new survey replaces it every half hour. What fell due more than an
hour before a look (nobody looked for so long) is left to ``audit batch``.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from connectors.contract import TopicNames
from spark import tables
from spark.errors import AuditError
from spark.facts import ARRIVALS, ASKS, CLOCK_SKEW_MS, COORDINATES, IDENTITY, SCHEMA
from spark.reconcile import Rules, is_for, reconcile
from spark.stream import READ_UNTIL, kept_destinations

HORIZON_MS = 3_600_000
"""How far ahead a survey looks, and how far back the first look does."""

SURVEY_EVERY_MS = HORIZON_MS // 2

CHAIN_MAX = 16
"""How many replacements of one another are followed, where each has an id of its own; each costs a reading."""

STRAGGLERS_MS = 300_000
"""Facts so much older than a survey are settled: nothing is added among them any more."""


_ASKING = (*ASKS, "rolled", "retry", "invalid")
_COLUMNS = [field.name for field in SCHEMA]
_COORDINATES = list(COORDINATES)
_TOLD = ("id", "destination", "topic", "partition", "offset", "due_ms")


class Alert(NamedTuple):
    """A message that is overdue: what it was for, where it was scheduled, when it was due."""

    id: str
    destination: str | None
    topic: str
    partition: int
    offset: int
    due_ms: int
    why: str
    as_of_ms: int

    @property
    def overdue_ms(self) -> int:
        return self.as_of_ms - self.due_ms


class Progress(NamedTuple):
    """Up to when everything has been judged; what was due before ``due_until_ms``, None: by a grace not known."""

    judged_until_ms: int
    due_until_ms: int | None


class Sink(Protocol):
    """Where alerts go, and where the progress stands."""

    def progress(self) -> Progress | None: ...

    def put(self, alerts: Iterable[Alert], progress: Progress) -> int:
        """All of them and the progress, or nothing; how many there were."""
        ...


class Watch:
    """Judges what has fallen due since it last looked.

    Args:
        facts: the table that ``audit stream`` writes. survey: where the table of what falls due soon is kept.
        grace_ms: what has not come so long after it was due is overdue.
        tell: told what is worth a line.
    """

    def __init__(
        self,
        spark: SparkSession,
        names: TopicNames,
        facts: str,
        survey: str,
        grace_ms: int,
        sink: Sink,
        tell: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._names = names
        self._facts = facts
        self._survey = survey
        self._grace_ms = grace_ms
        self._sink = sink
        self._tell = tell
        self._destinations = kept_destinations(tables.read_facts(spark, facts))
        self._is_judged = is_for(self._destinations, names)
        self._surveyed_ms: int | None = None
        self._settled_ms = 0
        progress = sink.progress()
        self._judged_ms = progress and progress.judged_until_ms
        self._due_ms = progress and progress.due_until_ms

    def look(self, as_of_ms: int) -> int:
        """Raise alerts for what was due before ``as_of_ms`` less the grace; how many there were.

        Args:
            as_of_ms: everything written until then is in the table of facts.
        """
        if self._judged_ms is not None and as_of_ms <= self._judged_ms:
            return 0
        to_ms = as_of_ms - self._grace_ms
        from_ms = to_ms - HORIZON_MS
        if self._judged_ms is not None:
            due_ms = self._judged_ms - self._grace_ms if self._due_ms is None else self._due_ms
            if due_ms < from_ms:
                self._tell(
                    f"{(from_ms - due_ms) // 1000:,} s have not been looked at, and ended more than an hour ago: "
                    "what was due then is left to 'audit batch'"
                )
            from_ms = max(from_ms, due_ms)
            to_ms = max(from_ms, to_ms)  # it has been judged farther than that, with a shorter grace
        if self._surveyed_ms is None or as_of_ms - self._surveyed_ms >= SURVEY_EVERY_MS:
            self._look_ahead(as_of_ms)
        alerts = self._overdue(from_ms, to_ms, as_of_ms)
        raised = self._sink.put(alerts, Progress(as_of_ms, to_ms))
        self._judged_ms, self._due_ms = as_of_ms, to_ms
        self._spark.catalog.clearCache()  # what the fold has kept
        return raised

    # --- what is overdue ----------------------------------------------------------------------------------------------

    def _overdue(self, from_ms: int, to_ms: int, as_of_ms: int) -> Iterator[Alert]:
        known = self._known(as_of_ms)
        suspects = _suspects(known.where(self._is_judged), from_ms, to_ms).persist()
        if suspects.isEmpty():
            return iter(())
        related = _related(known, suspects)
        rules = Rules(as_of_ms, self._grace_ms, destinations=self._destinations)
        judged = reconcile(related, self._names, rules).persist()
        unseen = _unseen(related, judged)
        if not unseen.isEmpty():
            older = _related(self._settled(), unseen).select(_COLUMNS)
            related = _related(known.unionByName(older), suspects)
            judged = reconcile(related, self._names, rules)
        # Of what replaces a suspect only that is known: whether it has come was not looked up.
        is_meant = _is_within(F.col("due_ms"), from_ms, to_ms)
        has_not_come = (F.col("verdict") == "missing") & (F.col("arrivals") == 0)
        overdue = judged.where(is_meant & has_not_come).join(suspects, "id", "left_semi")
        kept = overdue.select(*_TOLD, F.coalesce("why", F.lit("")).alias("why")).persist()
        kept.count()  # judged now: a transaction that is open is not to wait for it
        return (Alert(**row.asDict(), as_of_ms=as_of_ms) for row in kept.toLocalIterator())

    def _known(self, as_of_ms: int) -> DataFrame:
        """All that can matter to what is due about now: since the survey everything, and before it what it found."""
        recent = _since(tables.read_facts(self._spark, self._facts), self._settled_ms)
        surveyed = tables.read(self._spark, self._survey)
        return surveyed.select(_COLUMNS).unionByName(recent.select(_COLUMNS)).where(F.col("timestamp_ms") <= as_of_ms)

    def _settled(self) -> DataFrame:
        """What is in the table from before, whether a survey found it or not."""
        return tables.read_facts(self._spark, self._facts).where(F.col("timestamp_ms") < self._settled_ms)

    def _look_ahead(self, as_of_ms: int) -> None:
        """Survey: of the settled facts, those of ids that fall due from an hour ago to an hour on."""
        self._settled_ms = as_of_ms - STRAGGLERS_MS
        settled = self._settled()
        soon = _is_within(_due(), as_of_ms - HORIZON_MS - self._grace_ms, as_of_ms + HORIZON_MS)
        ids = settled.where(F.col("kind").isin(*_ASKING) & soon & self._is_judged).select("id").distinct()
        tables.write(_related(settled, ids, links=1).select(_COLUMNS), self._survey)
        self._surveyed_ms = as_of_ms
        tables.vacuum(self._spark, self._survey, is_private=True)


def _suspects(known: DataFrame, from_ms: int, to_ms: int) -> DataFrame:
    """Ids of what was due in a range and has, at first sight, not come as often as it was asked for: a few.

    What an arrival says of its due time is believed here only where it is the right one.
    """
    kind = F.col("kind")
    asks = kind.isin(*_ASKING) & _is_within(_due(), from_ms, to_ms)
    comes = kind.isin(*ARRIVALS) & (F.col("timestamp_ms") >= from_ms - CLOCK_SKEW_MS)
    sums = (
        known.where(asks | comes)
        .groupBy(*IDENTITY, "due_ms")
        .agg(
            F.count_if(asks).alias("asks"),
            F.count_if(asks & kind.isin(*ASKS)).alias("originals"),
            F.count_if(comes).alias("arrivals"),
        )
    )
    return sums.where("asks > 0 and arrivals < greatest(originals, 1)").select("id").distinct()


def _unseen(related: DataFrame, judged: DataFrame) -> DataFrame:
    """Ids of which replacements that have not come found nothing to replace, not even that it had gone out.

    What is not due for long is in no survey: the table knows of it.
    """
    void = judged.where("verdict = 'cancelled_too_late' and arrivals = 0").select(*_COORDINATES)
    replaced = (
        related.where("kind = 'replace'").join(void, _COORDINATES, "left_semi").select(F.col("replaces").alias("id"))
    )
    others = related.where(F.col("kind").isin(*_ASKING)).join(void, _COORDINATES, "left_anti")
    return replaced.join(others, "id", "left_anti").distinct().localCheckpoint()


def _related(facts: DataFrame, ids: DataFrame, links: int = CHAIN_MAX) -> DataFrame:
    """Every fact of some ids, of what replaces them and of what they replace, and their letters; kept: a few of many.

    So the plan of what is made of it begins with these rows, and not with the tables.

    Args:
        links: how often what was replaced may have replaced another.
    """
    found = _speaking_of(facts, ids).localCheckpoint()
    for _ in range(links):
        replaced = found.where("kind = 'replace'").select(F.col("replaces").alias("id")).join(ids, "id", "left_anti")
        replaced = replaced.distinct().localCheckpoint()
        if replaced.isEmpty():
            break
        ids = ids.unionByName(replaced).localCheckpoint()
        found = found.unionByName(_speaking_of(facts, replaced)).dropDuplicates(_COORDINATES).localCheckpoint()
    letters = _letters_of(facts, found).localCheckpoint()
    return found if letters.isEmpty() else found.unionByName(letters).localCheckpoint()


def _letters_of(facts: DataFrame, found: DataFrame) -> DataFrame:
    """What tells that one of these records was rejected, and goes by an id of its own."""
    places = found.select(*(F.col(name).alias(f"of_{name}") for name in _COORDINATES)).distinct()
    letters = facts.where("kind = 'rejected'").join(places, places.columns, "left_semi").select(facts.columns)
    return letters.join(found, _COORDINATES, "left_anti")


def _speaking_of(facts: DataFrame, ids: DataFrame) -> DataFrame:
    """Facts with one of these ids, or that replace one."""
    spoken_of = F.explode(F.array_compact(F.array("id", "replaces"))).alias("spoken_of")
    keys = ids.select(F.col("id").alias("spoken_of")).distinct()
    found = facts.select(*facts.columns, spoken_of).join(keys, "spoken_of", "left_semi")
    return found.dropDuplicates(_COORDINATES).select(facts.columns)


def _since(facts: DataFrame, since_ms: int) -> DataFrame:
    """Facts from a time on; the day spares reading the older files."""
    day = F.timestamp_millis(F.lit(since_ms)).cast("date")
    return facts.where((F.col("day") >= day) & (F.col("timestamp_ms") >= since_ms) & (F.col("kind") != READ_UNTIL))


def _due() -> Column:
    """What is asked for too late is due at once."""
    return F.greatest("due_ms", "timestamp_ms")


def _is_within(at: Column, from_ms: int, to_ms: int) -> Column:
    return (at >= from_ms) & (at < to_ms)


# --- the query --------------------------------------------------------------------------------------------------------


class AlertStream:
    """The streaming query: each batch with a mark is a look.

    It begins with the next mark: up to where has been judged the sink knows, and versions of the table that nobody has
    read for a week are gone.
    """

    def __init__(self, spark: SparkSession, facts: str, watch: Watch, interval_ms: int) -> None:
        self._watch = watch
        self._error: Exception | None = None
        tables.read_facts(spark, facts)  # or say now that there is none
        marks = spark.readStream.format("delta").option("startingVersion", "latest").load(facts)
        self._query: StreamingQuery = (
            marks.where(F.col("kind") == READ_UNTIL)
            .select("timestamp_ms")
            .writeStream.queryName("alerts")
            .trigger(processingTime=f"{interval_ms} milliseconds")
            .foreachBatch(self._on_marks)
            .start()
        )

    def _on_marks(self, marks: DataFrame, _: int) -> None:
        until_ms = marks.agg(F.max("timestamp_ms")).collect()[0][0]
        if until_ms is None:
            return
        try:
            self._watch.look(until_ms)
        except Exception as error:  # told to whoever waits, as what it is
            self._error = error
            raise

    def wait(self, timeout_s: float) -> None:
        """Wait; raises what a look has failed with."""
        try:
            has_ended = self._query.awaitTermination(int(timeout_s) or 1)
        except StreamingQueryException as error:
            if self._error is not None:
                raise self._error from error
            raise AuditError(
                f"the alerts' query has failed: {str(error).splitlines()[0][:500]}; start it again"
            ) from error
        if has_ended:
            raise AuditError("the alerts' query has ended by itself; start it again")

    def stop(self) -> None:
        self._query.stop()


def survey_of(checkpoint: str) -> str:
    """Where the survey's table is."""
    return f"{checkpoint}/survey"


def as_json(alert: Alert) -> dict[str, Any]:
    return {"alert": "overdue", **alert._asdict(), "overdue_ms": alert.overdue_ms}
