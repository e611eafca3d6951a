"""What there is to read: topics, and for each partition the offsets that a run reads, asked of Kafka before Spark is.

Spark schedules a task for every partition it is given, empty or not; of the many partitions of retry topics most are
empty. So they are left out, and what is read is fixed in one moment.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ListOffsetsResultInfo, OffsetSpec, ResourceType

from connectors.client_options import for_producer
from connectors.clock import Deadline, SystemClock
from connectors.contract import Place, TopicKind, TopicNames, is_internal_topic
from connectors.kafka import NO_TOPIC_IDS
from connectors.kafka_errors import PASSING
from spark.errors import NotAnsweredError
from spark.kafka_options import for_librdkafka

_TIMEOUT_S = 10.0
_ENDS_SOON_S = 2.0
_ASKED_AGAIN_S = 0.1
_BEYOND_SPARK_MS = (2**63 - 1) // 1_000 + 1
"""The first time that Spark, which counts microseconds, cannot hold; what fails then is the whole of a query."""
UNREADABLE = "after the year 294247 (in nanoseconds?), which Spark cannot hold"
"""How such a timestamp is told."""
_log = logging.getLogger("librdkafka")

T = TypeVar("T")


class Range(NamedTuple):
    """Offsets of one partition: from ``begin`` to before ``end``."""

    begin: int
    end: int


class Cluster:
    """Asks Kafka.

    Args:
        options: librdkafka's, ``bootstrap.servers`` among them.

    Every method raises NotAnsweredError when Kafka does not answer.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        config: dict[str, Any] = {**for_producer(for_librdkafka(options)), "logger": _log}
        self._admin = AdminClient(config)

    def topics(self) -> dict[str, list[int]]:
        """All topics with their partitions, but for Kafka's own, where nothing is delivered."""
        try:
            found = self._admin.list_topics(timeout=_TIMEOUT_S).topics
        except KafkaException as error:
            raise NotAnsweredError(
                f"no answer from Kafka at {self.options.get('bootstrap.servers')} within {_TIMEOUT_S:.0f} s "
                f"({error.args[0].str()}); check bootstrap_servers, and the security settings under kafka"
            ) from error
        return {name: sorted(topic.partitions) for name, topic in found.items() if not is_internal_topic(name)}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """What Kafka calls them: a topic that is made anew has another id. Less those that it does not tell of."""
        wanted = sorted(topics)
        if not wanted:
            return {}
        answers = self._admin.describe_topics(TopicCollection(wanted), request_timeout=_TIMEOUT_S)
        told = {topic: _told(answer) for topic, answer in answers.items()}
        found = {topic: str(description.topic_id) for topic, description in told.items() if description}
        return {topic: topic_id for topic, topic_id in found.items() if topic_id != NO_TOPIC_IDS}

    def compacted(self, topics: Iterable[str]) -> list[str]:
        """Those of them that keep one record of each key; not those whose settings Kafka does not tell."""
        resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
        if not resources:
            return []
        answers = self._admin.describe_configs(list(resources.values()), request_timeout=_TIMEOUT_S)
        told = {topic: _told(answers[resource]) for topic, resource in resources.items()}
        return [topic for topic, settings in told.items() if settings and "compact" in settings["cleanup.policy"].value]

    def ranges(self, places: Iterable[Place], since_ms: int | None = None) -> dict[Place, Range]:
        """What is committed of these partitions by now, from a time on; only those that hold something."""
        wanted = [TopicPartition(topic, partition) for topic, partition in places]
        if not wanted:
            return {}
        # Kafka has no record of before 1970, and takes such a time for something else.
        begin = OffsetSpec.earliest() if since_ms is None or since_ms < 0 else OffsetSpec.for_timestamp(since_ms)
        ends = self._offsets(wanted, OffsetSpec.latest())
        begins = self._offsets(wanted, begin)
        found = {}
        for place, end in ends.items():
            first = begins[place] if begins[place] >= 0 else end  # -1: nothing is as young as that
            if first < end:
                found[place] = Range(first, end)
        return found

    def unreadable(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where in these partitions the first record is whose timestamp Spark cannot hold, of those that have one."""
        wanted = [TopicPartition(topic, partition) for topic, partition in places]
        firsts = self._offsets(wanted, OffsetSpec.for_timestamp(_BEYOND_SPARK_MS)) if wanted else {}
        return {place: first for place, first in firsts.items() if first >= 0}

    def written(self, places: Iterable[Place]) -> dict[Place, int]:
        """The ends of those of these partitions that hold something, with what is not committed yet."""
        wanted = [TopicPartition(topic, partition) for topic, partition in places]
        if not wanted:
            return {}
        listed = self._listed(wanted, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        begins = self._offsets(wanted, OffsetSpec.earliest())
        return {place: found.offset for place, found in listed.items() if begins[place] < found.offset}

    def held_back(self, written: Mapping[Place, int]) -> dict[Place, int]:
        """Of partitions in which a transaction has been open since that was `written`, where it begins.

        What is behind it nobody reads who reads what is committed. So it is asked before that is read, for it may end
        meanwhile; and those that are about to end, as there always are, are waited for.
        """
        wanted = [TopicPartition(topic, partition) for topic, partition in written]
        deadline = Deadline(SystemClock(), _ENDS_SOON_S)
        while True:
            ends = self._offsets(wanted, OffsetSpec.latest()) if wanted else {}
            held = {place: end for place, end in ends.items() if end < written[place]}
            if not held or deadline.is_over:
                return held
            time.sleep(_ASKED_AGAIN_S)

    def begins_ms(self, topics: Iterable[str]) -> dict[str, int | None]:
        """The time of the first record that was ever written to a topic, None: there is none.

        Topics that do not exist, or have lost records, are left out.
        """
        existing = self.topics()
        wanted = [TopicPartition(topic, number) for topic in topics for number in existing.get(topic, [])]
        if not wanted:
            return {}
        firsts = self._listed(wanted, OffsetSpec.for_timestamp(0), IsolationLevel.READ_UNCOMMITTED)
        begins = self._offsets(wanted, OffsetSpec.earliest())
        found: dict[str, int | None] = {}
        for topic in {place.topic for place in wanted}:
            places = [(topic, number) for number in existing[topic]]
            if all(begins[place] == 0 for place in places):
                times = [firsts[place].timestamp for place in places if firsts[place].offset >= 0]
                found[topic] = min(times, default=None)
        return found

    def kept_since_ms(self, places: Iterable[Place], empty_ms: int) -> dict[str, int]:
        """Of topics that have lost their first records, since when each partition still has all.

        Args:
            empty_ms: since when a partition has all that has lost all of them.
        """
        wanted = [TopicPartition(topic, partition) for topic, partition in places]
        firsts = self._offsets(wanted, OffsetSpec.earliest()) if wanted else {}
        cut = [TopicPartition(*place) for place, first in firsts.items() if first > 0]
        oldest = self._listed(cut, OffsetSpec.for_timestamp(0)) if cut else {}
        since: dict[str, int] = {}
        for (topic, _), first in oldest.items():
            at_ms = first.timestamp if first.offset >= 0 else empty_ms  # -1: there is nothing left
            since[topic] = max(at_ms, since.get(topic, at_ms))
        return since

    def _offsets(self, places: list[TopicPartition], spec: OffsetSpec) -> dict[Place, int]:
        return {place: found.offset for place, found in self._listed(places, spec).items()}

    def _listed(
        self,
        places: list[TopicPartition],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[Place, ListOffsetsResultInfo]:
        try:
            asked = self._admin.list_offsets(
                dict.fromkeys(places, spec),
                isolation_level=isolation,
                request_timeout=_TIMEOUT_S,
            )
            return {(place.topic, place.partition): future.result() for place, future in asked.items()}
        except KafkaException as error:
            raise NotAnsweredError(f"Kafka does not tell of its offsets: {error.args[0].str()}") from error


def _told(answer: Future[T]) -> T | None:
    """What Kafka tells of a topic; None: it is not there, or not to be seen. Raises NotAnsweredError."""
    try:
        return answer.result()
    except KafkaException as error:
        if error.args[0].code() in PASSING:
            raise NotAnsweredError(f"Kafka does not tell of its topics: {error.args[0].str()}") from error
        return None


def audited_topics(existing: Iterable[str], names: TopicNames, levels: int) -> list[str]:
    """The topics of ours: schedule topics of the level table, retry and dead-letter topics."""
    kinds = {TopicKind.WHEEL, TopicKind.SEND_BACK, TopicKind.RETRY, TopicKind.DEAD_LETTER}

    def is_ours(topic: str) -> bool:
        level = names.level_of(topic)
        return names.kind(topic) in kinds if level is None else 1 <= level <= levels

    return sorted(filter(is_ours, existing))
