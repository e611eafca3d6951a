"""Errors as librdkafka words and flags them, and the crash that no `except Exception` may swallow."""

from confluent_kafka import KafkaError, KafkaException, Message


class SimulatedCrash(BaseException):
    """The process is gone. Not an `Exception`, so that nothing under test handles it."""


class ProducerFencedError(Exception):
    """The broker has given this transactional id a newer epoch."""


class RefusedOffsetsError(Exception):
    """The group coordinator refuses an offset commit."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


TIMED_OUT = "Timed out waiting for operation to finish, retry call to resume"


def failure(
    code: int, reason: str | None = None, *, fatal: bool = False, retriable: bool = False, abort: bool = False
) -> KafkaException:
    """An exception with its `KafkaError` as `args[0]`, like the real clients'."""
    return KafkaException(error(code, reason, fatal=fatal, retriable=retriable, abort=abort))


def error(
    code: int, reason: str | None = None, *, fatal: bool = False, retriable: bool = False, abort: bool = False
) -> KafkaError:
    return KafkaError(code, reason, fatal, retriable, abort)


def words(code: int) -> str:
    """Librdkafka's own sentence for an error code, such as ``Broker: Unknown member``."""
    return KafkaError(code).str()


def error_message(
    event: KafkaError, topic: str | None = None, partition: int | None = None, offset: int | None = None
) -> Message:
    """What ``poll`` hands out instead of a record; its value is the error's sentence."""
    known = {"topic": topic, "partition": partition, "offset": offset}
    return Message(
        value=event.str().encode(),
        error=event,
        timestamp=(0, -1),
        **{name: value for name, value in known.items() if value is not None},  # type: ignore[arg-type]
    )
