"""What Kafka may have against a record, or a reader: what repeating does not mend, and what passes by itself."""

from confluent_kafka import KafkaError

REFUSALS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""Errors of a record or its destination that repeating does not mend."""

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})
"""The record, of `REFUSALS`."""

MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
"""The topic or the partition, of `REFUSALS`."""

CLOSED = MISSING | {KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""The topic takes nothing of ours, whatever the record; of `REFUSALS`."""

PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._FENCED,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._PURGE_QUEUE,
        KafkaError._STATE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.PRODUCER_FENCED,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_PRODUCER_ID,
    }
)
"""Errors that a record has because of the state of a broker, of the client or of the transaction."""

DAMAGED = frozenset({KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.INVALID_MSG})
"""A batch that is read cannot be what was written; librdkafka tells it again and again, and reads no further."""

HOW_TO_MEND = (
    "a batch is damaged on the broker that leads the partition: let a replica lead that has it whole "
    "('kafka-leader-election.sh'), and make the damaged one anew"
)


def is_fatal(error: KafkaError) -> bool:
    """Whether the client that tells it is of no more use; what says so once refuses with _FATAL afterwards."""
    return error.fatal() or error.code() == KafkaError._FATAL


def is_about_group(error: KafkaError | None) -> bool:
    """Of no matter to a reader that commits nothing: librdkafka wants a group, and looks for its coordinator."""
    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def remedy(refusal: KafkaError, topic: str) -> str:
    """What an operator can do about a refusal."""
    if refusal.code() in TOO_LARGE:
        return f"raise max.message.bytes of {topic}"
    if refusal.code() in MISSING:
        return f"make {topic} with 'timewheel topics create'"
    if refusal.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return f"allow the client to write to {topic}"
    if refusal.code() == KafkaError.INVALID_RECORD:
        return f"give it a key: {topic} is compacted, most likely, and takes no record without one"
    return f"see what the brokers have against it, and how {topic} is configured"


def with_remedy(error: KafkaError, topic: str) -> KafkaError:
    """The same error; of a refusal, the words name the topic and what can be done."""
    if error.code() not in REFUSALS:
        return error
    words = f"{error.str()}; {remedy(error, topic)}"
    return KafkaError(error.code(), words, error.fatal(), error.retriable(), error.txn_requires_abort())
