"""What can go wrong with an audit; every message says what to do about it."""


class AuditError(Exception):
    """The audit cannot be carried out."""


class MissingSparkError(AuditError):
    """Spark, or what it needs, is not installed or cannot be fetched."""


class NotAnsweredError(AuditError):
    """Kafka does not answer."""
