"""The partitions that the group has given to this sidecar: opened, closed, stopped, tried again."""

from collections.abc import Callable, Sequence

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from connectors.contract import Place
from sidecar.clock import Clock
from sidecar.errors import ClientsLostError
from sidecar.intake.progress import Mark, NoLeader, NoLeaderError, ProgressError, Start, Stop, Verdict
from sidecar.intake.reading import Reading
from sidecar.intake.reopening import Reopening, remedy
from sidecar.intake.start_finder import StartFinder
from sidecar.observability.health import CHOOSE_PROGRESS, Cause, Health
from sidecar.observability.metrics import Metrics
from sidecar.source import Source
from sidecar.store.errors import StoreError

log = structlog.get_logger("timewheel.intake")

SourceFactory = Callable[[str, int, Start, Exception | None], Source]
"""Makes the source of a partition; the last argument is what the one before failed of, if it did."""

SOURCE_FAILURES = (OSError, StoreError)
"""What a source raises when its local store fails."""
_OPENING_FAILURES = (*SOURCE_FAILURES, KafkaException)


class Assignment:
    """Follows the consumer's rebalances, and keeps a `Reading` for each partition that is open.

    librdkafka calls it from within consume() and poll(). An exception would be lost there: it is kept for `check`.

    Args:
        make_source: builds the source of an assigned partition.
        settle: ends the transaction in hand; called while the partitions are still ours, with ``in_rebalance`` where
            the consumer answers no call until it has returned.
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
    ) -> None:
        self.places: Sequence[Place] | None = None
        """What the group has assigned last, if only nothing; also what is closed or stopped."""
        self.readings: dict[Place, Reading] = {}
        """The partitions that are open."""
        self.since_call: set[Place] = set()
        """Those assigned since `begin_call`."""
        self._consumer = consumer
        self._starts = starts
        self._make_source = make_source
        self._settle = settle
        self._health = health
        self._metrics = metrics
        self._reopening = Reopening(clock)
        self._failure: Exception | None = None
        self._is_closed = False
        consumer.subscribe(list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    @property
    def sources(self) -> list[Source]:
        """Those of the partitions that are open."""
        return [reading.source for reading in self.readings.values()]

    def is_open(self, source: Source) -> bool:
        """Whether a source is still the one of its partition."""
        reading = self.readings.get((source.topic, source.partition))
        return reading is not None and reading.source is source

    def mark_of(self, source: Source) -> Mark:
        """What a commit of this source says of the log that it is of."""
        return self.readings[source.topic, source.partition].mark if self.is_open(source) else Mark()

    @property
    def without_disk(self) -> set[str]:
        """The partitions, by name, that are closed for want of room on the disk and nothing else."""
        return set(map(name_of, self._reopening.without_disk))

    def begin_call(self) -> None:
        """The consumer is about to be called."""
        self.since_call.clear()

    def check(self) -> None:
        """Raise what a rebalance has raised meanwhile.

        Raises:
            ClientsLostError: the partitions are another sidecar's.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def close(self) -> None:
        """Close every source: the session is over, and what the consumer still tells is of no interest."""
        self._is_closed = True
        self._health.stopped = {}  # the next session finds out by itself
        self._health.held_back = frozenset()
        self._drop(list(self.readings))

    def fail(self, source: Source, error: Exception) -> None:
        """A source's store has failed: forget what is in memory, begin again from the committed progress in a while."""
        if self.is_open(source):
            place = source.topic, source.partition
            self._close(place)
            self._consumer.pause([TopicPartition(*place)])
            self._put_off(place, error)

    def stop(self, place: Place, reason: str, remedy: str = CHOOSE_PROGRESS) -> None:
        """Read no further in this partition until an operator has chosen."""
        if self._close(place):
            self._consumer.pause([TopicPartition(*place)])
        self._reopening.forget(place)
        self._health.stopped = {**self._health.stopped, name_of(place): Cause(reason, remedy)}
        self._tell_assignment()
        log.error(
            "partition stopped",
            partition=name_of(place),
            reason=reason,
            operator_action=remedy,
        )

    def reopen(self) -> None:
        """Try those again that have waited long enough."""
        places = self._reopening.due()
        if not places:
            return
        self._settle()  # the transaction in hand may hold their progress: its end first
        for place, start in self._starts.find(places).items():
            source = self._open(place, start)
            if source is not None:
                self.readings[place].reread(self._consumer)
                self._consumer.resume([TopicPartition(*place)])
                self._tell_assignment()
                log.info("partition open again", partition=name_of(place))

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._is_closed:
            return
        places = [(partition.topic, partition.partition) for partition in partitions]
        try:
            assigned = []
            for place, start in self._starts.find(places).items():
                source = self._open(place, start)
                if source is not None:
                    assigned.append(self.readings[place].first)
                elif place in self._reopening.closed and not isinstance(start, Stop):
                    assigned.append(TopicPartition(*place, start.offset))
            consumer.assign(assigned)
            closed = [TopicPartition(*place) for place in self._reopening.closed]
            if closed:
                consumer.pause(closed)
        except Exception as error:  # noqa: BLE001
            self._failure = error
            return
        self.places = places
        self.since_call |= set(places)
        self._tell_assignment()
        self._health.partitions_assigned()
        self._metrics.rebalances.labels("assigned").inc()
        log.info("partitions assigned", partitions=_names(places))

    def _open(self, place: Place, start: Verdict) -> Source | None:
        """Make a partition's source; None where it is stopped, or cannot be had now and is tried again."""
        if isinstance(start, Stop):
            self.stop(place, start.reason, start.remedy)
            return None
        if isinstance(start, NoLeader):
            self._put_off(place, NoLeaderError())
            return None
        try:
            self._health.turned()  # of a large one all of its timer log is read: the loop is alive meanwhile
            source = self._make_source(*place, start, self._reopening.last_error(place))
        except ProgressError as error:
            self.stop(place, str(error))
            return None
        except _OPENING_FAILURES as error:
            self._put_off(place, error)
            return None
        if source.position < start.begin_offset:
            source.close()
            self.stop(
                place,
                f"what waits has to be read again from offset {source.position}, but the log begins at "
                f"{start.begin_offset}: retention has removed records that may not have been delivered, and data_dir "
                "does not hold them",
            )
            return None
        self._reopening.opened(place)
        self.readings[place] = Reading(source, start)
        if start.mark.topic_id:
            self._health.topic_ids = {**self._health.topic_ids, place[0]: start.mark.topic_id}
        return source

    def _put_off(self, place: Place, error: Exception) -> None:
        wait_ms = self._reopening.failed(place, error)
        self._tell_assignment()
        log.error(
            "partition failed",
            partition=name_of(place),
            reason=str(error),
            wait_ms=wait_ms,
            operator_action=f"{remedy(error)}; nothing is lost, the state is in Kafka",
        )

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
        self._health.partitions_revoked()
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
        dropped = {name_of(place) for place in places}
        self._health.stopped = {name: cause for name, cause in self._health.stopped.items() if name not in dropped}
        self._tell_assignment()

    def _close(self, place: Place) -> bool:
        """Whether the partition was open."""
        reading = self.readings.pop(place, None)
        if reading is not None:
            reading.source.close()
        return reading is not None

    def _tell_assignment(self) -> None:
        self._health.places = frozenset(self.readings)
        self._metrics.assigned_partitions.set(len(self.readings))
        self._metrics.stopped_partitions.set(len(self._health.stopped))
        self._health.recovering = {
            name_of(place): reading.source.trouble
            for place, reading in self.readings.items()
            if reading.source.is_recovering
        }
        self._health.failing = {name_of(place): cause for place, cause in self._reopening.closed.items()}


def name_of(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _names(places: Sequence[Place]) -> list[str]:
    return sorted(map(name_of, places))
