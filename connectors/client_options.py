"""The user's librdkafka options: which client understands them, and which of them are not the user's to choose.

One dictionary describes the cluster (addresses, TLS, SASL, callbacks) to every client that the library makes. What only
the other kind of client understands is left out, by librdkafka's own list (CONFIGURATION.md, columns C and P).
"""

from collections.abc import Mapping
from typing import Any

_CONSUMER_ONLY = frozenset(
    {
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "check.crcs",
        "coordinator.query.interval.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "on_commit",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "session.timeout.ms",
    }
)

_PRODUCER_ONLY = frozenset(
    {
        "acks",
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "compression.type",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "dr_cb",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "linger.ms",
        "message.send.max.retries",
        "message.timeout.ms",
        "on_delivery",
        "partitioner",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "queuing.strategy",
        "request.required.acks",
        "request.timeout.ms",
        "retries",
        "sticky.partitioning.linger.ms",
        "topic.metadata.propagation.max.ms",
        "transaction.timeout.ms",
        "transactional.id",
    }
)


class ProtectedOptionError(ValueError):
    """A librdkafka option that the library's promises hang on is set to something else."""


Protected = Mapping[str, tuple[Any, str]]
"""Option -> the value it has, and why."""

_NESTED = {"default.topic.config": (None, "librdkafka has done away with it; what is in it goes beside the others")}

SCHEDULING: Protected = {
    **_NESTED,
    "partitioner": ("murmur2_random", "keys have to land where a Java producer puts them, and a cancel its message"),
    "enable.idempotence": (True, "a repeated request must not schedule twice"),
    "acks": ("all", "a receipt is given for what no broker's death can lose"),
    "request.required.acks": ("all", "a receipt is given for what no broker's death can lose"),
    "transactional.id": (None, "records are scheduled one by one"),
    "delivery.report.only.error": (False, "receipts are made of delivery reports"),
    "dr_cb": (None, "receipts are made of delivery reports; pass on_receipt to begin_send"),
    "on_delivery": (None, "receipts are made of delivery reports; pass on_receipt to begin_send"),
}

RETRYING: Protected = {
    **_NESTED,
    "enable.auto.commit": (False, "offsets are committed for what has been handled, and for nothing else"),
    "auto.commit.enable": (False, "offsets are committed for what has been handled, and for nothing else"),
    "enable.auto.offset.store": (False, "offsets are committed for what has been handled, and for nothing else"),
    "isolation.level": ("read_committed", "retries are exactly once for readers of what is committed"),
    "on_commit": (None, "the consumer repeats commits that fail"),
}


def check_protected(config: Mapping[str, Any], protected: Protected) -> None:
    """Raises ProtectedOptionError, which names the option, unless it is absent or as it has to be."""
    for name in sorted(protected.keys() & config.keys()):
        required, reason = protected[name]
        if _text(config[name]) not in {_text(required), *_SAME.get(_text(required), ())}:
            remedy = "leave it out" if required is None else f"leave it out, or set it to {_text(required)}"
            raise ProtectedOptionError(f"the option {name} cannot be set to {config[name]!r}: {reason}; {remedy}")


def for_producer(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a producer understands."""
    return {name: value for name, value in config.items() if name not in _CONSUMER_ONLY}


def for_consumer(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a consumer understands."""
    return {name: value for name, value in config.items() if name not in _PRODUCER_ONLY}


def for_admin(config: Mapping[str, Any]) -> dict[str, Any]:
    """What every client understands."""
    return for_producer(for_consumer(config))


_SAME = {"all": ("-1",), "true": ("1", "t"), "false": ("0", "f")}


def _text(value: object) -> str:
    return str(value).lower()
