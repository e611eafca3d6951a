"""Which destination partitions take nothing, and what becomes of their records."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.contract import TopicNames
from connectors.kafka import BY_KEY
from connectors.murmur2 import partition_of_key
from sidecar.dispatch.outages import (
    ALONE_AGAIN_MS,
    TRIED_AFTER_AT_MOST_MS,
    TRIED_AFTER_MS,
    Outages,
    Replicas,
    is_postponed,
)
from sidecar.records import Outgoing, Rejection
from tests.support.logged import logged
from tests.support.one_wheel import COPIES, NOW_MS, WHEEL, due, message, opened, sent

WHOLE, LEADERLESS, THIN = Replicas(True, 3, 3), Replicas(False, 0, 3), Replicas(True, 1, 3)
TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)


class Cluster:
    """Topics as Kafka tells of them, and the outages of a sidecar that looks at them."""

    def __init__(self, **topics: Mapping[int, Replicas]) -> None:
        self.topics = topics
        self.is_silent = False
        self.monotonic_ms = 0
        self.outages = Outages(TopicNames(), self._look, lambda: COPIES, lambda: self.monotonic_ms)

    def _look(self, topic: str) -> Mapping[int, Replicas]:
        if self.is_silent:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return self.topics.get(topic, {})


def a_record(topic: str | Rejection = "orders", partition: int = BY_KEY, key: bytes | None = b"k") -> Outgoing:
    headers: list[tuple[str, bytes | None]] = [("TAGS", b"a"), ("UNIQ_KEY", b"u"), ("TIMER_OUT_MS", b"%d" % NOW_MS)]
    return topic, partition, key, b"v", headers, NOW_MS, 7, []


@pytest.mark.parametrize("replicas", [LEADERLESS, THIN])
def test_a_partition_that_did_not_take_its_records_and_is_not_whole_is_left_out(replicas: Replicas) -> None:
    cluster = Cluster(orders={0: WHOLE, 1: replicas})
    assert not cluster.outages
    with logged() as lines:
        cluster.outages.suspect([("orders", 1, TIMED_OUT), ("orders", 0, TIMED_OUT)])
    assert list(cluster.outages.in_words) == ["orders-1"]
    assert [(line["event"], line["partition"]) for line in lines] == [("destination takes nothing", 1)]


def test_what_kafka_says_of_innocents_and_of_topics_of_ours_is_no_suspicion() -> None:
    cluster = Cluster(**{"orders": {0: LEADERLESS}, WHEEL: {0: LEADERLESS}, "DLQ-g": {0: LEADERLESS}})
    purged = KafkaError(KafkaError._PURGE_QUEUE)
    cluster.outages.suspect([("orders", 0, purged), (WHEEL, 0, TIMED_OUT), ("DLQ-g", 0, TIMED_OUT)])
    assert not cluster.outages


def test_it_counts_again_when_it_has_come_back() -> None:
    cluster = Cluster(orders={0: LEADERLESS, 1: THIN}, gone={0: LEADERLESS})
    cluster.outages.suspect([("orders", 0, TIMED_OUT), ("orders", 1, TIMED_OUT), ("gone", 0, TIMED_OUT)])
    cluster.outages.look_again()
    assert list(cluster.outages.in_words) == ["gone-0", "orders-0", "orders-1"]
    cluster.is_silent = True
    cluster.outages.look_again()
    assert len(cluster.outages.in_words) == 3
    cluster.is_silent = False
    del cluster.topics["gone"]
    cluster.topics["orders"] = {0: THIN, 1: Replicas(True, 2, 3)}  # may be enough: the next time-out would tell
    cluster.outages.look_again()
    assert not cluster.outages


@pytest.mark.parametrize(("partition", "key"), [(BY_KEY, b"k"), (BY_KEY, None), (7, b"k")])
def test_what_is_due_for_a_topic_that_is_not_created_in_time_waits_on_the_wheel(
    partition: int, key: bytes | None
) -> None:
    cluster = Cluster()
    cluster.outages.missing({"orders": 30_000, "DLQ-g": 30_000})
    assert list(cluster.outages.in_words) == ["orders-0"]
    (record,) = cluster.outages.postponed([a_record("orders", partition, key)], NOW_MS)
    assert record[0] == WHEEL
    assert is_postponed(record)


def test_whether_it_is_there_is_asked_all_the_while_and_it_is_tried_again_when_its_time_has_come() -> None:
    cluster = Cluster()
    for _ in range(2):
        cluster.outages.missing({"orders": 30_000})
        cluster.monotonic_ms += 29_999
        cluster.outages.look_again()
        assert cluster.outages
        cluster.monotonic_ms += 1
        cluster.outages.look_again()
        assert not cluster.outages
    cluster.outages.missing({"orders": 30_000})
    cluster.topics["orders"] = {0: WHOLE}
    cluster.outages.look_again()
    assert not cluster.outages


def test_one_that_lacks_replicas_is_tried_again_and_half_as_often_where_it_takes_nothing_then() -> None:
    """With two of three in sync it most likely takes records, however long the third is gone."""
    cluster = Cluster(orders={0: THIN, 1: LEADERLESS})
    tried_ms: list[int] = []
    while len(tried_ms) < 9:
        cluster.outages.suspect([("orders", 0, TIMED_OUT), ("orders", 1, TIMED_OUT)])
        while "orders-0" in cluster.outages.in_words:
            cluster.monotonic_ms += 1_000
            cluster.outages.look_again()
        assert "orders-1" in cluster.outages.in_words, "without a leader there is nothing to try"
        tried_ms.append(cluster.monotonic_ms)
    waits = [later - before for before, later in pairwise([0, *tried_ms])]
    assert waits == [min(TRIED_AFTER_MS * 2**number, TRIED_AFTER_AT_MOST_MS) for number in range(9)]
    cluster.monotonic_ms += 3 * TRIED_AFTER_AT_MOST_MS
    cluster.outages.suspect([("orders", 0, TIMED_OUT)])
    cluster.monotonic_ms += TRIED_AFTER_MS
    cluster.outages.look_again()
    assert "orders-0" not in cluster.outages.in_words, "an outage of another day begins anew"


def test_one_that_kafka_calls_whole_and_that_is_not_reached_from_here_is_left_out() -> None:
    cluster = Cluster(orders={0: WHOLE, 1: WHOLE})
    refusals = [("orders", 1, TIMED_OUT)]
    cluster.outages.suspect(refusals)
    cluster.outages.suspect(refusals)
    assert not cluster.outages, "it may be another's in the same transaction"
    cluster.outages.suspect(refusals, is_alone=True)
    cluster.monotonic_ms += ALONE_AGAIN_MS + 1
    cluster.outages.suspect(refusals, is_alone=True)
    assert not cluster.outages, "each may be an outage that is just over"
    tried_ms: list[int] = []
    for _ in range(3):
        cluster.outages.suspect(refusals, is_alone=True)
        (words,) = cluster.outages.in_words.values()
        assert words.startswith("takes no records (Kafka calls it healthy, but it does not answer this sidecar)")
        began_ms = cluster.monotonic_ms
        while cluster.outages:
            cluster.monotonic_ms += 1_000
            cluster.outages.look_again()
        tried_ms.append(cluster.monotonic_ms - began_ms)
    assert tried_ms == [TRIED_AFTER_MS, 2 * TRIED_AFTER_MS, 4 * TRIED_AFTER_MS]


def test_what_is_said_of_one_that_is_gone_or_still_to_be_created_is_so() -> None:
    cluster = Cluster(orders={0: LEADERLESS})
    cluster.outages.suspect([("orders", 0, TIMED_OUT)])
    cluster.outages.missing({"RETRY-g": 1_000})
    del cluster.topics["orders"]
    cluster.monotonic_ms += 1_000
    with logged() as lines:
        cluster.outages.look_again()
    assert [(line["event"], line["topic"], line["reason"]) for line in lines] == [
        ("destination is tried again", "orders", "there is no such partition any more"),
        ("destination is tried again", "RETRY-g", "it is still to be created"),
    ]


def test_only_its_own_records_are_postponed() -> None:
    by_partition = {partition_of_key(key, 2): key for key in (b"a", b"b", b"c", b"d", b"e")}
    cluster = Cluster(orders={0: WHOLE, 1: LEADERLESS})
    cluster.outages.suspect([("orders", 1, TIMED_OUT)])
    others = [
        a_record(key=by_partition[0]),
        a_record(partition=0, key=by_partition[1]),
        a_record("bills"),
        a_record(Rejection(None, "why")),  # type: ignore[arg-type]
    ]
    theirs = [a_record(key=by_partition[1]), a_record(partition=1, key=by_partition[0])]
    assert cluster.outages.postponed(others, NOW_MS) == others
    for record, copy in zip(theirs, cluster.outages.postponed(theirs, NOW_MS, 3), strict=True):
        assert copy[:4] == (WHEEL, 3, *record[2:4])
        assert copy[5:] == record[5:]
        assert is_postponed(copy)
        assert not is_postponed(record)
        assert dict(copy[4])["TIMER_DELIVER_MS"] == b"%d" % NOW_MS
        assert dict(copy[4]).get("REAL_QID") == (b"1" if record[1] == 1 else None)


def test_a_record_without_a_key_goes_to_another_partition_while_one_is_left() -> None:
    cluster = Cluster(orders={0: WHOLE, 1: LEADERLESS, 2: WHOLE})
    cluster.outages.suspect([("orders", 1, TIMED_OUT)])
    sent_to = {record[:2] for record in cluster.outages.postponed([a_record(key=None)] * 10, NOW_MS)}
    assert sent_to == {("orders", 0), ("orders", 2)}
    cluster.topics["orders"] = dict.fromkeys(range(3), LEADERLESS)
    cluster.outages.suspect([("orders", number, TIMED_OUT) for number in range(3)])
    assert {record[0] for record in cluster.outages.postponed([a_record(key=None)], NOW_MS)} == {WHEEL}


@pytest.mark.parametrize(("late_ms", "wait_ms"), [(0, 5_000), (7_000, 7_000), (10**9, 60_000)])
def test_it_waits_as_long_again_as_it_has_waited(late_ms: int, wait_ms: int) -> None:
    cluster = Cluster(orders={0: LEADERLESS})
    cluster.outages.suspect([("orders", 0, TIMED_OUT)])
    (copy,) = cluster.outages.postponed([a_record()], NOW_MS + late_ms)
    assert int(dict(copy[4])["TIMER_NOT_BEFORE_MS"] or 0) == NOW_MS + late_ms + wait_ms


def test_a_postponed_message_comes_back_can_be_cancelled_and_keeps_its_due_time(tmp_path: Path) -> None:
    cluster = Cluster(orders={0: LEADERLESS})
    wheel = opened(tmp_path, outages=cluster.outages)
    wheel.offer([due(0, NOW_MS - 10, uniq_key=b"kept"), due(1, NOW_MS - 10, uniq_key=b"cancelled")], NOW_MS)
    cluster.outages.suspect([("orders", 0, TIMED_OUT)])
    copies, (offset, _) = sent(wheel, NOW_MS)
    assert offset == 2
    assert [copy[:2] for copy in copies] == [(WHEEL, 0), (WHEEL, 0)]
    wheel.offer([message(2 + number, *copy[4]) for number, copy in enumerate(copies)], NOW_MS)
    wheel.offer([message(4, ("TIMER_DEL_UNIQKEY", b"cancelled"))], NOW_MS)
    cluster.topics["orders"] = {0: WHOLE}
    cluster.outages.look_again()
    assert not cluster.outages
    assert sent(wheel, NOW_MS + 4_999)[0] == []
    delivered, _ = sent(wheel, NOW_MS + 5_000)
    assert [record[0] for record in delivered] == ["orders"]
    assert delivered[0][4] == [("UNIQ_KEY", b"kept"), ("TIMER_OUT_MS", b"%d" % (NOW_MS - 10))]


def test_what_is_postponed_waits_though_the_clock_of_the_replica_before_was_ahead(tmp_path: Path) -> None:
    """Due by what that one has committed, its copies would be postponed one after the other, without a pause."""
    ahead_ms = NOW_MS + 60_000
    one = opened(tmp_path / "one", now_ms=ahead_ms)
    one.offer([due(0, ahead_ms)], ahead_ms)
    _, progress = sent(one, ahead_ms)
    cluster = Cluster(orders={0: LEADERLESS})
    cluster.outages.suspect([("orders", 0, TIMED_OUT)])
    two = opened(tmp_path / "two", *progress, 1, outages=cluster.outages)
    two.offer([due(1, ahead_ms)], NOW_MS)
    (copy,), _ = sent(two, NOW_MS)
    two.offer([message(2, *copy[4])], NOW_MS)
    assert sent(two, NOW_MS)[0] == []


def test_nobody_else_can_postpone(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    forged = [("TIMER_NOT_BEFORE_MS", b"%d" % (NOW_MS + 10**6)), ("TIMER_ROLL_PROOF", b"0123456789abcdef")]
    wheel.offer([message(0, ("REAL_TOPIC", b"orders"), ("TIMER_DELIVER_MS", b"%d" % NOW_MS), *forged)], NOW_MS)
    assert [record[0] for record in sent(wheel, NOW_MS)[0]] == ["orders"]
    assert wheel.note.startswith("copies of another group come in (1 so far)")
