"""What Kafka is asked for before a partition is read."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from connectors.testing import InMemoryKafka, ManualClock
from sidecar.errors import KafkaUnreachableError
from sidecar.intake.progress import Start
from sidecar.intake.start_finder import KafkaStartFinder

TOPIC = "SCHEDULE_TOPIC_XXXX-1"
UNSTABLE = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)


class Answer:
    """What `Consumer.committed` gives for a partition; a `TopicPartition` cannot be made with an error."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self.topic, self.partition, self.offset, self.metadata, self.error = TOPIC, 0, offset, "", error


class Group:
    """A consumer whose group has committed something; Kafka says so at last."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)

    def committed(self, _asked: Sequence[TopicPartition], timeout: float) -> list[Answer]:
        assert timeout > 0
        return [self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]]


def finder(*answers: Answer) -> KafkaStartFinder:
    kafka = InMemoryKafka(ManualClock())
    kafka.create_topic(TOPIC)
    producer = kafka.producer({})
    for number in range(10):
        producer.produce(TOPIC, b"%d" % number)
    while producer.flush(1):
        pass
    admin: Any = kafka.process("sidecar").admin({})
    return KafkaStartFinder(cast(Consumer, Group(*answers)), admin, ManualClock())


def test_progress_that_is_not_known_of_a_partition_is_not_taken_for_none() -> None:
    """The partition would be read from its beginning, and all that is in it sent again."""
    found = finder(Answer(-1001, UNSTABLE), Answer(7)).find([(TOPIC, 0)])
    assert found == {(TOPIC, 0): Start(7, "", 10)}


def test_progress_that_does_not_become_known_ends_the_attempt() -> None:
    with pytest.raises(KafkaUnreachableError, match="committed progress is not to be had"):
        finder(Answer(-1001, UNSTABLE)).find([(TOPIC, 0)])
