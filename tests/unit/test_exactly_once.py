"""Clients that Kafka refuses from the first call on hold nothing: they are made again every few seconds."""

import threading
import weakref
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from sidecar.dispatch.transactions import ExactlyOnce
from sidecar.errors import ClientsLostError, FencedError, UsageError
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


class TooPatient(Refused):
    """A producer whose transactions may take longer than the brokers allow."""

    def init_transactions(self, _timeout_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT, "larger than the maximum", True))


def test_a_transaction_timeout_that_the_brokers_do_not_allow_is_a_setting_to_correct() -> None:
    with pytest.raises(UsageError, match="transaction_timeout is longer than the brokers allow"):
        ExactlyOnce([cast(Producer, TooPatient()) for _ in range(2)], lambda: None, [], lambda: False)


class Idle(Refused):
    """A producer that is not asked for much."""

    def __init__(self) -> None:
        self.purged = False

    def init_transactions(self, _timeout_s: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def purge(self) -> None:
        self.purged = True

    def poll(self, _timeout_s: float) -> int:
        return 0


class Fenced(Idle):
    """A producer whose transactional id somebody else has taken."""

    def begin_transaction(self) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))

    def poll(self, _timeout_s: float) -> int:
        raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))


class Stuck(Idle):
    """A producer whose coordinator has gone away in the middle of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = threading.Event()

    def send_offsets_to_transaction(self, *_: Any) -> None:
        self.ends.wait(60)


def test_ids_that_somebody_else_has_taken_are_told_apart() -> None:
    publishing = ExactlyOnce([cast(Producer, Fenced())] * 2, lambda: None, [], lambda: False)
    try:
        with pytest.raises(FencedError, match=r"begin_transaction: .*fenced"):
            publishing.begin()
    finally:
        publishing.close()


def test_a_call_that_is_stuck_keeps_neither_the_records_nor_the_other_producer() -> None:
    """It cannot be ended, and outages may leave many of them behind."""
    stuck, other = Stuck(), Idle()
    is_other_there = weakref.ref(other)
    publishing = ExactlyOnce([cast(Producer, stuck), cast(Producer, other)], lambda: None, [], lambda: False)
    publishing.begin()
    publishing.commit([])
    try:
        publishing.close()
        del other
        assert is_other_there() is None
        assert stuck.purged
    finally:
        stuck.ends.set()
