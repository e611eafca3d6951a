"""``timewheel progress``: committed progress, for the partitions that stopped because it is missing or out of range."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import typer
from confluent_kafka import TIMESTAMP_CREATE_TIME, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from rich.table import Table

from connectors.clients import KafkaClients
from connectors.clock import SystemClock
from connectors.contract import SCHEDULE_KINDS, Place, TopicKind
from connectors.dead_letters.cluster import Cluster
from connectors.dead_letters.errors import DeadLettersError, NotAnsweredError
from sidecar.cli.options import with_settings
from sidecar.cli.pager import paged
from sidecar.cli.progress_choice import (
    Chosen,
    Log,
    at_offset,
    due_after,
    first_undelivered,
    of_this_log,
    remaining,
    stamped_by_ms,
    stamps_of,
)
from sidecar.cli.times import time_ms
from sidecar.dispatch.wheel.progress import needed_from
from sidecar.errors import KafkaUnreachableError, TimewheelError, UsageError
from sidecar.kafka import topics
from sidecar.kafka.clients import committed_progress, outside_consumer
from sidecar.kafka.failure import SILENCE, failure
from sidecar.settings import Settings

_SETTINGS = ("bootstrap_servers", "kafka", "group_id", "topic_prefix", "levels")
_TIMEOUT_S = 10.0
_SCANNED_RECORDS = 5_000
_OFFSET = re.compile("[0-9]{1,18}")


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True,
        help="Committed progress: show it, or choose where a partition goes on.",
        epilog="Example: timewheel progress show",
    )
    group.command(epilog="Example: timewheel progress show --group-id timewheel")(show)
    group.command(
        name="set",
        epilog="Example: timewheel progress set --topic SCHEDULE_TOPIC_XXXX-3 --partition 0 --to beginning",
    )(set_progress)
    app.add_typer(group, name="progress")


@with_settings(only=_SETTINGS)
def show(settings: Settings, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show each schedule partition's committed offset beside its log.

    What lies before it is done on a level; on the wheel it may wait. Kafka has to keep all from the offset that is
    needed.
    """
    admin = topics.reach_kafka(settings)
    places = _schedule_places(settings, admin)
    committed = {(place.topic, place.partition): place for place in _committed(settings, places)}
    begins, ends = _offsets(admin, places, OffsetSpec.earliest()), _offsets(admin, places, OffsetSpec.latest())
    rows = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "needed": None if found is None else _needed_from(settings, found),
            "committed": None if found is None else found.offset,
            "begin": begins[place.topic, place.partition],
            "end": ends[place.topic, place.partition],
        }
        for place, found in ((place, committed.get((place.topic, place.partition))) for place in places)
    ]
    if as_json:
        typer.echo(json.dumps({"group_id": settings.group_id, "partitions": rows}, indent=2))
        return
    table = Table("topic", "partition", "log begins", "needed from", "committed", "log ends")
    for row in rows:
        shown = [str(row[name]) for name in ("topic", "partition", "begin")]
        shown += ["none" if row["committed"] is None else "not known" if row["needed"] is None else str(row["needed"])]
        shown += ["none" if row["committed"] is None else str(row["committed"]), str(row["end"])]
        table.add_row(*shown)
    with paged() as console:
        console.print(table)


@with_settings(only=_SETTINGS)
def set_progress(
    settings: Settings,
    topic: Annotated[str | None, typer.Option(help="The schedule topic, logical or physical name.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, max=2**31 - 1, help="Its partition.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every partition of every schedule topic.")] = False,
    to: Annotated[
        str | None,
        typer.Option(
            help="beginning (deliver all that is there), end (skip all), remaining (as before, with what retention "
            "has left), or an offset."
        ),
    ] = None,
    due_by: Annotated[
        str | None,
        typer.Option(
            "--due-after",
            metavar="TIME",
            help="A time (ISO 8601): deliver what was due after it, and nothing that was due before.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Commit where a partition goes on, or all of them. The sidecars of the group have to be stopped.

    With --due-after, what was due by that time counts as delivered, and everything else waits. Name a time up to which
    delivery is known to have worked: nothing is lost then, and only what was delivered after it comes again.
    """
    if every == (topic is not None or partition is not None) or (topic is None) != (partition is None):
        raise UsageError("say where with --topic and --partition, or with --all")
    if (to is None) == (due_by is None):
        raise UsageError("say where it goes on with one of --to and --due-after")
    if to is not None and to not in ("beginning", "end", "remaining") and not _OFFSET.fullmatch(to):
        raise UsageError(f"--to '{to}' is neither beginning, end, remaining nor an offset")
    now_ms = SystemClock().now_ms()
    due_by_ms = time_ms("--due-after", due_by)
    if due_by_ms is not None and not 0 <= due_by_ms <= now_ms:
        raise UsageError(f"--due-after '{due_by}' has to be a time in the past, up to which messages were delivered")
    admin = topics.reach_kafka(settings)
    places = _schedule_places(settings, admin) if topic is None else [_place(settings, admin, topic, partition or 0)]
    chosen = _chosen(settings, admin, places, to, due_by_ms, now_ms)
    _commit(settings, admin, chosen)
    rows = [{"topic": place[0], "partition": place[1], "offset": choice.offset} for place, choice in chosen.items()]
    if as_json:
        typer.echo(json.dumps(rows if every else rows[0]))
        return
    for place, choice in chosen.items():
        typer.echo(f"{place[0]}-{place[1]} {choice.words}")


def _chosen(
    settings: Settings,
    admin: AdminClient,
    places: list[TopicPartition],
    to: str | None,
    due_by_ms: int | None,
    now_ms: int,
) -> dict[Place, Chosen]:
    names = settings.topic_names
    begins, ends = _offsets(admin, places, OffsetSpec.earliest()), _offsets(admin, places, OffsetSpec.latest())
    logs = {place: Log(begins[place], ends[place]) for place in begins}
    if to is not None and to != "remaining":
        return {place: at_offset(names, place, _named(log, to)) for place, log in logs.items()}
    committed = {(place.topic, place.partition): place for place in _committed(settings, places)}
    if due_by_ms is None:
        return {place: remaining(names, place, log, committed.get(place)) for place, log in logs.items()}
    seen = _seen(settings, logs, due_by_ms, now_ms)
    chosen = {}
    for place, log in logs.items():
        metadata = of_this_log(committed[place].metadata, seen.topic_ids[place[0]]) if place in committed else ""
        is_copied, undelivered = place in seen.copied, seen.undelivered[place]
        chosen[place] = due_after(names, place, log, undelivered, metadata, due_by_ms, now_ms, is_copied=is_copied)
    return chosen


def _named(log: Log, to: str) -> int:
    return {"beginning": log.begin_offset, "end": log.end_offset}[to] if to in ("beginning", "end") else int(to)


def _place(settings: Settings, admin: AdminClient, topic: str, partition: int) -> TopicPartition:
    names = settings.topic_names
    place = TopicPartition(names.physical(topic), partition)
    if names.kind(place.topic) not in SCHEDULE_KINDS:
        raise UsageError(
            f"{place.topic} is no schedule topic of this sidecar, whose wheel topic is {names.wheel}; see topic_prefix "
            "and 'timewheel progress show'"
        )
    found = admin.list_topics(timeout=_TIMEOUT_S).topics.get(place.topic)
    if found is None or partition not in found.partitions:
        raise UsageError(
            f"there is no schedule partition {place.topic}-{partition} that this login may see; "
            "'timewheel progress show' lists them"
        )
    return place


def _schedule_places(settings: Settings, admin: AdminClient) -> list[TopicPartition]:
    known = admin.list_topics(timeout=_TIMEOUT_S).topics
    return [
        TopicPartition(topic, partition)
        for topic in settings.topic_names.schedule_topics(settings.levels)
        if topic in known
        for partition in known[topic].partitions
    ]


class _Seen(NamedTuple):
    """What the logs tell."""

    topic_ids: dict[str, str]
    undelivered: dict[Place, int | None]
    """The `first_undelivered` of each partition."""
    copied: set[Place]
    """Partitions of the wheel that may be copies of another cluster's: a producer has stamped their first record."""


def _seen(settings: Settings, places: Mapping[Place, Log], due_by_ms: int, now_ms: int) -> _Seen:
    """What was stamped after its time is looked through, in each partition."""
    names, until_ms = settings.topic_names, now_ms + settings.max_clock_skew
    found: dict[Place, int | None] = dict.fromkeys(places)
    copied: set[Place] = set()
    if others := {topic for topic, _ in places} - set(names.schedule_topics(settings.levels)):
        raise UsageError(f"{', '.join(others)}: no schedule topic of these topic_prefix and levels has this name")
    try:
        cluster = Cluster({"bootstrap.servers": settings.bootstrap_servers, **settings.kafka}, KafkaClients())
        asked = sorted({topic for topic, _ in places})
        topic_ids, ends = cluster.topic_ids(asked), cluster.ends(asked)
        for place in places:
            if names.kind(place[0]) is TopicKind.WHEEL and _is_copied(
                cluster, place, places[place].begin_offset, ends[place][1]
            ):
                copied.add(place)
            by_ms = stamped_by_ms(names, settings.levels, place[0], due_by_ms)
            later = cluster.first_since(place, by_ms + 1)
            if later is not None:
                with cluster.scan({place: (later, ends[place][1])}, lambda: _SCANNED_RECORDS) as batches:
                    stamps = (stamp for batch in batches for stamp in stamps_of(batch))
                    found[place] = first_undelivered(names, place[0], stamps, by_ms, until_ms)
    except NotAnsweredError as error:
        raise KafkaUnreachableError(f"the schedule topics cannot be read: {error}") from error
    except DeadLettersError as error:
        raise TimewheelError(f"the schedule topics cannot be read: {error}") from error
    return _Seen(topic_ids, found, copied)


def _is_copied(cluster: Cluster, place: Place, begin_offset: int, end_offset: int) -> bool:
    """Whether a producer has stamped the first record of a log: a mirror is one."""
    with cluster.scan({place: (begin_offset, end_offset)}, lambda: 1) as batches:
        first = next(batches, [])
    return bool(first) and first[0].timestamp()[0] == TIMESTAMP_CREATE_TIME


def _commit(settings: Settings, admin: AdminClient, chosen: dict[Place, Chosen]) -> None:
    """Raises the error that ends the command."""
    marked = [TopicPartition(*place, choice.offset, choice.metadata) for place, choice in chosen.items()]
    try:
        group = ConsumerGroupTopicPartitions(settings.group_id, marked)
        answer = admin.alter_consumer_group_offsets([group], request_timeout=_TIMEOUT_S)[settings.group_id].result()
        refused = [(place, place.error) for place in answer.topic_partitions if place.error is not None]
    except KafkaException as exception:
        refused = [(place, exception.args[0]) for place in marked]
    for place, error in refused:
        remedy = (
            "whether it is set all the same is not known: run the command again once Kafka answers"
            if error.code() in SILENCE
            else "stop every sidecar of the group and wait for the session timeout (10 s)"
        )
        raise failure(error, f"progress of {place.topic}-{place.partition} cannot be set: {error.str()}; {remedy}")


def _needed_from(settings: Settings, found: TopicPartition) -> int | None:
    """The lowest offset whose record is still needed; None where nobody knows."""
    is_wheel = settings.topic_names.kind(found.topic) is TopicKind.WHEEL
    return needed_from(found.metadata or "", found.offset) if is_wheel else found.offset


def _committed(settings: Settings, places: list[TopicPartition]) -> list[TopicPartition]:
    try:
        with outside_consumer(settings, role="progress") as consumer:
            return committed_progress(consumer, places, _TIMEOUT_S)
    except KafkaException as error:
        kafka = error.args[0]
        raise failure(kafka, f"the progress of group '{settings.group_id}' cannot be read: {kafka.str()}") from error


def _offsets(admin: AdminClient, places: list[TopicPartition], spec: OffsetSpec) -> dict[Place, int]:
    try:
        answers = admin.list_offsets(dict.fromkeys(places, spec), request_timeout=_TIMEOUT_S)
        return {(place.topic, place.partition): future.result().offset for place, future in answers.items()}
    except KafkaException as error:
        raise failure(error.args[0], f"the logs' offsets cannot be read: {error.args[0].str()}") from error
