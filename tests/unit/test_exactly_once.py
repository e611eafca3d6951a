"""Clients that Kafka refuses from the first call on hold nothing: they are made again every few seconds."""

import threading
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from sidecar.dispatch.transactions import ExactlyOnce
from sidecar.errors import ClientsLostError, FencedError
from tests.support.waiting import wait_until


class Refused:
    """A producer that may not write its transactions."""

    def produce(self, *_: Any) -> None: ...

    def init_transactions(self, _timeout_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))


def test_the_thread_of_refused_producers_ends() -> None:
    producers = [cast(Producer, Refused()) for _ in range(2)]
    with pytest.raises(ClientsLostError):
        ExactlyOnce(producers, lambda: None, [], lambda: False)
    wait_until(lambda: not any(thread.name == "transactions" for thread in threading.enumerate()), "it has ended", 10)


class Fenced(Refused):
    """A producer whose transactional id somebody else has taken."""

    def init_transactions(self, _timeout_s: float) -> None: ...

    def begin_transaction(self) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))


def test_ids_that_somebody_else_has_taken_are_told_apart() -> None:
    publishing = ExactlyOnce([cast(Producer, Fenced())] * 2, lambda: None, [], lambda: False)
    try:
        with pytest.raises(FencedError, match=r"begin_transaction: .*fenced"):
            publishing.begin()
    finally:
        publishing.close()
