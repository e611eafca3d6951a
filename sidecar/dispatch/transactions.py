"""How a batch of records and the progress that goes with it become final: all of it, or nothing.

`ExactlyOnce` is two transactional producers in turn. A transaction begun right after a commit on the same producer
meets CONCURRENT_TRANSACTIONS while the markers of the one before are being written; begun on the other, it does not.
The second begins only after the first's commit has been answered.

`AtLeastOnce` is for clusters without transactions: first the records, then the progress.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from connectors.in_turns import flush_in_turns
from sidecar.dispatch.call_thread import Call, Caller, CallThread
from sidecar.errors import ClientsLostError, FencedError, StoppedWaitingError, UsageError

CALL_TIMEOUT_S = 1.0
"""How long one call waits before it is repeated; between two, a stop is noticed."""

AGAIN_AFTER_S = 0.1
"""How long to wait before a commit is repeated that was refused at once."""

COMMIT_STUCK_AFTER_S = 20.0
"""Without transactions the records are there: new clients would send them again, so the commit gets more time."""

_COORDINATOR_AWAY = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""What a consumer's commit fails of while its group has no coordinator; the client calls none of them retriable."""

_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})

Produce = Callable[..., object]

log = structlog.get_logger("timewheel.dispatch")

Refusal = tuple[str, int, KafkaError]
"""What Kafka said of a single record: topic, partition, error."""


class TransactionAbortedError(Exception):
    """The transaction was aborted: nothing of it is visible, and its records may be tried again."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(str(error))
        self.error = error


class Publishing(Protocol):
    """One batch at a time: ``begin``, any number of ``produce``, then ``commit`` and ``settle``, or ``abort``."""

    produce: Produce
    """``produce(topic, value, key, partition, None, None, 0, headers)``, the client's own: the hot path has no wrapper,
    and no keywords, which would cost 0.14 µs of its 0.7. Not given: two callbacks and the timestamp."""

    def begin(self) -> None:
        """Open a batch."""

    def make_room(self) -> None:
        """The producer's queue is full: let it send."""

    def look_up(self, topic: str) -> None:
        """Let the clients hear which partitions the topic has: they have last asked minutes ago, perhaps."""

    def refused(self, topic: str, partition: int, error: KafkaError) -> None:
        """``produce`` has refused a record of the open batch."""

    def commit(self, offsets: list[TopicPartition]) -> None:
        """Begin to make the records and the offsets final; `settle` tells the outcome."""

    def settle(self, *, in_rebalance: bool = False) -> None:
        """Wait for the commit.

        Args:
            in_rebalance: the consumer is telling of a revocation, and answers no call of its own meanwhile.

        Raises:
            TransactionAbortedError: nothing became visible; `abort` must follow.
            StoppedWaitingError: a stop was asked for and Kafka does not answer.
            ClientsLostError: the clients are of no more use.
        """

    def abort(self) -> list[Refusal]:
        """Make sure that nothing of the open batch becomes visible; what Kafka said of single records.

        Innocents in the same batch as a guilty record are among them. Only now are the reports complete: librdkafka
        hands them out when it flushes.
        """

    def close(self) -> None:
        """Release the producers without waiting; what is open ends at the next start, or by its time-out."""


class _OnOneProducer:
    """What both ways do with the producer of the open batch."""

    _producer: Producer
    _producers: Sequence[Producer]
    _failures: list[Refusal]

    def make_room(self) -> None:
        self._serve(self._producer.poll, 0.05)

    def look_up(self, topic: str) -> None:
        for producer in self._producers:
            with suppress(KafkaException):
                producer.list_topics(topic, timeout=CALL_TIMEOUT_S)

    def refused(self, topic: str, partition: int, error: KafkaError) -> None:
        self._failures.append((topic, partition, error))

    def _serve(self, call: Callable[[float], int], timeout_s: float) -> int:
        """``poll`` or ``flush``, which tell once that the producer is of no more use."""
        try:
            return call(timeout_s)
        except KafkaException as exception:
            raise lost_in(call.__name__, exception.args[0]) from exception


class ExactlyOnce(_OnOneProducer):
    """Records and progress in one Kafka transaction.

    Args:
        producers: two transactional producers, not yet initialised.
        group_metadata: the consumer's, asked for at each commit, so that a stale generation is refused.
        failures: where the producers' delivery callback (`collect_failures`) puts what failed.
        is_stopping: whether to give up waiting for a broker that does not answer.
        make_caller: what runs the blocking calls; gets a function that counts Kafka's answers.

    Every method may raise ClientsLostError: the producers are of no more use.
    """

    def __init__(
        self,
        producers: Sequence[Producer],
        group_metadata: Callable[[], Any],
        failures: list[Refusal],
        is_stopping: Callable[[], bool],
        make_caller: Callable[[Callable[[], int]], Caller] = CallThread,
    ) -> None:
        self._producers = producers
        self._group_metadata = group_metadata
        self._failures = failures
        self._is_stopping = is_stopping
        self._answers = 0
        self._caller = make_caller(lambda: self._answers)
        self._turn = 0
        self._producer = producers[0]
        self.produce: Produce = self._producer.produce
        try:
            self._call(self._init_transactions)
        except BaseException:
            self._caller.close()  # its thread would hold the producers, with threads and connections of their own
            raise

    def _init_transactions(self) -> None:
        """Ends what an earlier life of these ids has left open, and fences it.

        Raises:
            UsageError: the brokers allow no transaction to take as long as the settings do.
        """
        for producer in self._producers:
            self._until_answered(producer.init_transactions, "init_transactions")

    def begin(self) -> None:
        self._producer = self._producers[self._turn % len(self._producers)]
        self.produce = self._producer.produce
        self._failures.clear()
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise lost_in("begin_transaction", error.args[0]) from error

    def commit(self, offsets: list[TopicPartition]) -> None:
        producer, metadata = self._producer, self._group_metadata()

        def finish() -> None:
            # 1. The progress joins the transaction, under the consumer's generation: an owner of yesterday is refused.
            self._until_answered(
                lambda timeout_s: producer.send_offsets_to_transaction(offsets, metadata, timeout_s), "send_offsets"
            )
            # 2. A time-out is not an abort: the same call is repeated on the same producer until it answers.
            self._until_answered(producer.commit_transaction, "commit_transaction")

        self._caller.submit(finish)

    def settle(self, *, in_rebalance: bool = False) -> None:
        self._caller.result(self._is_stopping)
        # 3. Only now may the other producer begin.
        self._turn += 1

    def abort(self) -> list[Refusal]:
        producer = self._producer
        try:
            self._call(lambda: self._until_answered(producer.abort_transaction, "abort_transaction"))
        except TransactionAbortedError as error:
            raise lost_in("abort_transaction", error.error) from error
        self._serve(producer.poll, 0)
        self._turn += 1
        return self._failures[:]

    def close(self) -> None:
        self._caller.close()
        # A call that is stuck holds this, and its producer, for as long as the process lives: nothing else stays.
        for producer in self._producers:
            _let_go(producer)
        self._producers = ()
        del self._producer, self.produce

    def _call(self, call: Call) -> None:
        self._caller.submit(call)
        self._caller.result(self._is_stopping)

    def _until_answered(self, call: Callable[[float], object], name: str) -> None:
        """Repeat a call until Kafka has answered it for good."""
        while True:
            try:
                call(CALL_TIMEOUT_S)
            except KafkaException as exception:
                self._answers += 1
                error: KafkaError = exception.args[0]
                if error.fatal():
                    raise lost_in(name, error) from exception
                if error.txn_requires_abort():
                    raise TransactionAbortedError(error) from exception
                if not error.retriable() and error.code() != KafkaError._TIMED_OUT:
                    raise lost_in(name, error) from exception
                if self._is_stopping():
                    raise StoppedWaitingError(f"{name}: {error}") from exception
                log.info("kafka does not answer yet", call=name, reason=str(error))
            else:
                self._answers += 1
                return


class AtLeastOnce(_OnOneProducer):
    """Records first, then the progress: a crash between the two sends again.

    Args:
        commit_offsets: the consumer's ``commit``.
    """

    def __init__(
        self,
        producer: Producer,
        commit_offsets: Callable[..., object],
        failures: list[Refusal],
        is_stopping: Callable[[], bool],
        make_caller: Callable[[], Caller] = lambda: CallThread(lambda: 0, COMMIT_STUCK_AFTER_S),
    ) -> None:
        self._producer, self._producers = producer, (producer,)
        self._commit_offsets = commit_offsets
        self._failures = failures
        self._is_stopping = is_stopping
        self._caller = make_caller()
        self._offsets: list[TopicPartition] = []
        self.produce: Produce = producer.produce

    def begin(self) -> None:
        self._failures.clear()

    def commit(self, offsets: list[TopicPartition]) -> None:
        self._offsets = offsets

    def settle(self, *, in_rebalance: bool = False) -> None:
        while self._flush():
            if self._is_stopping():
                raise StoppedWaitingError("flush: kafka does not answer")
        if self._failures:
            raise TransactionAbortedError(self._failures[0][2])
        offsets = self._offsets

        def commit() -> None:
            self._commit_offsets(offsets=offsets, asynchronous=in_rebalance)

        while True:
            try:
                if in_rebalance:  # only this thread is heard then, and nobody answered; yet it is sent before all else
                    commit()
                else:
                    self._caller.submit(commit)
                    self._caller.result(self._is_stopping)
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                if not error.retriable() and error.code() not in _COORDINATOR_AWAY:
                    raise TransactionAbortedError(error) from exception
                if self._is_stopping():
                    raise StoppedWaitingError(f"commit: {error}") from exception
                # The records are there: to begin again with them would send them twice, each time.
                log.info("kafka does not answer yet", call="commit", reason=str(error))
                self._serve(self._producer.poll, AGAIN_AFTER_S)
            else:
                return

    def abort(self) -> list[Refusal]:
        """Nothing can be taken back; what was refused will be tried again."""
        self._flush()
        return self._failures[:]

    def _flush(self) -> int:
        def flush(timeout_s: float) -> int:
            return flush_in_turns(self._producer.flush, timeout_s)

        return self._serve(flush, CALL_TIMEOUT_S)

    def close(self) -> None:
        self._caller.close()
        _let_go(self._producer)


def collect_failures(failures: list[Refusal]) -> Callable[[KafkaError | None, Message], None]:
    """A delivery callback that keeps what failed."""

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append((message.topic() or "", message.partition() or 0, error))

    return on_delivery


def lost_in(call: str, error: KafkaError) -> ClientsLostError | UsageError:
    """What is to be raised for an answer after which the producers are of no more use, or never will be of any."""
    if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return UsageError(
            "transaction_timeout is longer than the brokers allow; set it to their transaction.max.timeout.ms or less"
        )
    return (FencedError if error.code() in _FENCED else ClientsLostError)(f"{call}: {error}")


def _let_go(producer: Producer) -> None:
    """Forget the records that a producer has not sent."""
    with suppress(KafkaException):  # why it is of no more use: whoever serves its reports is told once more
        producer.purge()
        producer.poll(0)
