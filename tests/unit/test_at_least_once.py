"""Records first, then the progress, on a cluster without transactions."""

import threading
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from sidecar.dispatch.call_thread import CallThread
from sidecar.dispatch.transactions import AtLeastOnce, TransactionAbortedError
from sidecar.errors import ClientsLostError, StoppedWaitingError
from tests.support.callers import InlineCaller

OFFSETS = [TopicPartition("SCHEDULE_TOPIC_XXXX-1", 0, 7)]


class Delivered:
    """A producer whose records are delivered at once."""

    def produce(self, *_: Any) -> None: ...

    def flush(self, _timeout_s: float) -> int:
        return 0

    def poll(self, _timeout_s: float) -> int:
        return 0

    def purge(self) -> None: ...


class Group:
    """Refuses commits with these errors, one after the other, before it takes one."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)
        self.committed: list[TopicPartition] = []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        self.waits = not asynchronous
        if self._codes:
            raise KafkaException(KafkaError(self._codes.pop(0)))
        self.committed += offsets


def begun(group: Group, *, is_stopping: bool = False) -> AtLeastOnce:
    publishing = AtLeastOnce(cast(Producer, Delivered()), group.commit, [], lambda: is_stopping, InlineCaller)
    publishing.begin()
    publishing.commit(OFFSETS)
    return publishing


def test_while_the_group_has_no_coordinator_the_commit_alone_is_repeated() -> None:
    """Else the records, which are delivered, would go out again with every attempt."""
    group = Group(KafkaError._TIMED_OUT, KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    begun(group).settle()
    assert group.committed == OFFSETS


def test_a_member_of_yesterday_does_not_repeat_its_commit() -> None:
    with pytest.raises(TransactionAbortedError):
        begun(Group(KafkaError.ILLEGAL_GENERATION)).settle()


def test_a_stop_does_not_wait_for_a_coordinator() -> None:
    with pytest.raises(StoppedWaitingError):
        begun(Group(KafkaError.NOT_COORDINATOR), is_stopping=True).settle()


def test_a_commit_that_never_returns_is_left_behind() -> None:
    """As librdkafka's does while a broker takes connections and answers nothing."""
    returns = threading.Event()
    publishing = AtLeastOnce(
        cast(Producer, Delivered()),
        lambda **_: returns.wait(60),
        [],
        lambda: False,
        lambda: CallThread(lambda: 0, stuck_after_s=0.2),
    )
    publishing.begin()
    publishing.commit(OFFSETS)
    with pytest.raises(ClientsLostError, match="has not returned"):
        publishing.settle()
    returns.set()
    publishing.close()


class Fatal(Delivered):
    """A producer that is of no more use, and says so to whoever serves its reports."""

    def poll(self, _timeout_s: float) -> int:
        raise KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "fatal", True))

    flush = poll


def test_a_producer_that_is_lost_meanwhile_ends_the_session_and_not_the_process() -> None:
    producer = cast(Producer, Fatal())
    publishing = AtLeastOnce(producer, Group().commit, [], lambda: False, InlineCaller)
    for call in (publishing.make_room, publishing.settle, publishing.abort):
        with pytest.raises(ClientsLostError, match="fatal"):
            call()


def test_within_a_rebalance_the_commit_is_not_waited_for() -> None:
    """The consumer would not answer before the callback has returned."""
    group = Group()
    begun(group).settle(in_rebalance=True)
    assert group.committed == OFFSETS
    assert not group.waits
    begun(group).settle()
    assert group.waits


def test_a_producer_that_is_beyond_use_is_let_go_in_silence() -> None:
    """The error would end the process, between this session and the next."""
    AtLeastOnce(cast(Producer, Fatal()), lambda **_: None, [], lambda: False).close()
