"""Finds where reading each assigned partition begins, from what Kafka says of progress and the logs' ranges.

A partition without a leader gets no answer, and a question about several none for any of them: those that have none are
left out.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ListOffsetsResultInfo, OffsetSpec, ResourceType

from connectors.contract import Place
from sidecar.clock import Clock
from sidecar.errors import KafkaUnreachableError, StoppedWaitingError
from sidecar.intake.progress import LogRange, Mark, NoLeader, Start, Verdict, decide_start
from sidecar.kafka.topic_admin import TopicsSeen

DEFAULT_OFFSETS_RETENTION_MS = 7 * 86_400_000
_TIMEOUT_S = 5.0
_ATTEMPTS = 12
_HELD_UP = "it is asked again; if that lasts, 'kafka-transactions.sh find-hanging' names what holds it up"

T = TypeVar("T")

log = structlog.get_logger("timewheel.intake")


class Found(NamedTuple):
    """A place in a log."""

    offset: int
    timestamp_ms: int | None
    leader_epoch: int
    """-1 where Kafka does not say."""


_NOT_FOUND = Found(-1, None, -1)


class StartFinder(Protocol):
    """Finds where reading begins."""

    def find(self, places: Sequence[Place]) -> dict[Place, Verdict]:
        """A verdict per partition. Blocks until Kafka answers."""


class KafkaStartFinder:
    """Verdicts on where to begin, from a consumer of the sidecar's group and an admin client.

    Args:
        look: how some topics are; raises KafkaException when Kafka does not answer.
        is_stopping: asked after each question that was not answered.
        tell: called with a sentence for operators whenever committed progress cannot be read, and what to do about it.
    """

    def __init__(
        self,
        consumer: Consumer,
        admin: AdminClient,
        look: Callable[[Collection[str]], TopicsSeen],
        clock: Clock,
        is_stopping: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda _words: None,
    ) -> None:
        self._tell = tell
        self._consumer = consumer
        self._admin = admin
        self._look = look
        self._topic_ids: dict[str, str] = {}
        self._is_stopping = is_stopping
        self._clock = clock

    def find(self, places: Sequence[Place]) -> dict[Place, Verdict]:
        """A verdict per partition.

        Raises:
            KafkaUnreachableError: Kafka has not answered for a minute, or has refused to a dozen times.
            StoppedWaitingError: a stop was asked for meanwhile.
        """
        if not places:
            return {}
        committed = self._committed(places)
        begins = self._offsets(dict.fromkeys(places, OffsetSpec.earliest()))
        ends = self._offsets(dict.fromkeys(begins, OffsetSpec.latest()))
        unknown = [
            place for place in ends if committed[place][0] is None and begins[place].offset != ends[place].offset
        ]
        read = {place: last for place in ends if (last := Mark.of(committed[place][1]).last_read) is not None}
        from_ms = {place: last.timestamp_ms + 1 for place, last in read.items()} | dict.fromkeys(unknown, 0)
        by_time = self._offsets({place: OffsetSpec.for_timestamp(at_ms) for place, at_ms in from_ms.items()})
        retention_ms = offsets_retention_ms(self._admin) if unknown else DEFAULT_OFFSETS_RETENTION_MS
        now_ms = self._clock.now_ms()
        verdicts: dict[Place, Verdict] = {}
        for place in places:
            offset, metadata = committed[place]
            if place not in ends or (place in from_ms and place not in by_time):
                verdicts[place] = NoLeader(offset or 0)
                continue
            found = by_time.get(place, _NOT_FOUND)
            first, later = (found, _NOT_FOUND) if place in unknown else (_NOT_FOUND, found)
            log_range = LogRange(
                begins[place].offset, ends[place].offset, first.timestamp_ms, later.offset, later.leader_epoch
            )
            topic_id = self._topic_ids.get(place[0], "")
            verdicts[place] = decide_start(offset, metadata, log_range, now_ms, retention_ms, topic_id)
            if place in unknown and isinstance(verdicts[place], Start):
                log.warning(
                    "no progress yet",
                    partition=f"{place[0]}-{place[1]}",
                    read_from=log_range.begin_offset,
                    end=log_range.end_offset,
                    operator_action="nothing, if the group or the partition is new; if its progress was deleted, or "
                    "group_id is another than before, all that the log holds is delivered again: stop the sidecars, "
                    "and choose with 'timewheel progress set'",
                )
        return verdicts

    def _committed(self, places: Sequence[Place]) -> dict[Place, tuple[int | None, str | None]]:
        """Committed offsets and metadata; Kafka waits here for transactions that are still pending."""
        asked = [TopicPartition(*place) for place in places]

        def ask() -> list[TopicPartition]:
            answers = self._consumer.committed(asked, timeout=_TIMEOUT_S)
            _check(answers)
            return answers

        def failed(error: KafkaException) -> None:
            log.warning("committed progress not known yet", reason=str(error), operator_action=_HELD_UP)
            self._tell(f"Kafka does not tell the committed progress: {error}; {_HELD_UP}")

        return {
            (answer.topic, answer.partition): (answer.offset if answer.offset >= 0 else None, answer.metadata)
            for answer in self._answered(ask, "committed progress", failed)
        }

    def _offsets(self, asked: Mapping[Place, OffsetSpec]) -> dict[Place, Found]:
        """What there is per partition that has a leader, in one request per broker."""
        topics = {topic for topic, _ in asked}

        def ask() -> dict[Place, Found]:
            seen = self._look(topics)
            self._topic_ids |= seen.ids
            led = {TopicPartition(*place): spec for place, spec in asked.items() if place not in seen.leaderless}
            futures = self._admin.list_offsets(led, request_timeout=_TIMEOUT_S) if led else {}
            return {(place.topic, place.partition): _found(future.result()) for place, future in futures.items()}

        def failed(error: KafkaException) -> None:
            log.info("log offsets not known yet", reason=str(error))

        return self._answered(ask, "the range of the logs", failed) if asked else {}

    def _answered(self, ask: Callable[[], T], what: str, failed: Callable[[KafkaException], None]) -> T:
        """What Kafka says in the end. Raises what `find` does.

        Args:
            failed: told of each time that it has not answered.
        """
        failure: KafkaException | None = None
        for _ in range(_ATTEMPTS):
            try:
                return ask()
            except KafkaException as error:
                failure = error
                if error.args[0].code() == KafkaError._DESTROY:  # the client ends, and no asking brings an answer
                    break
                failed(error)
                if self._is_stopping():
                    raise StoppedWaitingError("where reading begins is not known yet") from error
        raise KafkaUnreachableError(f"{what} cannot be read: {failure}")


def _found(info: ListOffsetsResultInfo) -> Found:
    timestamp_ms = info.timestamp if info.timestamp >= 0 else None
    return Found(info.offset, timestamp_ms, -1 if info.leader_epoch is None else info.leader_epoch)


def _check(answers: Sequence[TopicPartition]) -> None:
    """Raises KafkaException where a single partition's progress is not known: it looks as if there were none."""
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)


def offsets_retention_ms(admin: AdminClient) -> int:
    """How long the brokers remember the progress of a group without members; the default where they do not say."""
    try:
        broker = str(next(iter(admin.list_topics(timeout=_TIMEOUT_S).brokers)))
        resource = ConfigResource(ResourceType.BROKER, broker)
        config = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result()
        return int(config["offsets.retention.minutes"].value) * 60_000
    except (KafkaException, KeyError, StopIteration) as error:
        log.warning(
            "offsets retention unknown",
            reason=str(error),
            operator_action="allow the sidecar to DESCRIBE_CONFIGS of the cluster; until then 7 days are assumed",
        )
        return DEFAULT_OFFSETS_RETENTION_MS
