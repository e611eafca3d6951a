"""A transaction's calls, repeated until Kafka answers: a time-out is no abort, for it may have been carried out."""

from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException

from connectors.clock import Clock, Deadline, SystemClock

PATIENCE_S = 60.0
_CALL_TIMEOUT_S = 1.0


def until_answered(call: Callable[[float], object], within_s: float = PATIENCE_S, clock: Clock | None = None) -> None:
    """Make a call, which takes a time-out in seconds, again and again for a bounded time.

    Raises:
        KafkaException: what Kafka has against it; or nothing but silence, and the time is over.
    """
    deadline = Deadline(clock or SystemClock(), within_s)
    while True:
        try:
            call(_CALL_TIMEOUT_S)
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            if error.fatal() or error.txn_requires_abort() or not error.retriable() or deadline.is_over:
                raise
        else:
            return
