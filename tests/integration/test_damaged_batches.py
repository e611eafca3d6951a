"""A batch that is damaged on its broker's disk: what is behind it waits, all else goes on, and it is told."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.contract import TopicNames
from connectors.dead_letters import DamagedError, DeadLetters
from connectors.embedded import EmbeddedKafka
from tests.support.kafka import Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.long]

LEVEL = "SCHEDULE_TOPIC_XXXX-1"
LZ4_FRAME = b"\x04\x22\x4d\x18"
AT_BYTES, OF_BYTES = 12, 12
"""What is overwritten of a compressed batch: librdkafka cannot read it, whatever else is behind it."""


class Disk:
    """A broker and its files."""

    def __init__(self, kafka: Kafka, directory: Path) -> None:
        self.kafka = kafka
        self._directory = directory

    def put(self, topic: str, partition: int, *values: str, headers: dict[str, str], codec: str = "none") -> None:
        producer = self.kafka.producer(compression_type=codec)
        for value in values:
            producer.produce(topic, value, b"k", partition, headers=dict(headers))
        assert producer.flush(30) == 0

    def damage(self, topic: str, partition: int) -> bytes:
        """The compressed batch of a partition; returns what `mend` puts back."""
        path = self._segment(topic, partition)
        whole = path.read_bytes()
        self._write(topic, partition, b"\xff" * OF_BYTES)
        return whole[self._place(whole) :][:OF_BYTES]

    def mend(self, topic: str, partition: int, whole: bytes) -> None:
        self._write(topic, partition, whole)

    def _write(self, topic: str, partition: int, what: bytes) -> None:
        path = self._segment(topic, partition)
        with path.open("r+b") as segment:
            segment.seek(self._place(path.read_bytes()))
            segment.write(what)

    def _place(self, segment: bytes) -> int:
        return segment.index(LZ4_FRAME) + AT_BYTES

    def _segment(self, topic: str, partition: int) -> Path:
        return next(self._directory.rglob(f"{topic}-{partition}/00000000000000000000.log"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with EmbeddedKafka(data_dir=tmp_path / "kafka") as broker:
        yield Disk(Kafka(broker.bootstrap_servers), tmp_path / "kafka")


def test_a_damaged_batch_of_a_level_holds_up_its_partition_alone_and_is_told_until_it_is_mended(
    disk: Disk, tmp_path: Path
) -> None:
    kafka, headers = disk.kafka, {"REAL_TOPIC": "orders"}
    kafka.create_topic("orders")
    kafka.create_topic(LEVEL, 2, message_timestamp_type="LogAppendTime")
    disk.put(LEVEL, 0, "before", headers=headers)
    disk.put(LEVEL, 0, "damaged " * 400, headers=headers, codec="lz4")
    disk.put(LEVEL, 0, "behind", headers=headers)
    whole = disk.damage(LEVEL, 0)
    with SidecarProcess(kafka.bootstrap_servers, tmp_path, levels="1s", partitions=2) as sidecar:

        def told() -> bool:
            verdict = json.loads(sidecar.get("/readyz")[1])
            return verdict["state"] == "stuck" and f"{LEVEL}-0: cannot be read from offset 1 on" in verdict["words"]

        wait_until(told, "the damage is told")
        disk.put(LEVEL, 1, "another", headers=headers)
        assert {record.value for record in kafka.read(["orders"], 2)} == {b"before", b"another"}
        assert told(), "while others are read"
        assert sidecar.metric("timewheel_paused_partitions", reason="other") == 1
        (line, *_) = [event for event in sidecar.events() if event["event"] == "batch cannot be read"]
        assert (line["partition"], line["offset"]) == (f"{LEVEL}-0", 1)
        assert "kafka-leader-election.sh" in line["operator_action"]
        disk.mend(LEVEL, 0, whole)
        values = [record.value[:7] for record in kafka.read(["orders"], 4)]
        assert sorted(values) == [b"another", b"before", b"behind", b"damaged"]
        wait_until(lambda: not told(), "it is over")


def test_letters_before_a_damaged_batch_and_of_other_partitions_are_redriven(disk: Disk) -> None:
    kafka, topic = disk.kafka, "DLQ-billing"
    headers = {"CONSUMER_GROUP": "billing", "RETRY_TOPIC": "orders", "RECONSUME_TIME": "17"}
    kafka.create_topic("orders")
    kafka.create_topic(topic, 2)
    disk.put(topic, 0, "before", headers=headers)
    disk.put(topic, 0, "damaged " * 400, headers=headers, codec="lz4")
    disk.put(topic, 0, "behind", headers=headers)
    disk.put(topic, 1, "another", headers=headers)
    whole = disk.damage(topic, 0)
    letters = DeadLetters({"bootstrap.servers": kafka.bootstrap_servers}, names=TopicNames())
    report = letters.redrive("billing")
    assert report.moved == {"orders": 2}
    assert report.stayed.total() == 2
    assert [words.partition(":")[0] for words in report.stayed] == [f"{topic}-0 cannot be read from offset 1 on"]
    for ask in (letters.browse, letters.summary):
        with pytest.raises(DamagedError, match=r"DLQ-billing-0 cannot be read from offset 1 on.*kafka-leader-election"):
            ask("billing")
    disk.mend(topic, 0, whole)
    assert letters.redrive("billing").moved == {"orders": 2}
    values = sorted(record.value[:7] for record in kafka.read(["orders"], 4))
    assert values == [b"another", b"before", b"behind", b"damaged"]
