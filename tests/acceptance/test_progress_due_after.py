"""Progress is lost, or the topics are another cluster's copies; the operator knows by when delivery worked."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from tests.support.command import timewheel
from tests.support.kafka import Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import Produced, cancel, now_ms, replacement, timed, wheel_topic

pytestmark = [pytest.mark.kafka, pytest.mark.long]

COUNT = 100
LEVELS = "1s 25s"
WAITS_MS = 25_000


def level(prefix: str, number: int, destination: str, name: str) -> Produced:
    headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", name.encode())]
    return f"{prefix}SCHEDULE_TOPIC_XXXX-{number}", name.encode(), b"v", list(headers)


def names(kind: str) -> list[str]:
    return [f"{kind}{number}" for number in range(COUNT)]


def half_delivered(kafka: Kafka, prefix: str, sidecar: SidecarProcess, destination: str) -> int:
    """Of wheel and levels one half is out, the other waits, and the sidecar is stopped; a time between the two."""
    sidecar.settings["levels"] = LEVELS
    sidecar.start()
    kafka.produce(timed(prefix, destination, name, ("TIMER_DELAY_MS", 500)) for name in names("wheel-out"))
    kafka.produce(timed(prefix, destination, name, ("TIMER_DELAY_MS", WAITS_MS)) for name in names("wheel-waits"))
    kafka.produce(timed(prefix, destination, name, ("TIMER_DELAY_MS", WAITS_MS)) for name in names("cancelled"))
    kafka.produce(level(prefix, 1, destination, name) for name in names("level-out"))
    kafka.produce(level(prefix, 2, destination, name) for name in names("level-waits"))
    kafka.produce(cancel(prefix, name) for name in names("cancelled"))
    for kind, delay_ms in (("replaced-out", 500), ("replaced-waits", WAITS_MS)):
        when = "TIMER_DELAY_MS", delay_ms
        kafka.produce(timed(prefix, destination, name, ("TIMER_DELAY_MS", 2 * WAITS_MS)) for name in names(kind))
        kafka.produce(replacement(prefix, destination, name, when, value=b"new") for name in names(kind))
    kafka.read([destination], 3 * COUNT)
    wait_until(lambda: sidecar.pending() == 2 * COUNT, "cancels and replacements are carried out")
    assert sidecar.terminate()[0] == 0
    return now_ms()


def set_due_after(kafka: Kafka, prefix: str, sidecar: SidecarProcess, at_ms: int) -> None:
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    group_id = str(sidecar.settings["group_id"])
    options = ["--bootstrap-servers", kafka.bootstrap_servers, "--topic-prefix", prefix, "--group-id", group_id]

    def chosen() -> bool:
        ended = timewheel("progress", "set", *options, "--levels", LEVELS, "--all", "--due-after", at, "--json")
        if ended.returncode == 0:
            places = {place["topic"] for place in json.loads(ended.stdout)}
            assert {wheel_topic(prefix), f"{prefix}SCHEDULE_TOPIC_XXXX-1"} < places
        return ended.returncode == 0

    wait_until(chosen, "progress is set once no sidecar is a member", 30)


def progress(kafka: Kafka, group_id: str) -> list[TopicPartition]:
    """What a group has committed."""
    asked = kafka.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])
    return list(asked[group_id].result(10).topic_partitions)


def translate_progress(kafka: Kafka, prefix: str, group_id: str, other: str) -> None:
    """As MirrorMaker 2 does where it is not told to leave the group out: the metadata remain those of the originals."""
    translated = [
        TopicPartition(place.topic.replace(prefix, other, 1), place.partition, place.offset // 2, place.metadata)
        for place in progress(kafka, group_id)
    ]
    of_copies = [place for place in translated if place.topic in kafka.topics()]
    asked = kafka.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(f"{group_id}.other", of_copies)])
    asked[f"{group_id}.other"].result(10)


EXPECTED = [
    *(name for kind in ("wheel", "level", "replaced") for name in names(f"{kind}-out")),
    *(name for kind in ("wheel", "level", "replaced") for name in names(f"{kind}-waits")),
]


@pytest.mark.parametrize("is_disk_kept", [True, False])
def test_a_group_that_has_lost_its_progress_sends_what_was_due_since_and_nothing_else(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, tmp_path: Path, is_disk_kept: bool
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    stopped_ms = half_delivered(kafka, prefix, sidecar, destination)

    def is_forgotten() -> bool:
        group_id = str(sidecar.settings["group_id"])
        try:
            kafka.admin.delete_consumer_groups([group_id])[group_id].result(10)
        except KafkaException:  # a member, for as long as its session lasts
            return False
        return True

    wait_until(is_forgotten, "the group is deleted once its member's session has ended", 30)
    # Nobody has read this one, though it was due long before.
    kafka.produce([timed(prefix, destination, "past", ("TIMER_DELIVER_MS", stopped_ms - 60_000))])
    set_due_after(kafka, prefix, sidecar, stopped_ms)
    if not is_disk_kept:
        sidecar.settings["data_dir"] = tmp_path / "another"
    sidecar.start()
    judge([*EXPECTED, "past"], kafka.read([destination], len(EXPECTED) + 1, 60)).assert_exactly_once()
    assert sidecar.pending() == 0


def test_copies_of_the_schedule_topics_are_gone_on_with_where_the_others_sidecar_had_come(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, tmp_path: Path
) -> None:
    """As MirrorMaker 2 copies them: same partitions, headers and timestamps, other offsets, and no progress."""
    destination = kafka.create_topic(f"{prefix}orders")
    stopped_ms = half_delivered(kafka, prefix, sidecar, destination)
    other = f"{prefix}other."
    group_id = str(sidecar.settings["group_id"])
    (tmp_path / "other").mkdir()
    copied = SidecarProcess(
        kafka.bootstrap_servers, tmp_path / "other", topic_prefix=other, group_id=f"{group_id}.other", levels=LEVELS
    )
    try:
        for queue in ("1", "2", "wheel"):
            partitions = len(kafka.ends(f"{prefix}SCHEDULE_TOPIC_XXXX-{queue}"))
            kafka.create_topic(f"{other}SCHEDULE_TOPIC_XXXX-{queue}", partitions, message_timestamp_type="CreateTime")
        producer = kafka.producer()
        producer.produce(wheel_topic(other), b"of no use", partition=0, timestamp=1)  # shifts the offsets
        for queue in ("1", "2", "wheel"):
            for record in kafka.read([f"{prefix}SCHEDULE_TOPIC_XXXX-{queue}"], COUNT):
                topic = record.topic.replace(prefix, other, 1)
                producer.produce(
                    *(topic, record.value, record.key, record.partition),
                    timestamp=record.timestamp_ms,
                    headers=record.headers,
                )
        assert producer.flush(30) == 0
        translate_progress(kafka, prefix, group_id, other)
        set_due_after(kafka, other, copied, stopped_ms)
        told = {place.topic: json.loads(place.metadata or "") for place in progress(kafka, f"{group_id}.other")}
        assert told[wheel_topic(other)]["copied"]
        assert not any("t" in metadata for metadata in told.values()), "nothing is left of the other topics' progress"
        copied.start()
        judge(EXPECTED, kafka.read([destination], len(EXPECTED), 60)).assert_exactly_once()
        assert copied.pending() == 0
    finally:
        copied.__exit__(None, None, None)
