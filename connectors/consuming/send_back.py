"""Asking the sidecar for another attempt (RocketMQ's ``CONSUMER_SEND_MSG_BACK``).

The record on the send-back topic is the failed one as the consumer saw it, with these headers in place of any it had:

    CONSUMER_GROUP        who failed
    RETRY_TOPIC           the first topic, the same for every attempt
    ORIGIN_MESSAGE_ID     the first id, the same for every attempt
    RECONSUME_TIME        how often it had failed before
    MAX_RECONSUME_TIMES   after which it is a dead letter
    DELAY                 the delay level, where one is wished; -1: a dead letter at once
"""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from connectors.client_options import for_producer
from connectors.clients import Clients
from connectors.consuming.message import ConsumedMessage
from connectors.consuming.settings import ENDLESS, MOST_RECONSUME_TIMES, ConsumerSettings
from connectors.contract import DEFAULT_MAX_RECONSUME_TIMES, Headers
from connectors.header_names import (
    CONSUMER_GROUP,
    DELAY,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    RETRY_TOPIC,
)
from connectors.kafka import BY_KEY
from connectors.lasting_producer import LastingProducer, OnDelivery

_OF_A_BATCH = frozenset(
    {
        KafkaError.INVALID_RECORD,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
"""What Kafka has against one record fails all that share its batch; sent alone, the others are taken."""

DEAD_LETTER = -1
"""The delay level that means no further attempt."""

OnAnswer = Callable[[KafkaError | None], None]
"""Told None once Kafka has the record, else why it is not known to have it."""

_REPLACED = frozenset({CONSUMER_GROUP, RETRY_TOPIC, ORIGIN_MESSAGE_ID, RECONSUME_TIME, MAX_RECONSUME_TIMES, DELAY})


def send_back_headers(message: ConsumedMessage, settings: ConsumerSettings, level: int | None) -> Headers:
    """Replaced, never appended: there are as many after sixteen attempts as after one.

    The origin is believed where `as_consumed` believes it: elsewhere a header that an application has copied on would
    give many messages one id.
    """
    told = message.header(ORIGIN_MESSAGE_ID) if message.read_topic == settings.retry_topic else None
    origin = told or message.message_id.encode()
    headers: Headers = [header for header in message.headers if header[0] not in _REPLACED]
    headers += [
        (CONSUMER_GROUP, settings.group.encode()),
        (RETRY_TOPIC, message.topic.encode()),
        (ORIGIN_MESSAGE_ID, origin),
        (RECONSUME_TIME, b"%d" % message.reconsume_times),
    ]
    if settings.max_reconsume_times != ENDLESS:
        headers.append((MAX_RECONSUME_TIMES, b"%d" % settings.max_reconsume_times))
    elif level is not None and level < 0 and message.reconsume_times >= DEFAULT_MAX_RECONSUME_TIMES:
        # It is given up, and its letter is not to look as if it had used up what others are allowed.
        headers.append((MAX_RECONSUME_TIMES, b"%d" % min(message.reconsume_times + 1, MOST_RECONSUME_TIMES)))
    if level:
        headers.append((DELAY, b"%d" % level))
    return headers


class SendBack:
    """The producer of these records. Only the loop's thread touches it.

    Args:
        config: the consumer's librdkafka options, and the producer's own on top.
    """

    def __init__(self, clients: Clients, config: Mapping[str, Any], settings: ConsumerSettings) -> None:
        self._settings = settings
        options = {
            # Whether the local retry has to help is known soon.
            "message.timeout.ms": 10_000,
            "linger.ms": 5,
            # How large a record may be is the topic's business.
            "message.max.bytes": 16_000_000,
            "allow.auto.create.topics": False,
            # A send-back topic that does not exist is told as that, and not as a time-out.
            "topic.metadata.propagation.max.ms": 3_000,
            **for_producer(config),
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
        }
        self._clients = clients
        self._alone = {**options, "batch.num.messages": 1}
        self._producers = [LastingProducer(clients, options)]
        """The second one, for what has to go alone, is made when it is needed."""

    def send(self, message: ConsumedMessage, level: int | None, on_answer: OnAnswer) -> None:
        """The answer comes at once where the client refuses the record, else from within `serve`."""

        def on_delivery(error: KafkaError | None, _delivered: Message) -> None:
            if error is not None and error.code() in _OF_A_BATCH:
                self._produce(self._lone_producer(), message, level, on_answer, lambda error, _: on_answer(error))
            else:
                on_answer(error)

        self._produce(self._producers[0], message, level, on_answer, on_delivery)

    def serve(self, timeout_s: float = 0.0) -> None:
        """Tell of the answers that have come."""
        for producer in self._producers[1:]:
            producer.poll()
        self._producers[0].poll(timeout_s)

    def close(self) -> None:
        """What has not been acknowledged is not committed either, and is read again."""
        for producer in self._producers:
            producer.flush(0)

    def _lone_producer(self) -> LastingProducer:
        if len(self._producers) == 1:
            self._producers.append(LastingProducer(self._clients, self._alone))
        return self._producers[1]

    def _produce(
        self,
        producer: LastingProducer,
        message: ConsumedMessage,
        level: int | None,
        on_answer: OnAnswer,
        on_delivery: OnDelivery,
    ) -> None:
        topic = self._settings.names.send_back
        try:
            headers = send_back_headers(message, self._settings, level)
            for name, _ in headers:
                name.encode()  # raises, where confluent-kafka would end the process
            producer.produce(topic, message.value, message.key, BY_KEY, on_delivery, None, 0, headers)
        except BufferError:
            on_answer(KafkaError(KafkaError._QUEUE_FULL))
        except KafkaException as exception:
            on_answer(exception.args[0])
        except (AttributeError, TypeError, ValueError) as error:
            on_answer(KafkaError(KafkaError._INVALID_ARG, f"the listener has changed it ({error})"))
