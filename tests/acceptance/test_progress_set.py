"""An operator sets the progress of a wheel partition while messages wait in it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from tests.support.command import timewheel
from tests.support.kafka import Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import timed, wheel_topic

pytestmark = [pytest.mark.kafka, pytest.mark.long]

COUNT = 100


@pytest.fixture
def out(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> Sequence[str]:
    """What is delivered; as many more wait, and the sidecar is stopped."""
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    out, waiting = ([f"{kind}{number}" for number in range(COUNT)] for kind in ("out", "waiting"))
    kafka.produce(timed(prefix, destination, name, ("TIMER_DELAY_MS", 500)) for name in out)
    kafka.produce(timed(prefix, destination, name, ("TIMER_DELAY_MS", 25_000)) for name in waiting)
    kafka.read([destination], COUNT)
    wait_until(lambda: sidecar.pending() == COUNT, "the others wait")
    assert sidecar.terminate()[0] == 0
    return out


def test_to_the_end_skips_what_waits_and_repeats_nothing_though_the_directory_is_kept(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, out: Sequence[str]
) -> None:
    needed = shown(kafka, prefix, sidecar)["needed"]
    assert needed <= COUNT  # where the first stands that waits, or as it was when it was last looked for
    assert shown(kafka, prefix, sidecar) == {"begin": 0, "needed": needed, "committed": 2 * COUNT, "end": 2 * COUNT}
    to_the_end(kafka, prefix, sidecar)
    assert shown(kafka, prefix, sidecar) == {"begin": 0, "needed": 2 * COUNT, "committed": 2 * COUNT, "end": 2 * COUNT}
    sidecar.start()
    assert sidecar.pending() == 0
    assert "wheel begins anew" in {event["event"] for event in sidecar.events()}
    new = [f"new{number}" for number in range(COUNT)]
    kafka.produce(timed(prefix, f"{prefix}orders", name, ("TIMER_DELAY_MS", 25_000)) for name in new)
    judge([*out, *new], kafka.read([f"{prefix}orders"], 2 * COUNT, 60)).assert_exactly_once()


def test_another_tool_that_sets_it_stops_the_partition_which_says_how_to_choose(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, out: Sequence[str]
) -> None:
    """As ``kafka-consumer-groups --reset-offsets --to-current`` does, it drops what is known of what waits."""
    group_id, end = str(sidecar.settings["group_id"]), 2 * COUNT

    def is_reset() -> bool:
        current = ConsumerGroupTopicPartitions(group_id, [TopicPartition(wheel_topic(prefix), 0, end)])
        try:
            answer = kafka.admin.alter_consumer_group_offsets([current])[group_id].result(10)
        except KafkaException:  # a member, for as long as its session lasts
            return False
        return answer.topic_partitions[0].error is None

    wait_until(is_reset, "progress is set once the member's session has ended", 30)
    sidecar.start(wait_ready=False)
    wait_until(lambda: "timewheel progress set" in sidecar.get("/readyz")[1], "its partition is stopped", 30)
    assert f"the committed offset {end} stands alone" in sidecar.get("/readyz")[1]
    assert sidecar.terminate()[0] == 0
    to_the_end(kafka, prefix, sidecar)
    sidecar.start()
    judge(out, kafka.read([f"{prefix}orders"], COUNT)).assert_exactly_once()


def test_what_retention_has_left_goes_on_as_it_was(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, out: Sequence[str], tmp_path: Path
) -> None:
    """With the directory lost, too, half of those that wait are nowhere any more."""
    gone, left = COUNT // 2, [f"waiting{number}" for number in range(COUNT // 2, COUNT)]
    (removed,) = kafka.admin.delete_records([TopicPartition(wheel_topic(prefix), 0, COUNT + gone)]).values()
    assert removed.result(30).low_watermark == COUNT + gone
    sidecar.settings["data_dir"] = tmp_path / "another"
    sidecar.start(wait_ready=False)
    wait_until(lambda: "retention has removed records" in sidecar.get("/readyz")[1], "its partition is stopped", 30)
    assert sidecar.terminate()[0] == 0
    is_set(kafka, prefix, sidecar, "remaining", "with what the log still holds")
    sidecar.start()
    judge([*out, *left], kafka.read([f"{prefix}orders"], COUNT + len(left), 60)).assert_exactly_once()
    assert sidecar.pending() == 0


def group(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> list[str]:
    return [
        *("--bootstrap-servers", kafka.bootstrap_servers, "--topic-prefix", prefix),
        *("--group-id", str(sidecar.settings["group_id"])),
    ]


def shown(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> dict[str, int]:
    """What ``progress show`` tells of the wheel's partition."""
    told = json.loads(timewheel("progress", "show", *group(kafka, prefix, sidecar), "--json").stdout)
    (place,) = (place for place in told["partitions"] if place["topic"] == wheel_topic(prefix))
    return {name: place[name] for name in ("begin", "needed", "committed", "end")}


def is_set(kafka: Kafka, prefix: str, sidecar: SidecarProcess, to: str, told: str) -> None:
    options = [*group(kafka, prefix, sidecar), "--topic", wheel_topic(prefix), "--partition", "0"]

    def chosen() -> bool:
        ended = timewheel("progress", "set", *options, "--to", to)
        return ended.returncode == 0 and told in ended.stdout

    wait_until(chosen, "progress is set once the member's session has ended", 30)


def to_the_end(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    is_set(kafka, prefix, sidecar, "end", "what waits before it is skipped")
