"""The errors that end a command, each with the exit code that scripts rely on."""

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class TimewheelError(Exception):
    """A failure with a sentence for the operator."""

    exit_code = 1


class UsageError(TimewheelError):
    """The command line or a setting cannot be used."""

    exit_code = 2


class KafkaUnreachableError(TimewheelError):
    """Kafka did not answer."""

    exit_code = 3


class DataDirectoryError(TimewheelError):
    """The data directory, or the identity that goes with it, is in use or cannot be read."""

    exit_code = 4


class TopicsError(TimewheelError):
    """The schedule topics are missing or not fit for their use."""


class ClientsLostError(TimewheelError):
    """The clients are of no more use: drop all state and start over from the progress committed in Kafka."""


class FencedError(ClientsLostError):
    """Kafka has given this sidecar's transactional ids to somebody else, or its transaction has taken too long."""


class StoppedWaitingError(Exception):
    """A stop was asked for while Kafka did not answer; the outcome is settled at the next start."""


def to_keep(error: E) -> E:
    """An error, for whoever keeps it: less the frames that it came through, and with them all that those hold."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
