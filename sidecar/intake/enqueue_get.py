"""RIP-43's EnqueueGet: reads what the consumer has fetched, and hands it to the sources, a batch at a time."""

from collections.abc import Callable, Collection, Iterable, Sequence

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from connectors.contract import Place
from connectors.kafka_errors import DAMAGED, HOW_TO_MEND, is_fatal
from sidecar.clock import Clock
from sidecar.errors import ClientsLostError, DataDirectoryError, UsageError
from sidecar.intake.assignment import SOURCE_FAILURES, Assignment, name_of
from sidecar.intake.clocks_apart import ClocksApart
from sidecar.intake.headers import read_headers
from sidecar.intake.progress import lost_end
from sidecar.intake.reading import Reading, Run
from sidecar.observability.health import Health
from sidecar.observability.metrics import Metrics
from sidecar.sizes import RECORD_OVERHEAD_BYTES, SAMPLED, header_bytes
from sidecar.source import Source

log = structlog.get_logger("timewheel.intake")

PIECE_RECORDS = 1_000
"""Most that are objects at a time, until they have been handed over: so many fit into a processor's cache (ADR 23)."""

_RANGE_ERRORS = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._NO_OFFSET)
PAST_DAMAGE = (
    f"{HOW_TO_MEND}; reading goes on by itself. Or skip it: stop all sidecars of the group, and choose an offset "
    "behind it with 'timewheel progress set', which on the wheel skips what waits there as well"
)
_LOST_ERRORS = (KafkaError._MAX_POLL_EXCEEDED, KafkaError.UNKNOWN_MEMBER_ID)
_GROUP_REMEDIES = {
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "another application is a member of this group: find it with "
    "'kafka-consumer-groups.sh --describe --members', and give it a group.id of its own",
    KafkaError.GROUP_MAX_SIZE_REACHED: "let the brokers' group.max.size be no less than there are sidecars and workers",
}
"""What an operator can do where the group does not let this sidecar in."""


class EnqueueGet:
    """Reads schedule topics as a member of the sidecar's consumer group.

    Args:
        batch_records, batch_bytes: most that is read at a time, the bytes about, as `sidecar.sizes` counts them. What a
            source has no room for is thrown away, with all that was fetched behind it, and fetched again.
        queue_of: a schedule topic's queue, the metrics' label.
    """

    def __init__(
        self,
        consumer: Consumer,
        assignment: Assignment,
        *,
        clock: Clock,
        health: Health,
        metrics: Metrics,
        batch_records: int,
        batch_bytes: int,
        queue_of: Callable[[str], str],
    ) -> None:
        self._consumer = consumer
        self._assignment = assignment
        self._clock = clock
        self._health = health
        self._metrics = metrics
        self._batch_records = batch_records
        self._batch_bytes = batch_bytes
        self._limit = batch_records
        """Records that are read at a time."""
        self._queue_of = queue_of
        self._readings = assignment.readings
        self._held: Collection[Place] = ()
        self.clocks_apart = ClocksApart(clock)

    def hold(self, places: Collection[Place]) -> None:
        """Read these partitions no further until a later call leaves them out; polling keeps the membership."""
        self._held = places
        for place in places:
            reading = self._readings.get(place)
            if reading is not None and not reading.is_paused:
                reading.read_again(self._consumer)

    def read_again(self, source: Source) -> None:
        """Read on from the position of a source, which has set it back."""
        self._readings[source.topic, source.partition].read_again(self._consumer)

    def go_on(self) -> None:
        """Between transactions: hand over what sources have left for the end of one."""
        left = [run for reading in self._readings.values() if reading.left for run in reading.take_left()]
        if left:
            self._hand_over(left)

    def read(self, timeout_s: float) -> int:
        """Wait up to ``timeout_s`` for records, hand what there is to the sources, and tell how many there were.

        A batch is read in pieces, each handed over before the next, as long as the consumer has a whole one; where a
        source that had a part in the one before asks for that, it is read at once.

        Raises:
            ClientsLostError: the consumer is of no more use.
            DataDirectoryError: another process runs under this identity.
            UsageError: the brokers do not allow what is set.
        """
        self._assignment.reopen()
        self._resume()
        count, room = 0, self._limit
        readings = self._readings.values()
        is_whole = any(reading.source.is_best_read_whole for reading in readings if reading.was_offered)
        for reading in readings:
            reading.was_offered = False
        while room > 0:
            asked = room if is_whole else min(room, PIECE_RECORDS)
            read, handed_over = self._read_piece(asked, timeout_s)
            count += handed_over
            room = min(room, self._limit) - read if read >= asked else 0
            timeout_s = 0
        return count

    def _read_piece(self, most: int, timeout_s: float) -> tuple[int, int]:
        """How many there were, and how many of them the sources have taken."""
        self._assignment.begin_call()
        try:
            messages = self._consumer.consume(most, 0)
            if not messages and timeout_s > 0:
                first = self._consumer.poll(timeout_s)
                messages = [] if first is None else [first, *self._consumer.consume(most, 0)]
            self._assignment.check()
        except KafkaException as error:
            raise ClientsLostError(f"consumer: {error}") from error
        if not messages:
            return 0, 0
        self._limit = self._fitting(messages)
        return len(messages), self._hand_over(self._runs(messages))

    def tell_held_back(self) -> None:
        """Now and then: which partitions cannot be read on before a producer's transaction ends."""
        now_ms = self._clock.monotonic_ms()
        held_back, before = set(), self._health.held_back
        for place, reading in self._readings.items():
            end_offset = None if reading.is_paused else self.known_end(place)
            if reading.held_back.look(end_offset, now_ms):
                held_back.add(place)
        if held_back == before:
            return
        self._health.held_back = frozenset(held_back)
        for place in sorted(held_back - before):
            log.warning(
                "records held back",
                partition=name_of(place),
                operator_action="find the producer with 'kafka-transactions.sh describe-producers' for that partition; "
                "its transaction is open, and what is written behind it can be read once that ends",
            )
        for place in sorted(before - held_back):
            log.info("records no longer held back", partition=name_of(place))

    def known_end(self, place: Place) -> int | None:
        """The end of a partition's log as of the last fetch; None while it is not known. Asks nobody."""
        try:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
        except KafkaException:
            return None
        return end if end >= 0 else None

    def _fitting(self, messages: list[Message]) -> int:
        """How many records to read next, if they are as large as these."""
        sample = messages[::SAMPLED]
        keys, headers = map(Message.key, sample), read_headers(sample)
        sample_bytes = sum(map(len, sample)) + sum(len(key or b"") for key in keys) + sum(map(header_bytes, headers))
        sample_bytes += RECORD_OVERHEAD_BYTES * len(sample)
        return max(1, min(self._batch_records, self._batch_bytes * len(sample) // sample_bytes))

    def _hand_over(self, runs: Iterable[Run]) -> int:
        now_ms = self._clock.now_ms()
        count = 0
        for run in runs:
            place = run.place
            reading = self._readings.get(place)
            if reading is None:
                continue
            if place in self._assignment.since_call:  # what came in that very call may be of an assignment before
                reading.reread(self._consumer)
            elif reading.left:
                reading.left.append(run)
            elif run.end_offset is not None:
                reading.damage = ""
                reading.held_back.reached_end(run.end_offset)
                reading.source.reached_end(run.end_offset)
            else:
                count += self._offer(reading, run, now_ms)
        if count:
            self._health.broker_answers()
        return count

    def _offer(self, reading: Reading, run: Run, now_ms: int) -> int:
        """How many of the records are handed over."""
        source, (place, messages, _) = reading.source, run
        reading.was_offered = True
        reading.damage = ""
        reading.held_back.reads_on()
        self.clocks_apart.read(messages[-1], now_ms, self.known_end(place))
        other_from = reading.other_from(messages)
        if other_from is not None:
            if other_from < reading.start.offset:
                self._assignment.stop(place, lost_end(reading.start.offset, other_from))
                return 0
            self._tell_of_lost_end(place, other_from)
            source.lost_end(other_from)
        try:
            source.offer(messages, now_ms)
        except SOURCE_FAILURES as error:
            self._assignment.fail(source, error)
            return 0
        reading.remember(messages[-1])
        count = len(messages)
        left: list[Message] = []
        if source.position <= (messages[-1].offset() or 0):
            left = [message for message in messages if (message.offset() or 0) >= source.position]
            count -= len(left)
        if source.is_full:
            reading.is_behind = reading.is_behind or bool(left)
            reading.pause(self._consumer)
        elif left:
            reading.left = [Run(place, left)]
        self._metrics.ingested.labels(self._queue_of(source.topic)).inc(count)
        return count

    def _tell_of_lost_end(self, place: Place, other_from: int) -> None:
        log.warning(
            "log has lost its end",
            partition=name_of(place),
            offset=other_from,
            operator_action="nothing, for what is done: what was lost is behind it; but of what had rolled, or was put "
            "in the place of another, the copy may be among it: 'timewheel audit batch' names what is missing; keep "
            "unclean.leader.election.enable off",
        )

    def _runs(self, messages: list[Message]) -> list[Run]:
        """A run for each partition, and one more where records follow its end: few cost as much to hand over as many.

        In the order of a partition's records; those of others may stand between them.
        """
        if _are_of_one_partition(messages):
            return [Run((messages[0].topic() or "", messages[0].partition() or 0), messages)]
        runs: list[Run] = []
        growing: dict[Place, Run] = {}
        topic: str | None = None
        partition: int | None = None
        append: Callable[[Message], None]
        for message in messages:
            error = message.error()
            if error is not None:
                topic = None
                if error.code() == KafkaError._PARTITION_EOF:
                    place = (message.topic() or "", message.partition() or 0)
                    growing.pop(place, None)
                    runs.append(Run(place, [], message.offset()))
                else:
                    self._on_error(message, error)
                continue
            if message.partition() != partition or message.topic() != topic:
                topic, partition = message.topic(), message.partition()
                place = (topic or "", partition or 0)
                if place not in growing:
                    growing[place] = Run(place, [])
                    runs.append(growing[place])
                append = growing[place].messages.append
            append(message)
        return runs

    def _on_error(self, message: Message, error: KafkaError) -> None:
        code = error.code()
        # librdkafka wraps the fencing of a static member into _FATAL; only its text tells which it was.
        if code == KafkaError.FENCED_INSTANCE_ID or (code == KafkaError._FATAL and "group.instance.id" in error.str()):
            raise DataDirectoryError(
                "another process has taken this sidecar's identity (group.instance.id); "
                "give each sidecar a data_dir or an instance_id of its own"
            )
        if code == KafkaError.INVALID_SESSION_TIMEOUT:
            raise UsageError(
                "session_timeout is not one that the brokers allow; set it to no less than their "
                "group.min.session.timeout.ms (6s by default), and to no more than group.max.session.timeout.ms"
            )
        if code in _RANGE_ERRORS and message.topic():
            self._assignment.stop(
                (message.topic() or "", message.partition() or 0), f"out of the log's range: {error.str()}"
            )
        elif is_fatal(error) or code in _LOST_ERRORS:
            raise ClientsLostError(f"consumer: {error}")
        elif code in DAMAGED and message.topic():
            self._is_damaged((message.topic() or "", message.partition() or 0), message.offset(), error)
        else:
            known = _GROUP_REMEDIES.get(code)
            self._health.broker_is_silent(f"{error.str()}; {known}" if known else error.str())
            advice = known or "check the brokers and the sidecar's rights"
            log.warning(
                "kafka reports an error",
                topic=message.topic(),
                reason=str(error),
                operator_action=f"{advice}; reading goes on by itself",
            )

    def _is_damaged(self, place: Place, offset: int | None, error: KafkaError) -> None:
        """A batch cannot be read; the consumer tries again by itself."""
        log.error(
            "batch cannot be read",
            partition=name_of(place),
            offset=offset,
            reason=error.str(),
            operator_action=PAST_DAMAGE,
        )
        if (reading := self._readings.get(place)) is not None:
            reading.damage = f"cannot be read from offset {offset} on: {error.str()}"

    @property
    def damaged(self) -> dict[str, str]:
        """``topic-partition`` -> why it cannot be read any further."""
        return {name_of(place): reading.damage for place, reading in self._readings.items() if reading.damage}

    def _resume(self) -> None:
        for place, reading in self._readings.items():
            if reading.is_paused and place not in self._held and reading.source.has_room:
                reading.resume(self._consumer)


def _are_of_one_partition(messages: Sequence[Message]) -> bool:
    """Whether they are records of one partition, all of them."""
    if any(map(Message.error, messages)):
        return False
    topics, partitions = list(map(Message.topic, messages)), list(map(Message.partition, messages))
    return topics.count(topics[0]) == len(topics) and partitions.count(partitions[0]) == len(partitions)
