"""What a transactional producer may be asked for in which state, and how it says no (librdkafka's `rdkafka_txnmgr`).

Init ── init ──► Ready ◄── commit, abort ── InTransaction ── a record or a call fails ──► AbortableError
                   └──────── begin ────────────►┘                                            │ abort ──► Ready
from anywhere: ── fenced ──► FatalError; without transactions: ── a gap ──► FatalError
"""

from enum import StrEnum

from confluent_kafka import KafkaError, KafkaException

from connectors.testing.errors import failure, words

FENCED = words(KafkaError._FENCED)


class State(StrEnum):
    """By the names that librdkafka's messages use."""

    INIT = "Init"
    READY = "Ready"
    IN_TRANSACTION = "InTransaction"
    ABORTABLE = "AbortableError"
    FATAL = "FatalError"


class TransactionState:
    """One producer's."""

    def __init__(self, *, is_transactional: bool) -> None:
        self.state = State.INIT
        self.is_done = False
        """The broker has done what the call under way asks for; only the answer is missing."""
        self.needs_epoch = False
        self._is_transactional = is_transactional
        self._call: str | None = None
        self._error: tuple[int, str] | None = None
        self._is_error_told = False

    def has_failed(self) -> bool:
        return self.state in (State.ABORTABLE, State.FATAL)

    def begin_call(self, name: str, *allowed: State) -> None:
        """Raises KafkaException when the call does not fit the state, or another one has to be repeated first."""
        if self._call is not None and self._call != name:
            reason = f"Conflicting {self._call} API call is already in progress"
            raise failure(KafkaError._CONFLICT, reason, retriable=True)
        if self.state not in allowed:
            self.raise_error()
            raise failure(KafkaError._STATE, f"Operation not valid in state {self.state}")
        self._call = name

    def check_produce(self) -> None:
        if self.state is State.FATAL:
            raise failure(KafkaError._FATAL, f"Unable to produce message: {words(KafkaError._FATAL)}")
        if self._is_transactional and (self.state is not State.IN_TRANSACTION or self._call is not None):
            raise failure(KafkaError._STATE, f"Unable to produce message: {words(KafkaError._STATE)}")

    def raise_error(self) -> None:
        """Raises the error of the failed transaction or of the producer, if there is one."""
        if self._error is not None and self.has_failed():
            self._call = None
            is_fatal = self.state is State.FATAL
            raise failure(*self._error, fatal=is_fatal, abort=not is_fatal)

    def tell_fatal(self) -> None:
        """Raises the fatal error of a producer without transactions, once."""
        if self.state is State.FATAL and not self._is_transactional and not self._is_error_told:
            self._is_error_told = True
            self.raise_error()

    def end_call(self) -> None:
        self._call = None

    def settle(self, state: State) -> None:
        """The call has been answered."""
        self.state, self._call, self._error, self.is_done, self.needs_epoch = state, None, None, False, False

    def abortable(self, code: int, reason: str) -> KafkaException:
        """The transaction can only be aborted; returns what to raise. The first error stays."""
        if not self.has_failed():
            self.state, self._error = State.ABORTABLE, (code, reason)
        self._call, self.is_done = None, False
        return failure(*(self._error or (code, reason)), abort=True)

    def fatal(self, code: int, reason: str) -> KafkaException:
        """The producer is of no more use; returns what to raise."""
        if self.state is not State.FATAL:
            self.state, self._error = State.FATAL, (code, reason)
        self._call = None
        return failure(*(self._error or (code, reason)), fatal=True)
