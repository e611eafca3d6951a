"""The name of a static member (``group.instance.id``): another one once there is more to read, or a topic is another.

Kafka gives a member that comes back under its name what it had before, and nobody looks whether there is more by then:
the retry topic that the sidecar has made meanwhile, a topic more in the code, a partition more. Nobody would read that.
So the name that the user gives ends in a checksum of the topics, their ids and the number of their partitions.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import KafkaException, TopicCollection

from connectors.kafka_errors import REFUSALS

_ASKED_WITHIN_S = 5.0

Seen = list[tuple[str, str, int]]
"""Topic, id and number of partitions; "" and 0 where there is no such topic, or none that may be read."""


def look(admin: Any, topics: Sequence[str]) -> Seen:
    """What there is to read of topics by now.

    Raises:
        KafkaException: Kafka does not answer.
    """
    answers = admin.describe_topics(TopicCollection(list(topics)), request_timeout=_ASKED_WITHIN_S)
    seen = []
    for topic, answer in sorted(answers.items()):
        try:
            described = answer.result()
        except KafkaException as exception:
            if exception.args[0].code() not in REFUSALS:
                raise
            seen.append((topic, "", 0))
        else:
            seen.append((topic, str(described.topic_id), len(described.partitions)))
    return seen


def name_for(name: str, seen: Iterable[tuple[object, ...]]) -> str:
    """Of a member that reads what was seen: of each topic that there is, its name, its id and its number of partitions.

    >>> name_for("till-1", [("payments", "a", 3)]) == name_for("till-1", [("payments", "a", 4)])
    False
    """
    return f"{name}-{zlib.crc32(repr(sorted(seen)).encode()):08x}"
