"""Kafka's errors as the errors that end a command."""

from confluent_kafka import KafkaError, KafkaException

from sidecar.errors import KafkaUnreachableError, TimewheelError

SILENCE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._AUTHENTICATION,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""Kafka has not answered, or not let us in."""


def failure(error: KafkaError, words: str) -> TimewheelError:
    """The words, with the exit code of what Kafka has said, or has not."""
    return KafkaUnreachableError(words) if error.code() in SILENCE else TimewheelError(words)


def failure_of(exception: KafkaException) -> TimewheelError:
    """For a call whose failure nobody has put in other words."""
    error: KafkaError = exception.args[0]
    if error.code() in SILENCE:
        return failure(error, f"Kafka answers no more ({error.str()}); check the brokers, and try again")
    return failure(error, f"Kafka refuses: {error.str()}")
