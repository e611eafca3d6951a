"""``timewheel progress``: committed progress, for the partitions that stopped because it is missing or out of range."""

import json
import re
from typing import Annotated

import typer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from rich.table import Table

from connectors.contract import Place, TopicKind
from sidecar.cli.options import with_settings
from sidecar.cli.pager import paged
from sidecar.dispatch.wheel.progress import needed_from
from sidecar.errors import UsageError
from sidecar.intake.progress import SET_BY_OPERATOR
from sidecar.kafka import topics
from sidecar.kafka.clients import committed_progress, outside_consumer
from sidecar.kafka.failure import failure
from sidecar.settings import Settings

_SETTINGS = ("bootstrap_servers", "kafka", "group_id", "topic_prefix", "levels")
_TIMEOUT_S = 10.0
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
    known = admin.list_topics(timeout=_TIMEOUT_S).topics
    places = [
        TopicPartition(topic, partition)
        for topic in settings.topic_names.schedule_topics(settings.levels)
        if topic in known
        for partition in known[topic].partitions
    ]
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
    topic: Annotated[str, typer.Option(help="The schedule topic, logical or physical name.")],
    partition: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Its partition.")],
    to: Annotated[str, typer.Option(help="beginning (deliver all that is there), end (skip all), or an offset.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Commit where a partition goes on. The sidecars of the group have to be stopped."""
    if to not in ("beginning", "end") and not _OFFSET.fullmatch(to):
        raise UsageError(f"--to '{to}' is neither beginning, end nor an offset")
    admin = topics.reach_kafka(settings)
    place = TopicPartition(settings.topic_names.physical(topic), partition)
    found = admin.list_topics(timeout=_TIMEOUT_S).topics.get(place.topic)
    if found is None or partition not in found.partitions:
        raise UsageError(
            f"there is no schedule partition {place.topic}-{partition} that this login may see; "
            "'timewheel progress show' lists them"
        )
    match to:
        case "beginning":
            offset = _offsets(admin, [place], OffsetSpec.earliest())[place.topic, partition]
        case "end":
            offset = _offsets(admin, [place], OffsetSpec.latest())[place.topic, partition]
        case _:
            offset = int(to)
    marked = TopicPartition(place.topic, partition, offset, SET_BY_OPERATOR)
    chosen = ConsumerGroupTopicPartitions(settings.group_id, [marked])
    try:
        answer = admin.alter_consumer_group_offsets([chosen])[settings.group_id].result(30)
        error = answer.topic_partitions[0].error
    except KafkaException as exception:
        error = exception.args[0]
    if error is not None:
        raise failure(
            error,
            f"progress of {place.topic}-{partition} cannot be set: {error.str()}; "
            "stop every sidecar of the group and wait for the session timeout (10 s)",
        )
    if as_json:
        typer.echo(json.dumps({"topic": place.topic, "partition": partition, "offset": offset}))
    else:
        is_wheel = settings.topic_names.kind(place.topic) is TopicKind.WHEEL
        skipped = "; what waits before it is skipped, what was delivered behind it comes again" if is_wheel else ""
        typer.echo(f"{place.topic}-{partition} goes on at offset {offset}{skipped}")


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
