"""What can go wrong with dead letters, in sentences for the operator."""


class DeadLettersError(Exception):
    """The dead letters cannot be read or redriven."""


class NoSuchGroupError(DeadLettersError):
    """The group has no dead-letter topic."""


class RefusedError(DeadLettersError):
    """Kafka refuses to make a topic, all that is to be written, or what this login may not do."""


class DamagedError(RefusedError):
    """A batch of a topic cannot be read: it is damaged on the broker that leads the partition."""


class TakenOverError(DeadLettersError):
    """Another redrive of the same group has begun, or seems to have: this one can commit nothing more."""


class NotAnsweredError(DeadLettersError):
    """Kafka does not answer."""
