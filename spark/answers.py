"""Verdicts and facts -> the bounded findings that every report shows (`spark.report.model`)."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from connectors.contract import TopicKind, TopicNames
from spark import topic_kinds
from spark.facts import COORDINATES
from spark.reconcile import Rules
from spark.report import model

_QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
_ACCURACY = 10_000
_NOT_EXPECTED = ("cancelled", "cancel_ignored", "rejected", "pending")
_FAULTY = [verdict.value for verdict in model.FAULTY]
_GRAVITY = {verdict: number for number, verdict in enumerate(_FAULTY)}
_IN_ORDER = ("due_ms", "id", *COORDINATES)
"""No two messages are asked for by one record: which of them a report names, and in what order, is no chance."""


class Answers(NamedTuple):
    """What questions are asked of."""

    verdicts: DataFrame
    facts: DataFrame
    names: TopicNames
    rules: Rules

    def report(self, notes: Sequence[str] = ()) -> model.AuditReport:
        """Ask all of them."""
        faulty, faulty_left_out = self.faulty()
        bucket_ms = self._bucket_ms(_has_come() | _is_expected())
        forecast, forecast_left_out = self.forecast(model.BUCKETS_MS[0])
        hours, hours_left_out = self.hours()
        rules = self.rules
        return model.AuditReport(
            as_of=model.utc(rules.as_of_ms),
            since=None if rules.since_ms is None else model.utc(rules.since_ms),
            until=None if rules.until_ms is None else model.utc(rules.until_ms),
            grace_ms=rules.grace_ms,
            late_after_ms=rules.late_after_ms,
            bucket_ms=bucket_ms,
            verdicts=self.counts(),
            faulty=faulty,
            faulty_left_out=faulty_left_out,
            notes=bounded(notes),
            lateness=self.lateness(),
            lateness_by_topic=self.lateness_by(F.col("destination")),
            lateness_by_level=self.lateness_by(_level_name()),
            lateness_over_time=self.lateness_over_time(bucket_ms),
            lateness_histogram=self.histogram(),
            due_over_time=self.due_over_time(bucket_ms),
            hours=hours,
            hours_left_out=hours_left_out,
            retries_by_depth=self.retries_by_depth(),
            retries_by_group=self.retries_by_group(),
            forecast=forecast,
            forecast_left_out=forecast_left_out,
            rolled=self.rolled(),
            offenders=self.offenders(),
            topics_read=self.topics_read(),
        )

    # --- verdicts -----------------------------------------------------------------------------------------------------

    def counts(self) -> model.Verdicts:
        rows = self.verdicts.groupBy("verdict").count().collect()
        return model.Verdicts(**{row["verdict"]: row["count"] for row in rows})

    def faulty(self) -> tuple[tuple[model.Faulty, ...], int]:
        """The gravest first; and how many are not named."""
        gravity = F.element_at(
            F.create_map(*(F.lit(part) for pair in _GRAVITY.items() for part in pair)), F.col("verdict")
        )
        bad = self.verdicts.where(F.col("verdict").isin(_FAULTY))
        rows = bad.orderBy(gravity, *_IN_ORDER).limit(model.MAX_FAULTY).collect()
        total = len(rows) if len(rows) < model.MAX_FAULTY else bad.count()
        named = tuple(
            model.Faulty(
                **_picked(
                    row, "id", "verdict", "topic", "partition", "offset", "due_ms", "delivered_ms", "lateness_ms"
                ),
                destination=row["destination"],
                why=row["why"],
            )
            for row in rows
        )
        return named, total - len(named)

    def offenders(self) -> model.Bounded[model.Offender]:
        """Where faults gather."""
        partition = F.concat_ws("/", "destination", F.col("delivered_partition").cast("string"))
        kinds: dict[Literal["topic", "partition", "level", "group"], Column] = {
            "topic": F.col("destination"),
            "partition": F.when(F.col("delivered_partition").isNotNull(), partition),
            "level": _level_name(),
            "group": F.col("group"),
        }
        found: list[model.Offender] = []
        total = 0
        for kind, name in kinds.items():
            faulty = (
                self.verdicts.groupBy(name.alias("name"))
                .agg(
                    F.count("*").alias("messages"),
                    F.count_if(F.col("verdict").isin(_FAULTY)).alias("faulty"),
                    F.max("lateness_ms").alias("max_lateness_ms"),
                )
                .where("faulty > 0 and name is not null")
            )
            rows = faulty.orderBy(F.col("faulty").desc(), "name").limit(model.MAX_ROWS).collect()
            total += len(rows) if len(rows) < model.MAX_ROWS else faulty.count()
            found += [model.Offender(kind=kind, **row.asDict()) for row in rows]
        found.sort(key=lambda offender: -offender.faulty)
        shown = tuple(found[: model.MAX_ROWS])
        return model.Bounded(rows=shown, left_out=total - len(shown))

    def rolled(self) -> model.Bounded[model.Rolled]:
        rows = self.verdicts.where("rolls > 0")
        shown = rows.orderBy(F.col("rolls").desc(), *_IN_ORDER).limit(model.MAX_ROWS).collect()
        total = len(shown) if len(shown) < model.MAX_ROWS else rows.count()
        named = (model.Rolled(**_picked(row, "id", "topic", "partition", "offset", "due_ms", "rolls")) for row in shown)
        return model.Bounded(rows=tuple(named), left_out=total - len(shown))

    # --- lateness -----------------------------------------------------------------------------------------------------

    def lateness(self) -> model.Lateness:
        return model.Lateness(**self._delivered().agg(*_spread()).collect()[0].asDict())

    def lateness_by(self, name: Column) -> model.Bounded[model.NamedLateness]:
        """The worst first."""
        rows = self._delivered().groupBy(name.alias("name")).agg(*_spread()).where("name is not null")
        shown = rows.orderBy(F.col("p99_ms").desc(), "name").collect()
        named = tuple(model.NamedLateness(**row.asDict()) for row in shown[: model.MAX_ROWS])
        return model.Bounded(rows=named, left_out=len(shown) - len(named))

    def lateness_over_time(self, bucket_ms: int) -> tuple[model.LatenessAt, ...]:
        rows = self._delivered().groupBy(_bucket(bucket_ms)).agg(*_spread()).orderBy("at_ms").collect()
        return tuple(model.LatenessAt(**row.asDict()) for row in rows)

    def histogram(self) -> tuple[model.LatenessBucket, ...]:
        edges = model.LATENESS_EDGES_MS
        place = F.lit(len(edges))
        for number in reversed(range(len(edges))):
            place = F.when(F.col("lateness_ms") <= edges[number], number).otherwise(place)
        rows = self._delivered().groupBy(place.alias("place")).count().collect()
        counts = {row["place"]: row["count"] for row in rows}
        if not counts:
            return ()
        return tuple(
            model.LatenessBucket(up_to_ms=edge, count=counts.get(number, 0))
            for number, edge in enumerate([*edges, None])
        )

    def hours(self) -> tuple[tuple[model.Hour, ...], int]:
        """Cells of the latest days; and how many are left out."""
        day = F.date_format(F.timestamp_millis("due_ms"), "yyyy-MM-dd")
        p99 = F.percentile_approx(F.when(_has_come(), F.col("lateness_ms")), 0.99, _ACCURACY)
        cells = (
            self.verdicts.where(_is_expected() & F.col("due_ms").between(0, self.rules.as_of_ms))
            .groupBy(day.alias("day"), F.hour(F.timestamp_millis("due_ms")).alias("hour"))
            .agg(F.count("*").alias("due"), p99.alias("p99_ms"))
        )
        most = 24 * model.MAX_HEAT_DAYS
        rows = cells.orderBy(F.col("day").desc(), "hour").limit(most).collect()
        total = len(rows) if len(rows) < most else cells.count()
        days = sorted({row["day"] for row in rows})[-model.MAX_HEAT_DAYS :]
        shown = [model.Hour(**row.asDict()) for row in rows if row["day"] in days]
        return tuple(sorted(shown, key=lambda cell: (cell.day, cell.hour))), total - len(shown)

    # --- over time ----------------------------------------------------------------------------------------------------

    def due_over_time(self, bucket_ms: int) -> tuple[model.DueAt, ...]:
        rows = (
            self.verdicts.where((_has_come() | _is_expected()) & F.col("due_ms").isNotNull())
            .groupBy(_bucket(bucket_ms))
            .agg(
                F.count_if(_is_expected()).alias("expected"),
                F.count_if(_has_come()).alias("delivered"),
                F.count_if(F.col("verdict").isin(_FAULTY)).alias("faulty"),
            )
            .orderBy("at_ms")
            .collect()
        )
        return tuple(model.DueAt(**row.asDict()) for row in rows)

    def forecast(self, bucket_ms: int) -> tuple[tuple[model.PendingAt, ...], int]:
        """What falls due by the bucket, the first ones; and how many messages fall due after those."""
        pending = self.verdicts.where("verdict = 'pending' and due_ms is not null")
        rows = (
            pending.groupBy(_bucket(bucket_ms))
            .agg(F.count("*").alias("pending"))
            .orderBy("at_ms")
            .limit(model.MAX_BUCKETS)
            .collect()
        )
        shown = tuple(model.PendingAt(**row.asDict()) for row in rows)
        total = pending.count() if len(rows) == model.MAX_BUCKETS else sum(at.pending for at in shown)
        end_ms = self.rules.as_of_ms + model.MAX_BUCKETS * bucket_ms
        near = tuple(at for at in shown if at.at_ms < end_ms)
        return near, total - sum(at.pending for at in near)

    def _bucket_ms(self, condition: Column) -> int:
        span = self.verdicts.where(condition).agg(F.min("due_ms"), F.max("due_ms")).collect()[0]
        return model.BUCKETS_MS[0] if span[0] is None else model.bucket_ms_for(span[0], span[1])

    # --- retries ------------------------------------------------------------------------------------------------------

    def _attempts(self) -> DataFrame:
        """A row a message that a group has failed; not of what asked for what no group can be given."""
        kind = topic_kinds.kind(F.col("destination"), self.names)
        rows = self.verdicts.where(
            F.col("group").isNotNull()
            & F.col("destination").isNotNull()
            & (F.col("retries") > 0)
            & (F.col("verdict") != "rejected")
        ).select("*", (kind == TopicKind.RETRY.value).alias("is_retry"))
        came_back = F.col("is_retry") & _has_come()
        last = F.max(F.struct("retries", came_back.alias("came"), "delivered_ms"))
        told = rows.groupBy("group", "id", "redrives").agg(
            F.coalesce(F.max(F.when(came_back, F.col("retries"))), F.lit(0)).alias("depth"),
            F.count_if("is_retry").alias("retries"),
            F.bool_or(~F.col("is_retry") & _has_come()).alias("is_dead"),
            F.min("scheduled_ms").alias("failed_ms"),
            last.alias("last"),
        )
        has_succeeded = F.col("last.came") & ~F.col("is_dead")
        return told.select(
            "*",
            has_succeeded.alias("has_succeeded"),
            F.when(has_succeeded, F.col("last.delivered_ms") - F.col("failed_ms")).alias("success_ms"),
        )

    def retries_by_depth(self) -> tuple[model.RetryDepth, ...]:
        rows = (
            self._attempts()
            .groupBy(F.least("depth", F.lit(model.MAX_ROWS - 1)).alias("depth"))
            .agg(F.count("*").alias("messages"), F.count_if("is_dead").alias("dead_lettered"))
            .orderBy("depth")
            .collect()
        )
        return tuple(model.RetryDepth(**row.asDict()) for row in rows)

    def retries_by_group(self) -> model.Bounded[model.GroupRetries]:
        def quantile(share: float) -> Column:
            return F.percentile_approx("success_ms", share, _ACCURACY)

        rows = (
            self._attempts()
            .groupBy("group")
            .agg(
                F.count("*").alias("messages"),
                F.sum("retries").alias("retries"),
                F.max("depth").alias("max_depth"),
                F.count_if("has_succeeded").alias("succeeded"),
                F.count_if(~F.col("has_succeeded") & ~F.col("is_dead")).alias("waiting"),
                F.count_if("is_dead").alias("dead_lettered"),
                quantile(0.5).alias("success_p50_ms"),
                quantile(0.99).alias("success_p99_ms"),
            )
            .orderBy(F.col("dead_lettered").desc(), F.col("retries").desc(), "group")
            .collect()
        )
        named = tuple(model.GroupRetries(**row.asDict()) for row in rows[: model.MAX_ROWS])
        return model.Bounded(rows=named, left_out=len(rows) - len(named))

    # --- what was read ------------------------------------------------------------------------------------------------

    def topics_read(self) -> model.Bounded[model.TopicRead]:
        rows = (
            self.facts.where("topic != ''")
            .groupBy("topic")
            .agg(
                F.count("*").alias("facts"),
                F.min("timestamp_ms").alias("since_ms"),
                F.max("timestamp_ms").alias("until_ms"),
            )
            .orderBy(F.col("facts").desc(), "topic")
            .collect()
        )
        named = tuple(
            model.TopicRead(kind=self.names.kind(row["topic"]).value, **row.asDict()) for row in rows[: model.MAX_ROWS]
        )
        return model.Bounded(rows=named, left_out=len(rows) - len(named))

    def _delivered(self) -> DataFrame:
        return self.verdicts.where(_has_come() & F.col("lateness_ms").isNotNull())


def bounded(notes: Sequence[str]) -> tuple[str, ...]:
    """Notes as many as a report holds; the last of them says how many it lacks."""
    if len(notes) <= model.MAX_ROWS:
        return tuple(notes)
    shown = notes[: model.MAX_ROWS - 1]
    return *shown, f"There are {len(notes) - len(shown):,} more of these notes, which are left out."


def _has_come() -> Column:
    return F.col("arrivals") > 0


def _is_expected() -> Column:
    """What should have come by then."""
    is_void = (F.col("verdict") == "cancelled_too_late") & ~_has_come()
    return ~F.col("verdict").isin(*_NOT_EXPECTED) & ~is_void & F.col("due_ms").isNotNull()


def _level_name() -> Column:
    return F.when(F.col("level") == 0, F.lit("wheel")).otherwise(F.col("level").cast("string"))


def _bucket(bucket_ms: int) -> Column:
    return (F.col("due_ms") - F.pmod("due_ms", F.lit(bucket_ms))).alias("at_ms")


def _spread() -> list[Column]:
    quantiles = F.percentile_approx("lateness_ms", list(_QUANTILES.values()), _ACCURACY)
    return [
        F.count("*").alias("count"),
        *(F.try_element_at(quantiles, F.lit(place)).alias(name) for place, name in enumerate(_QUANTILES, start=1)),
        F.max("lateness_ms").alias("max_ms"),
    ]


def _picked(row: Row, *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}
