"""A consumer with the methods of `confluent_kafka.Consumer`: reading, positions, offsets."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_END, OFFSET_INVALID, KafkaError, Message, TopicPartition

from connectors.contract import Place
from connectors.testing.client import Client, Config
from connectors.testing.errors import RefusedOffsetsError, error, error_message, failure, words
from connectors.testing.faults import Fault, Kind
from connectors.testing.fetching import Fetching
from connectors.testing.groups import Committed
from connectors.testing.membership import Callback, ConsumerGroupMetadata, Membership
from connectors.testing.metadata import cluster_metadata

if TYPE_CHECKING:
    from connectors.testing.kafka import InMemoryKafka
    from connectors.testing.process import Process

CommitAnswer = tuple[KafkaError | None, list[TopicPartition]]
OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]

_FENCED = (
    "Fatal error: Broker: Static consumer fenced by other consumer with same group.instance.id: "
    "Fatal consumer error: Broker: Static consumer fenced by other consumer with same group.instance.id"
)


class InMemoryConsumer(Client):
    """A member of a group (``subscribe``), or a reader of given partitions (``assign``)."""

    def __init__(self, kafka: "InMemoryKafka", process: "Process", config: Config) -> None:
        super().__init__(kafka, process, config)
        if not config.get("group.id"):
            raise ValueError("Consumer expected configuration dict with group.id")
        self._group_id: str = config["group.id"]
        self._is_committed_only = config.get("isolation.level", "read_committed") == "read_committed"
        self._stores_offsets = _is_true(config.get("enable.auto.offset.store", True))
        self._commits_itself = _is_true(config.get("enable.auto.commit", True))
        self._commit_every_ms = float(config.get("auto.commit.interval.ms", 5_000))
        self._committed_ms = kafka.clock.monotonic_ms()
        self._stored: dict[Place, int] = {}
        self._auto_committed: dict[Place, int] = {}
        self._on_commit: OnCommit = config.get("on_commit") or _nobody
        self._commit_answers: deque[CommitAnswer] = deque()
        self._events: list[Message] = []
        self._is_closed = False
        self._fetching = Fetching(
            kafka.topics,
            is_committed_only=self._is_committed_only,
            tells_epochs=kafka.tells_epochs,
            tells_ends=_is_true(config.get("enable.partition.eof", False)),
            reset=config.get("auto.offset.reset", "latest"),
            committed=self._stable_offset,
        )
        self._membership = Membership(self, kafka.groups, self._fetching, config, self._local, self._commit_stored)
        self._is_fenced = False

    # --- membership ---------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        self._open()
        self._before("subscribe")
        for topic in topics:
            if not topic.startswith("^") and topic not in self._kafka.topics:
                code = KafkaError.UNKNOWN_TOPIC_OR_PART
                reason = f"Subscribed topic not available: {topic}: {words(code)}"
                self._events.append(error_message(error(code, reason), topic, 0))
        self._membership.subscribe(topics, on_assign, on_revoke, on_lost)
        self._after("subscribe")

    def unsubscribe(self) -> None:
        self._open()
        self._before("subscribe")
        self._membership.leave()
        self._after("subscribe")

    def assignment(self) -> list[TopicPartition]:
        self._open()
        return [TopicPartition(*place) for place in sorted(self._fetching.partitions)]

    def memberid(self) -> str | None:
        self._open()
        return self._membership.metadata.member_id or None

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        self._open()
        return self._membership.metadata

    def close(self) -> None:
        """Gives the partitions back, through ``on_revoke``; a dynamic member leaves its group, a static one stays."""
        if self._is_closed:
            return
        self._before("close")
        self._membership.leave(is_closing=True)
        self._fetching.unassign()
        self._is_closed = True
        self._tell_commits()
        self._after("close")

    # --- reading ------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> Message | None:
        """One record, event or error; None when the time is up."""
        messages = self._read(1, timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Up to that many; waits the whole timeout out unless they come."""
        return self._read(num_messages, timeout)

    def _read(self, limit: int, timeout_s: float) -> list[Message]:
        self._open()
        fault = self._before("consume", waits=False)
        if fault is not None:
            if fault.kind is Kind.EXPEL:
                self._membership.expel()
            elif fault.kind is Kind.SHORT_READ:
                limit, timeout_s = min(limit, fault.count), 0.0
        messages: list[Message] = []

        def look() -> bool:
            if not self._kafka.is_available:
                return False
            self._membership.serve()
            self._tell_commits()
            if self._events:
                taken = self._events[: limit - len(messages)]
                del self._events[: len(taken)]
                messages.extend(taken)
            if len(messages) < limit:
                self._fetching.fetch(limit, messages)
            return len(messages) >= limit

        if not look() and timeout_s != 0:
            self._kafka.wait(timeout_s, look)
        if self._stores_offsets:
            for message in messages:
                if message.error() is None:
                    self._stored[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1
        if self._commits_itself and self._stored:
            self._commit_now_and_then()
        self._after("consume")
        return messages

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._open()
        self._membership.touch()
        self._fetching.unassign()
        self._fetching.assign(partitions)

    def unassign(self) -> None:
        self._open()
        self._membership.touch()
        self._fetching.unassign()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self._open()
        self._membership.touch()
        for partition in partitions:
            if (partition.topic, partition.partition) in self._fetching.partitions:
                place = f"{partition.topic} [{partition.partition}]"
                raise failure(KafkaError._CONFLICT, f"{place} is already part of the current assignment")
        self._fetching.assign(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self._open()
        self._membership.touch()
        for partition in partitions:
            if (partition.topic, partition.partition) not in self._fetching.partitions:
                place = f"{partition.topic} [{partition.partition}]"
                reason = f"{place} can't be unassigned since it is not in the current assignment"
                raise failure(KafkaError._INVALID_ARG, reason)
        self._fetching.remove([(partition.topic, partition.partition) for partition in partitions])

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._open()
        self._fetching.pause([(partition.topic, partition.partition) for partition in partitions], is_paused=True)

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._open()
        self._fetching.pause([(partition.topic, partition.partition) for partition in partitions], is_paused=False)

    def seek(self, partition: TopicPartition) -> None:
        self._open()
        if not self._fetching.seek(partition):
            reason = f"Failed to seek to offset {partition.offset}: {words(KafkaError._STATE)}"
            raise failure(KafkaError._STATE, reason)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        self._open()
        places = [(partition.topic, partition.partition) for partition in partitions]
        return [TopicPartition(*place, self._fetching.position(place)) for place in places]

    # --- offsets ------------------------------------------------------------------------------------------------------

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Waits for open transactions that hold an offset of these partitions (``read_committed`` only)."""
        self._open()
        began_ms = self._kafka.clock.monotonic_ms()
        fault = self._before("committed", timeout)
        places = [(partition.topic, partition.partition) for partition in partitions]
        group = self._kafka.groups.group(self._group_id)
        reason = "Failed to get committed offsets: "
        if fault is not None and fault.kind is Kind.NOT_COORDINATOR:
            raise failure(KafkaError.NOT_COORDINATOR, reason + words(KafkaError.NOT_COORDINATOR))
        if _has_timed_out(fault) or not self._kafka.wait(
            self._left_s(timeout, began_ms),
            lambda: not self._is_committed_only or not any(place in group.pending for place in places),
        ):
            raise failure(KafkaError._TIMED_OUT, reason + words(KafkaError._TIMED_OUT))
        answers = [_answer(place, group.offsets.get(place)) for place in places]
        if _has_timed_out(self._after("committed", timeout)):
            raise failure(KafkaError._TIMED_OUT, reason + words(KafkaError._TIMED_OUT))
        return answers

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Of a message, of given offsets, or of what has been stored; ``asynchronous``: ``on_commit`` is told."""
        self._open()
        timeout_s = 0.0 if asynchronous else 5.0
        fault = self._before("commit", timeout_s)
        if message is not None:
            wanted = [TopicPartition(message.topic() or "", message.partition() or 0, (message.offset() or 0) + 1)]
        elif offsets is not None:
            wanted = list(offsets)
        else:
            wanted = [TopicPartition(*place, offset) for place, offset in self._stored.items()]
        code = self._commit_code(wanted, fault)
        if code is None and _has_timed_out(self._after("commit", timeout_s)):
            code = KafkaError._TIMED_OUT
        committed = [TopicPartition(p.topic, p.partition, p.offset) for p in wanted]
        if asynchronous:
            if not committed:
                committed = [TopicPartition(*place, OFFSET_INVALID) for place in self._fetching.partitions]
            self._commit_answers.append((None if code is None else error(code), committed))
            return None
        if code is not None:
            raise failure(code, f"Commit failed: {words(code)}")
        return committed

    def store_offsets(self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None) -> None:
        self._open()
        if message is not None:
            self._stored[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1
        for partition in offsets or ():
            self._stored[partition.topic, partition.partition] = partition.offset

    # --- the cluster --------------------------------------------------------------------------------------------------

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """First offset and end: for ``read_committed`` the last stable offset, unless it asks for what is cached."""
        self._open()
        known = self._kafka.log(partition.topic, partition.partition) if cached else None
        if known is not None:  # nobody is asked
            return known.begin, known.end
        if _has_timed_out(self._before("watermarks", timeout)):
            raise failure(KafkaError._TIMED_OUT, f"Failed to get watermark offsets: {words(KafkaError._TIMED_OUT)}")
        log = self._kafka.log(partition.topic, partition.partition)
        if log is None:
            code = KafkaError._UNKNOWN_PARTITION
            raise failure(code, f"Failed to get watermark offsets: {words(code)}")
        if _has_timed_out(self._after("watermarks", timeout)):
            raise failure(KafkaError._TIMED_OUT, f"Failed to get watermark offsets: {words(KafkaError._TIMED_OUT)}")
        return log.begin, log.stable_end if self._is_committed_only else log.end

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """``offset`` is a time in ms here; the answer's is that of the first record not older, or the end."""
        self._open()
        if _has_timed_out(self._before("list_offsets", timeout)):
            raise failure(KafkaError._TIMED_OUT, f"Failed to get offsets: {words(KafkaError._TIMED_OUT)}")
        answers = []
        for partition in partitions:
            log = self._kafka.log(partition.topic, partition.partition)
            found = log.first_at(partition.offset) if log is not None else None
            answers.append(TopicPartition(partition.topic, partition.partition, found[0] if found else OFFSET_END))
        self._after("list_offsets", timeout)
        return answers

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self._open()
        if _has_timed_out(self._before("metadata", timeout)) or _has_timed_out(self._after("metadata", timeout)):
            raise failure(KafkaError._TRANSPORT, f"Failed to get metadata: {words(KafkaError._TRANSPORT)}")
        return cluster_metadata(self._kafka.topics, topic)

    # --- what the broker and the process do to it ---------------------------------------------------------------------

    @property
    def is_responsive(self) -> bool:
        """Whether heartbeats come."""
        return not self._is_closed and self.process.is_running

    def fence(self) -> None:
        """Another consumer has taken this one's ``group.instance.id``: fatal, and told once."""
        if self._is_fenced or self._is_closed:
            return
        self._is_fenced = True
        self._membership.fence()
        self._fetching.unassign()
        self._events.append(error_message(error(KafkaError._FATAL, _FENCED), partition=0))

    def stopped(self, *, was_heard: bool) -> None:
        if was_heard and not self._is_closed:
            self._membership.silent()

    def woken(self) -> None:
        self._membership.heard()

    # ------------------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._is_closed:
            raise RuntimeError("Consumer closed")

    def _stable_offset(self, place: Place) -> int | None:
        """The committed offset, -1 where there is none; None while a transaction holds another one."""
        group = self._kafka.groups.group(self._group_id)
        if self._is_committed_only and place in group.pending:
            return None
        found = group.offsets.get(place)
        return -1 if found is None else found.offset

    def _commit(self, offsets: Sequence[TopicPartition]) -> None:
        metadata = self._membership.metadata
        self._kafka.groups.commit(
            self._group_id,
            [((p.topic, p.partition), p.offset, p.metadata) for p in offsets],
            metadata.generation,
            metadata.member_id,
            metadata.instance_id,
        )

    def _commit_stored(self, places: Sequence[Place]) -> None:
        """What auto-commit owes for partitions that go away."""
        going = [TopicPartition(*place, self._stored.pop(place)) for place in places if place in self._stored]
        if going and self._commits_itself and not self._is_fenced:
            self._try_commit(going)

    def _commit_now_and_then(self) -> None:
        now_ms = self._kafka.clock.monotonic_ms()
        if now_ms - self._committed_ms >= self._commit_every_ms:
            self._committed_ms = now_ms
            if self._stored != self._auto_committed:
                self._auto_committed = dict(self._stored)
                self._try_commit([TopicPartition(*place, offset) for place, offset in self._stored.items()])

    def _try_commit(self, offsets: Sequence[TopicPartition]) -> None:
        """What is refused the next owner reads again."""
        refused = None
        try:
            self._commit(offsets)
        except RefusedOffsetsError as exception:
            refused = error(exception.code)
        told = {(p.topic, p.partition): p for p in offsets}
        for place in self._fetching.partitions:
            told.setdefault(place, TopicPartition(*place, OFFSET_INVALID))
        self._commit_answers.append((refused, list(told.values())))

    def _commit_code(self, offsets: Sequence[TopicPartition], fault: Fault | None) -> int | None:
        """Commit; what a refusal says."""
        if not offsets:
            return KafkaError._NO_OFFSET
        if _has_timed_out(fault):
            return KafkaError._TIMED_OUT
        if fault is not None and fault.kind is Kind.NOT_COORDINATOR:
            return KafkaError.NOT_COORDINATOR
        if self._is_fenced:
            return KafkaError._FATAL
        try:
            self._commit(offsets)
        except RefusedOffsetsError as refused:
            return refused.code
        return None

    def _tell_commits(self) -> None:
        while self._commit_answers:
            self._on_commit(*self._commit_answers.popleft())


def _answer(place: Place, committed: Committed | None) -> TopicPartition:
    if committed is None:
        return TopicPartition(*place, OFFSET_INVALID)
    if committed.metadata is None:
        return TopicPartition(*place, committed.offset)
    return TopicPartition(*place, committed.offset, committed.metadata)


def _nobody(_error: KafkaError | None, _partitions: list[TopicPartition]) -> None:
    """Who is told where there is no ``on_commit``."""


def _has_timed_out(fault: Fault | None) -> bool:
    return fault is not None and fault.kind is Kind.TIME_OUT


def _is_true(value: object) -> bool:
    return value is True or str(value).lower() in ("true", "t", "1")
