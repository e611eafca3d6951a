"""Destination partitions that take no records just now, so that theirs do not hold up those of all others.

A transaction is as slow as its slowest destination. Where one has failed because a partition did not take its records
in time, and Kafka says that this partition has no leader, or lacks replicas, or it does so again with a record that
stands alone, what is due for it goes back onto the wheel topic: as a copy that keeps its due time and id and is tried
again later, in the same transaction as everybody else's delivery. Records without a key go to another partition of the
topic, if one is left. The same becomes of what is due for a topic that is still to be created, where Kafka does not do
that in time.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException

from connectors.contract import Headers, Place, TopicKind, TopicNames
from connectors.header_names import (
    REAL_QID,
    REAL_TOPIC,
    TIMER_ENQUEUE_MS,
    TIMER_NOT_BEFORE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
)
from connectors.kafka import BY_KEY
from connectors.murmur2 import partition_of_key
from sidecar.dispatch.transactions import Refusal
from sidecar.intake.copies import Copied, Copies
from sidecar.records import DUE_MS, HEADERS, OFFSET, PARTITION, TOPIC, VALUE, Outgoing, Rejection

POSTPONED_AT_LEAST_MS = 5_000
POSTPONED_AT_MOST_MS = 60_000
TRIED_AFTER_MS = 60_000
"""A partition that has a leader but lacks replicas is tried again this long after it took nothing: by then it may have
enough. If it does not, all deliveries wait for its time-out once more, so the next try comes after twice the time."""
TRIED_AFTER_AT_MOST_MS = 3_600_000
ALONE_AGAIN_MS = 60_000
"""A partition that Kafka calls whole, but that has not taken a record that stood alone, is not reached from here if the
same happens again so soon; once may be an outage that is just over."""

_NOT_TAKEN = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
"""What Kafka or the client says of a record whose partition has not taken it in time."""

_GIVEN = frozenset({UNIQ_KEY, TIMER_OUT_MS, TIMER_ROLL_TIMES, TIMER_ENQUEUE_MS})
"""Headers that the sidecar has given a record that is due."""

log = structlog.get_logger("timewheel.dispatch")


class Replicas(NamedTuple):
    """How a partition is."""

    has_leader: bool
    in_sync: int
    assigned: int

    @property
    def is_whole(self) -> bool:
        return self.has_leader and self.in_sync >= self.assigned

    def __str__(self) -> str:
        if not self.assigned:
            return "it is to be created, and Kafka does not do that"
        if self.is_whole:
            return "Kafka calls it healthy, but it does not answer this sidecar"
        return f"{self.in_sync} of {self.assigned} replicas in sync" if self.has_leader else "no leader"


_MISSING = Replicas(False, 0, 0)


class Away(NamedTuple):
    """A partition that takes nothing."""

    replicas: Replicas
    tried_ms: float
    """When it is tried again, if it has a leader then."""
    wait_ms: int
    """How long that is after it was found."""


class Outages:
    """Which destination partitions take nothing, and what becomes of their records. False while there are none.

    Args:
        look: the replicas of each partition of a topic; raises KafkaException when Kafka does not answer.
        make_copies: writes the copies of this group; raises KafkaException likewise.
        monotonic_ms: a clock that never steps.
    """

    def __init__(
        self,
        names: TopicNames,
        look: Callable[[str], Mapping[int, Replicas]],
        make_copies: Callable[[], Copies],
        monotonic_ms: Callable[[], float],
    ) -> None:
        self._names = names
        self._look = look
        self._make_copies = make_copies
        self._monotonic_ms = monotonic_ms
        self._copies: Copies | None = None
        self._away: dict[str, dict[int, Away]] = {}
        self._tried: dict[Place, Away] = {}
        """Partitions that are being tried again, as they were before."""
        self._partitions: dict[str, int] = {}
        """How many partitions those topics have; 0: they are still to be created."""
        self._alone_ms: dict[Place, float] = {}
        """When partitions that Kafka called whole have not taken a record that stood alone."""
        self._turn = 0

    def __bool__(self) -> bool:
        return bool(self._away)

    @property
    def in_words(self) -> dict[str, str]:
        """``topic-partition`` -> what is wrong with it."""
        return {
            f"{topic}-{partition}": f"takes no records ({away.replicas}); what is due for it is tried again later"
            for topic, partitions in sorted(self._away.items())
            for partition, away in sorted(partitions.items())
        }

    # --- which --------------------------------------------------------------------------------------------------------

    def suspect(self, refusals: Iterable[Refusal], *, is_alone: bool = False) -> None:
        """A transaction was aborted: look at the partitions that have not taken their records.

        Args:
            is_alone: whether there was nothing else in it.
        """
        suspects: dict[str, set[int]] = {}
        for topic, partition, error in refusals:
            kind = self._names.kind(topic)
            if error.code() in _NOT_TAKEN and kind in (TopicKind.OTHER, TopicKind.RETRY):
                suspects.setdefault(topic, set()).add(partition)
        try:
            for topic, partitions in suspects.items():
                self._suspect(topic, partitions, is_alone=is_alone)
        except KafkaException as error:
            log.info("kafka does not answer yet", call="describe_topics", reason=str(error))

    def missing(self, topics: Mapping[str, int]) -> None:
        """These topics are to be created, and are not in time; with when that is tried again, in ms from now."""
        try:
            for topic, wait_ms in topics.items():
                if topic not in self._away and self._names.kind(topic) in (TopicKind.OTHER, TopicKind.RETRY):
                    self._set_away(topic, 0, {0: _MISSING}, {0: wait_ms})
        except KafkaException as error:
            log.info("kafka does not answer yet", call="describe_topics", reason=str(error))

    def _suspect(self, topic: str, suspects: set[int], *, is_alone: bool) -> None:
        replicas = self._look(topic)
        away = {
            partition: found
            for partition, found in replicas.items()
            if partition in suspects and (not found.is_whole or (is_alone and self._is_alone_again((topic, partition))))
        }
        if away:
            waits_ms = {partition: self._wait_ms(topic, partition) for partition in away}
            self._set_away(topic, len(replicas), away, waits_ms)

    def _set_away(self, topic: str, partitions: int, away: Mapping[int, Replicas], waits_ms: Mapping[int, int]) -> None:
        if self._copies is None:
            self._copies = self._make_copies()
        self._partitions[topic] = partitions
        for partition, found in away.items():
            wait_ms = waits_ms[partition]
            self._away.setdefault(topic, {})[partition] = Away(found, self._monotonic_ms() + wait_ms, wait_ms)
            log.warning(
                "destination takes nothing",
                topic=topic,
                partition=partition,
                reason=str(found),
                operator_action="bring its brokers, the controller, or the way to them back; what is due for it is "
                "tried again, the others go on",
            )

    def _is_alone_again(self, place: Place) -> bool:
        now_ms = self._monotonic_ms()
        self._alone_ms = {one: at_ms for one, at_ms in self._alone_ms.items() if now_ms - at_ms <= ALONE_AGAIN_MS}
        if self._alone_ms.pop(place, None) is not None or self._was_tried_lately(place):
            return True
        self._alone_ms[place] = now_ms
        return False

    def _wait_ms(self, topic: str, partition: int) -> int:
        """Twice as long as the last time, if the last try is about as long ago."""
        is_recent = self._was_tried_lately((topic, partition))
        last = self._tried.pop((topic, partition), None)
        return min(2 * last.wait_ms, TRIED_AFTER_AT_MOST_MS) if last and is_recent else TRIED_AFTER_MS

    def _was_tried_lately(self, place: Place) -> bool:
        last = self._tried.get(place)
        return last is not None and self._monotonic_ms() - last.tried_ms <= 2 * last.wait_ms

    def look_again(self) -> None:
        """Now and then: which of them have come back, or are to be tried."""
        try:
            for topic in list(self._away):
                self._look_again(topic)
        except KafkaException as error:
            log.info("kafka does not answer yet", call="describe_topics", reason=str(error))

    def _look_again(self, topic: str) -> None:
        away, replicas = self._away[topic], self._look(topic)
        for partition, found in list(away.items()):
            before, now = found.replicas, replicas.get(partition)
            if now is None and before is _MISSING and self._monotonic_ms() < found.tried_ms:
                continue
            if now is None:  # a topic that is gone: its records become dead letters
                del away[partition]
                reason = "it is still to be created" if before is _MISSING else "there is no such partition any more"
                log.info("destination is tried again", topic=topic, partition=partition, reason=reason)
            elif (now.is_whole and not before.is_whole) or (
                now.has_leader and now.in_sync > before.in_sync * before.has_leader
            ):
                del away[partition]
                log.info("destination takes records again", topic=topic, partition=partition)
            elif now.has_leader and self._monotonic_ms() >= found.tried_ms:
                del away[partition]
                self._tried[topic, partition] = found
                log.info("destination is tried again", topic=topic, partition=partition, reason=str(now))
        if not away:
            del self._away[topic], self._partitions[topic]

    # --- their records ------------------------------------------------------------------------------------------------

    def postponed(self, records: list[Outgoing], now_ms: int, wheel_partition: int = BY_KEY) -> list[Outgoing]:
        """The same records, but for those that would go to a partition that takes nothing.

        Args:
            wheel_partition: of the wheel topic, the one that the records come from; BY_KEY: they come from a level.
        """
        return [
            self._postponed(record, now_ms, wheel_partition) if record[TOPIC] in self._away else record
            for record in records
        ]

    def _postponed(self, record: Outgoing, now_ms: int, wheel_partition: int) -> Outgoing:
        topic, partition, key = record[:3]
        assert not isinstance(topic, Rejection)
        away, partitions = self._away[topic], self._partitions[topic]
        if partitions == 0:
            pass  # whichever it would go to
        elif partition == BY_KEY and key is None:
            others = [number for number in range(partitions) if number not in away]
            if others:
                self._turn += 1
                return topic, others[self._turn % len(others)], *record[2:]
        elif (partition_of_key(key or b"", partitions) if partition == BY_KEY else partition) not in away:
            return record
        headers = self._headers(record, topic, now_ms, is_from_wheel=wheel_partition != BY_KEY)
        return self._names.wheel, wheel_partition, key, record[VALUE], headers, *record[DUE_MS:]

    def _headers(self, record: Outgoing, topic: str, now_ms: int, *, is_from_wheel: bool) -> Headers:
        assert self._copies is not None
        headers: Headers = []
        given: dict[str, bytes] = {}
        for header in record[HEADERS]:
            name, value = header
            if name in _GIVEN:
                given[name] = value or b""
            else:
                headers.append(header)
        headers.append((REAL_TOPIC, topic.encode()))
        if record[PARTITION] != BY_KEY:
            headers.append((REAL_QID, b"%d" % record[PARTITION]))
        due_ms, rolls = int(given[TIMER_OUT_MS]), int(given.get(TIMER_ROLL_TIMES, 0))
        # As long again as it has waited: an outage of a minute costs a handful of copies.
        wait_ms = min(max(now_ms - due_ms, POSTPONED_AT_LEAST_MS), POSTPONED_AT_MOST_MS)
        copied = Copied(record[OFFSET] if is_from_wheel else None, rolls, now_ms + wait_ms)
        return headers + self._copies.headers(given[UNIQ_KEY], due_ms, copied)


def is_postponed(record: Outgoing) -> bool:
    """Whether it is such a copy, on its way to the wheel."""
    headers = record[HEADERS]
    return bool(headers) and headers[-1][0] == TIMER_NOT_BEFORE_MS
