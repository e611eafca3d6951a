"""RIP-43's EnqueueGet: the consumer, its assignment, and the batches it hands to the sources."""

from collections.abc import Callable, Collection, Iterable, Sequence

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from connectors.contract import Place
from connectors.kafka_errors import is_fatal
from sidecar.clock import Clock
from sidecar.errors import ClientsLostError, DataDirectoryError, UsageError
from sidecar.intake.headers import read_headers
from sidecar.intake.progress import Mark, NoLeader, NoLeaderError, ProgressError, Start, Stop, Verdict
from sidecar.intake.reading import Reading, Run
from sidecar.intake.reopening import Reopening, remedy
from sidecar.intake.start_finder import StartFinder
from sidecar.observability.health import Health
from sidecar.observability.metrics import Metrics
from sidecar.sizes import RECORD_OVERHEAD_BYTES, SAMPLED, header_bytes
from sidecar.source import Source
from sidecar.store.errors import StoreError

log = structlog.get_logger("timewheel.intake")

SourceFactory = Callable[[str, int, Start, Exception | None], Source]
"""Makes the source of a partition; the last argument is what the one before failed of, if it did."""

SOURCE_FAILURES = (OSError, StoreError)
"""What a source raises when its local store fails."""
_OPENING_FAILURES = (*SOURCE_FAILURES, KafkaException)

PIECE_RECORDS = 1_000
"""Most that are objects at a time, until they have been handed over: so many fit into a processor's cache (ADR 23)."""

_RANGE_ERRORS = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._NO_OFFSET)
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
        make_source: builds the source of an assigned partition.
        settle: ends the transaction in hand; called while the partitions are still ours, with ``in_rebalance`` where
            the consumer answers no call until it has returned.
        batch_records, batch_bytes: most that is read at a time, the bytes about, as `sidecar.sizes` counts them. What a
            source has no room for is thrown away, with all that was fetched behind it, and fetched again.
        queue_of: a schedule topic's queue, the metrics' label.
    """

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        starts: StartFinder,
        make_source: SourceFactory,
        settle: Callable[..., None],
        *,
        clock: Clock,
        health: Health,
        metrics: Metrics,
        batch_records: int,
        batch_bytes: int,
        queue_of: Callable[[str], str],
    ) -> None:
        self.assigned: Sequence[Place] | None = None
        """What the group has assigned last, if only nothing; also what is closed or stopped."""
        self._consumer = consumer
        self._starts = starts
        self._make_source = make_source
        self._settle = settle
        self._clock = clock
        self._health = health
        self._metrics = metrics
        self._batch_records = batch_records
        self._batch_bytes = batch_bytes
        self._limit = batch_records
        """Records that are read at a time."""
        self._queue_of = queue_of
        self._readings: dict[Place, Reading] = {}
        """The partitions that are open."""
        self._held: Collection[Place] = ()
        self._assigned_in_call: set[Place] = set()
        self._reopening = Reopening(clock)
        self._failure: Exception | None = None
        self._is_closed = False
        consumer.subscribe(list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    @property
    def sources(self) -> list[Source]:
        """Those of the partitions that are open."""
        return [reading.source for reading in self._readings.values()]

    def is_open(self, source: Source) -> bool:
        """Whether a source is still the one of its partition."""
        reading = self._readings.get((source.topic, source.partition))
        return reading is not None and reading.source is source

    def mark_of(self, source: Source) -> Mark:
        """What a commit of this source says of the log that it is of."""
        return self._readings[source.topic, source.partition].mark if self.is_open(source) else Mark()

    def close(self) -> None:
        """Close every source: the session is over, and what the consumer still tells is of no interest."""
        self._is_closed = True
        self._health.stopped = {}  # the next session finds out by itself
        self._health.held_back = frozenset()
        self._drop(list(self._readings))

    def fail(self, source: Source, error: Exception) -> None:
        """A source's store has failed: forget what is in memory, begin again from the committed progress in a while."""
        if self.is_open(source):
            place = source.topic, source.partition
            self._close(place)
            self._consumer.pause([TopicPartition(*place)])
            self._put_off(place, error)

    def hold(self, places: Collection[Place]) -> None:
        """Read these partitions no further until a later call leaves them out; polling keeps the membership."""
        self._held = places
        for place in places:
            reading = self._readings.get(place)
            if reading is not None and not reading.is_paused:
                self._pause(place, reading)
                reading.read_again()

    def read_again(self, source: Source) -> None:
        """Read on from the position of a source, which has set it back."""
        place = source.topic, source.partition
        reading = self._readings[place]
        if not reading.is_paused:
            self._pause(place, reading)
        reading.read_again()

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
        self._reopen()
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
        self._assigned_in_call.clear()
        try:
            messages = self._consumer.consume(most, 0)
            if not messages and timeout_s > 0:
                first = self._consumer.poll(timeout_s)
                messages = [] if first is None else [first, *self._consumer.consume(most, 0)]
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
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
                partition=_name(place),
                operator_action="find the producer with 'kafka-transactions.sh describe-producers' for that partition; "
                "its transaction is open, and what is written behind it can be read once that ends",
            )
        for place in sorted(before - held_back):
            log.info("records no longer held back", partition=_name(place))

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

    # --- records ------------------------------------------------------------------------------------------------------

    def _hand_over(self, runs: Iterable[Run]) -> int:
        now_ms = self._clock.now_ms()
        count = 0
        for run in runs:
            place = run.place
            reading = self._readings.get(place)
            if reading is None:
                continue
            if place in self._assigned_in_call:  # what came in that very call may be of an assignment before
                self._reread(place)
            elif reading.left:
                reading.left.append(run)
            elif run.end_offset is not None:
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
        reading.held_back.reads_on()
        try:
            source.offer(messages, now_ms)
        except SOURCE_FAILURES as error:
            self.fail(source, error)
            return 0
        reading.remember(messages[-1])
        count = len(messages)
        left: list[Message] = []
        if source.position <= (messages[-1].offset() or 0):
            left = [message for message in messages if (message.offset() or 0) >= source.position]
            count -= len(left)
        if source.is_full:
            reading.is_behind = reading.is_behind or bool(left)
            if not reading.is_paused:
                self._pause(place, reading)
        elif left:
            reading.left = [Run(place, left)]
        self._metrics.ingested.labels(self._queue_of(source.topic)).inc(count)
        return count

    def _runs(self, messages: list[Message]) -> list[Run]:
        """A run for each partition, and one more where records follow its end: few cost as much to hand over as many.

        In the order of a partition's records; those of others may stand between them.
        """
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
            self._stop((message.topic() or "", message.partition() or 0), f"out of the log's range: {error.str()}")
        elif is_fatal(error) or code in _LOST_ERRORS:
            raise ClientsLostError(f"consumer: {error}")
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

    def _reread(self, place: Place) -> None:
        """Read on from the position of the source, whatever has come from beyond it."""
        reading = self._readings[place]
        reading.left.clear()
        try:
            self._consumer.seek(TopicPartition(*place, reading.source.position))
        except KafkaException as error:
            raise ClientsLostError(f"consumer: {error}") from error

    def _pause(self, place: Place, reading: Reading) -> None:
        self._consumer.pause([TopicPartition(*place)])
        reading.is_paused = True

    def _resume(self) -> None:
        for place, reading in self._readings.items():
            if reading.is_paused and place not in self._held and reading.source.has_room:
                if reading.is_behind:
                    reading.is_behind = False
                    self._reread(place)
                self._consumer.resume([TopicPartition(*place)])
                reading.is_paused = False

    @property
    def without_disk(self) -> set[str]:
        """The partitions, by name, that are closed for want of room on the disk and nothing else."""
        return set(map(_name, self._reopening.without_disk))

    # --- assignment ---------------------------------------------------------------------------------------------------
    # librdkafka calls these from within consume() and poll(). An exception would be lost there: it is kept, and raised
    # by read().

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = [(partition.topic, partition.partition) for partition in partitions]
        try:
            assigned = []
            for place, start in self._starts.find(places).items():
                source = self._open(place, start)
                if source is not None:
                    assigned.append(TopicPartition(*place, source.position))
                elif place in self._reopening.closed and not isinstance(start, Stop):
                    assigned.append(TopicPartition(*place, start.offset))
            consumer.assign(assigned)
            closed = [TopicPartition(*place) for place in self._reopening.closed]
            if closed:
                consumer.pause(closed)
        except Exception as error:  # noqa: BLE001
            self._failure = error
            return
        self.assigned = places
        self._assigned_in_call |= set(places)
        self._tell_assignment()
        self._health.partitions_assigned()
        self._metrics.rebalances.labels("assigned").inc()
        log.info("partitions assigned", partitions=_names(places))

    def _open(self, place: Place, start: Verdict) -> Source | None:
        """Make a partition's source; None where it is stopped, or cannot be had now and is tried again."""
        if isinstance(start, Stop):
            self._stop(place, start.reason)
            return None
        if isinstance(start, NoLeader):
            self._put_off(place, NoLeaderError())
            return None
        try:
            self._health.turned()  # of a large one all of its timer log is read: the loop is alive meanwhile
            source = self._make_source(*place, start, self._reopening.last_error(place))
        except ProgressError as error:
            self._stop(place, str(error))
            return None
        except _OPENING_FAILURES as error:
            self._put_off(place, error)
            return None
        if source.position < start.begin_offset:
            source.close()
            self._stop(
                place,
                f"what waits has to be read again from offset {source.position}, but the log begins at "
                f"{start.begin_offset}: retention has removed records that may not have been delivered, and data_dir "
                "does not hold them",
            )
            return None
        self._reopening.opened(place)
        self._readings[place] = Reading(source, start.mark)
        if start.mark.topic_id:
            self._health.topic_ids = {**self._health.topic_ids, place[0]: start.mark.topic_id}
        return source

    def _put_off(self, place: Place, error: Exception) -> None:
        wait_ms = self._reopening.failed(place, error)
        self._tell_assignment()
        log.error(
            "partition failed",
            partition=_name(place),
            reason=str(error),
            wait_ms=wait_ms,
            operator_action=f"{remedy(error)}; nothing is lost, the state is in Kafka",
        )

    def _reopen(self) -> None:
        """Try those again that have waited long enough."""
        places = self._reopening.due()
        if not places:
            return
        self._settle()  # the transaction in hand may hold their progress: its end first
        for place, start in self._starts.find(places).items():
            source = self._open(place, start)
            if source is not None:
                self._reread(place)
                self._consumer.resume([TopicPartition(*place)])
                self._tell_assignment()
                log.info("partition open again", partition=_name(place))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._is_closed:
            return
        places = [(partition.topic, partition.partition) for partition in partitions]
        try:
            self._settle(in_rebalance=True)
            self._drop(places)
            consumer.resume(partitions)  # librdkafka remembers a pause: should they come back, they would stay silent
            consumer.unassign()
        except Exception as error:  # noqa: BLE001
            self._failure = error
            return
        self._metrics.rebalances.labels("revoked").inc()
        log.info("partitions revoked", partitions=_names(places))

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._is_closed:
            return
        places = [(partition.topic, partition.partition) for partition in partitions]
        self._drop(places)
        self._failure = ClientsLostError("the group has given this sidecar's partitions away (session timeout)")
        self._metrics.rebalances.labels("lost").inc()
        log.warning(
            "partitions lost",
            partitions=_names(places),
            operator_action="check that the process gets its CPU and reaches the brokers; it joins the group again",
        )

    def _drop(self, places: Sequence[Place]) -> None:
        for place in places:
            self._health.turned()  # and to close it, much may have to be written
            self._close(place)
            self._reopening.forget(place)
        dropped = {_name(place) for place in places}
        self._health.stopped = {name: why for name, why in self._health.stopped.items() if name not in dropped}
        self._tell_assignment()

    def _stop(self, place: Place, reason: str) -> None:
        """Read no further in this partition until an operator has chosen."""
        if self._close(place):
            self._consumer.pause([TopicPartition(*place)])
        self._reopening.forget(place)
        self._health.stopped = {**self._health.stopped, _name(place): reason}
        self._tell_assignment()
        log.error(
            "partition stopped",
            partition=_name(place),
            reason=reason,
            operator_action="stop all sidecars of the group, choose with 'timewheel progress set', start them again",
        )

    def _close(self, place: Place) -> bool:
        """Whether the partition was open."""
        reading = self._readings.pop(place, None)
        if reading is not None:
            reading.source.close()
        return reading is not None

    def _tell_assignment(self) -> None:
        self._health.places = frozenset(self._readings)
        self._metrics.assigned_partitions.set(len(self._readings))
        self._metrics.stopped_partitions.set(len(self._health.stopped))
        self._health.recovering = {
            _name(place): reading.source.trouble
            for place, reading in self._readings.items()
            if reading.source.is_recovering
        }
        self._health.failing = {_name(place): cause for place, cause in self._reopening.closed.items()}


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _names(places: Sequence[Place]) -> list[str]:
    return sorted(map(_name, places))
