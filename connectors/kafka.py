"""Construction of the Kafka clients: the options exactly-once delivery depends on, in one place.

Figures behind the values are from a broker on the same machine (see docs/adr).
"""

import logging
from collections.abc import Mapping
from typing import Any

_log = logging.getLogger("librdkafka")

PROTECTED_OPTIONS = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "metadata.broker.list",
        "partitioner",
        "request.required.acks",
        "transactional.id",
    }
)
"""librdkafka options that users cannot override: the guarantee hangs on them."""

Config = dict[str, Any]

UNPOLLED = {"metadata.recovery.strategy": "none"}
"""For clients that nobody polls while they wait for brokers.

By default librdkafka begins anew with ``bootstrap.servers`` whenever all brokers are down: up to twenty times a second,
each time with events that stay in memory until somebody polls (its issue 5546). In an outage of a night that is a core
and gigabytes. With this, a client that has known brokers finds none again where all of them have other addresses than
before: one that has long been without has to be made anew. The sidecar's are, when the group's session times out.
"""

BY_KEY = -1
"""The partition of a record whose key decides."""

NO_TOPIC_IDS = "AAAAAAAAAAAAAAAAAAAAAA"
"""What is told of every topic by brokers that know no ids."""

HEADER_ERRORS = (UnicodeDecodeError, SystemError)
"""What asking a message for its headers raises where a name is not UTF-8: confluent-kafka wraps the one in the other.

Ask a message once only: the second answer is a list with a null pointer in it."""

TRANSACTION_LINGER_MS = 5
"""Fewer, larger requests while a batch is being produced: 4.4 instead of 6.5 µs of CPU a record, 1.5 times the rate.

Nothing waits for it: a commit sends at once what is left (one record, committed: 2.5 ms, with 0 it is 3.5 ms).
"""


def common_config(bootstrap_servers: str, options: Mapping[str, str], client_id: str) -> Config:
    """What every client shares; the user's options come last but for the ones a client protects."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "client.id": client_id,
        "logger": _log,
        # A broker that restarts is asked again soon; librdkafka's default maximum is 10 s.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        **options,
    }


def consumer_config(
    bootstrap_servers: str,
    options: Mapping[str, str],
    *,
    group_id: str,
    instance_id: str | None,
    session_timeout_ms: int,
) -> Config:
    """The sidecar's consumer.

    Args:
        instance_id: for static membership; None for a dynamic member.
    """
    config = {
        # A wait ends as soon as there is a record, but not for a partition that was paused when it began: the first
        # records of one that is resumed come so late.
        "fetch.wait.max.ms": 100,
        "fetch.queue.backoff.ms": 5,
        # What librdkafka holds for a partition is thrown away when that partition is paused: keep it small.
        "queued.min.messages": 20_000,
        "queued.max.messages.kbytes": 32_768,
        # How soon partitions that a topic gets later are read; librdkafka's default is 5 minutes.
        "topic.metadata.refresh.interval.ms": 30_000,
        **common_config(bootstrap_servers, options, f"{group_id}-consumer"),
        "group.id": group_id,
        "group.protocol": "classic",  # a static member that returns is fatal under KIP-848 (librdkafka 2.16)
        "session.timeout.ms": session_timeout_ms,
        "heartbeat.interval.ms": max(1, min(3_000, session_timeout_ms // 3)),
        # Not cooperative: a static member that dies between giving partitions up and rejoining comes back to what is
        # left, without a rebalance, and nobody has the others.
        "partition.assignment.strategy": "roundrobin",
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    if instance_id is not None:
        config["group.instance.id"] = instance_id
    return config


def producer_config(
    bootstrap_servers: str, options: Mapping[str, str], client_id: str, *, linger_ms: int = 0
) -> Config:
    """An idempotent producer that places keys where a Java producer would (murmur2)."""
    return {
        "linger.ms": linger_ms,
        # The topics decide how large a record may be, not the client; batches stay below 1 MB all the same.
        "message.max.bytes": 16_000_000,
        "batch.size": 1_000_000,
        "batch.num.messages": 100_000,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
        "delivery.report.only.error": True,
        # Markers of the transaction before make the broker say "try again" for a few ms (default 100).
        "retry.backoff.ms": 2,
        "retry.backoff.max.ms": 250,
        **common_config(bootstrap_servers, options, client_id),
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
    }


def transactional_config(
    bootstrap_servers: str, options: Mapping[str, str], *, transactional_id: str, transaction_timeout_ms: int
) -> Config:
    """A producer whose records appear to ``read_committed`` readers all at once, with the progress, or not at all."""
    return {
        **producer_config(bootstrap_servers, options, transactional_id, linger_ms=TRANSACTION_LINGER_MS),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": transaction_timeout_ms,
        **delivery_timeout(transaction_timeout_ms),
    }


def delivery_timeout(transaction_timeout_ms: int) -> Config:
    """How long a producer tries to have a record taken.

    Sooner over than Kafka aborts the transaction, which tells no more which partition has not taken its records.
    """
    return {"message.timeout.ms": transaction_timeout_ms // 2}
