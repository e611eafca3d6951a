"""Due records go out; those that cannot go out become dead letters, and none holds up another."""

import gc
import weakref
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from connectors.contract import ErrorCode, Headers, TopicNames
from connectors.kafka import BY_KEY
from connectors.testing import ManualClock
from sidecar.dispatch.dequeue_put import DequeuePut
from sidecar.dispatch.destinations import Destinations
from sidecar.dispatch.transactions import Refusal, TransactionAbortedError
from sidecar.errors import ClientsLostError
from sidecar.records import Outgoing, Rejection
from sidecar.source import Draft

DLQ = "DLQ-timewheel"
SOURCE_TOPIC, SOURCE_PARTITION = "SCHEDULE_TOPIC_XXXX-2", 4
WHEEL, SEND_BACK = "SCHEDULE_TOPIC_XXXX-wheel", "SCHEDULE_TOPIC_XXXX-sendback"
ONWARD = {WHEEL: [WHEEL], SEND_BACK: ["SCHEDULE_TOPIC_XXXX-1", "SCHEDULE_TOPIC_XXXX-3"]}
REFUSED = Rejection(ErrorCode.DESTINATION_REFUSED, "'orders' refuses the record")


class Produced(NamedTuple):
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def texts(self) -> dict[str, str]:
        return {name: (text or b"").decode() for name, text in self.headers}


@dataclass
class RecordingPublishing:
    """Keeps what is produced; sizes, a full queue and other faults as told."""

    max_bytes: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=lambda: {DLQ: 1})
    room: int = 10**9
    fault: KafkaError | None = None
    produced: list[Produced] = field(default_factory=list)
    grown: dict[str, int] = field(default_factory=dict)
    """Partitions of which the client has not heard."""
    looked_up: list[str] = field(default_factory=list)
    rooms_made: int = 0
    refusals: list[Refusal] = field(default_factory=list)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        callback: None,
        on_delivery: None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        if self.fault is not None:
            raise KafkaException(self.fault)
        size_bytes = sum(len(part or b"") for part in (key, value, *(text for _, text in headers)))
        if size_bytes > self.max_bytes.get(topic, 10**9):
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if partition >= self.partitions.get(topic, 10**9):
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        if self.room == 0:
            raise BufferError
        self.room -= 1
        self.produced.append(Produced(topic, partition, key, value, headers))

    def make_room(self) -> None:
        self.rooms_made += 1
        self.room = 1 if self.rooms_made % 3 == 0 else 0

    def look_up(self, topic: str) -> None:
        self.looked_up.append(topic)
        self.partitions |= {topic: self.grown[topic]} if topic in self.grown else {}

    def begin(self) -> None: ...

    def commit(self, offsets: list[TopicPartition]) -> None: ...

    def settle(self) -> None: ...

    def refused(self, topic: str, partition: int, error: KafkaError) -> None:
        self.refusals.append((topic, partition, error))

    def abort(self) -> list[Refusal]:
        self.produced.clear()
        return self.refusals

    def close(self) -> None: ...

    def take(self) -> list[Produced]:
        produced, self.produced = self.produced, []
        return produced


@dataclass
class AnyTopic:
    create_destinations: bool = False
    max_group_topics: int = 100

    def is_topic_allowed(self, topic: str) -> bool:
        return topic != "forbidden"

    def is_topic_denied(self, topic: str) -> bool:
        return False

    def is_group_allowed(self, group: str) -> bool:
        return True


@dataclass(eq=False)
class ASource:
    """As much of a source as dispatch looks at."""

    topic: str = SOURCE_TOPIC
    partition: int = SOURCE_PARTITION


@dataclass
class Bench:
    """The object under test, between a small cluster and a recording producer."""

    put: DequeuePut
    publishing: RecordingPublishing
    topics: dict[str, int]
    asked: list[str]
    source: Any = field(default_factory=ASource)

    def run(self, *records: Outgoing) -> list[Produced]:
        self.put.put(self.publishing, [Draft(self.source, list(records))])
        return self.publishing.take()

    def refuse(self, record: Outgoing) -> None:
        self.put.refuse(self.source, record, REFUSED)


@pytest.fixture
def bench() -> Bench:
    topics = {"orders": 3, "bills": 1, DLQ: 1}
    asked: list[str] = []

    def count_partitions(names: Collection[str]) -> dict[str, int]:
        asked.append(" ".join(sorted(names)))
        return {topic: topics.get(topic, 0) for topic in names}

    destinations = Destinations(TopicNames(), AnyTopic(), ManualClock(), count_partitions, lambda _: 0, lambda: 0)
    return Bench(DequeuePut(destinations, DLQ, ONWARD), RecordingPublishing(), topics, asked)


def a_record(
    offset: int = 0,
    topic: str = "orders",
    partition: int = BY_KEY,
    value: bytes | None = b"v",
    key: bytes | None = b"k",
    extra: Headers | None = None,
) -> Outgoing:
    source_headers: Headers = [("TAGS", b"a"), ("REAL_TOPIC", topic.encode()), *(extra or [])]
    carried: Headers = [("TAGS", b"a"), *(extra or []), ("UNIQ_KEY", b"%d" % offset), ("TIMER_OUT_MS", b"5")]
    return topic, partition, key, value, carried, 5, offset, source_headers


def a_letter(offset: int = 0, value: bytes | None = b"v") -> Outgoing:
    """What a level makes of a record without a destination when it is read."""
    rejection = Rejection(ErrorCode.MISSING_REAL_TOPIC, "no REAL_TOPIC")
    return rejection, BY_KEY, b"k", value, [], 5, offset, [("TAGS", b"a")]


def codes(produced: list[Produced]) -> list[str]:
    return [one.texts.get("ERROR_CODE", "") for one in produced]


# --- records that can go out ------------------------------------------------------------------------------------------


def test_records_go_out_as_they_are_in_their_order(bench: Bench) -> None:
    records = [a_record(0), a_record(1, partition=2, value=None), a_record(2, "bills", key=None, value=b"")]
    assert bench.run(*records) == [Produced(*record[:5]) for record in records]  # type: ignore[arg-type]
    assert bench.put.rejections == {}


@pytest.mark.parametrize(
    ("source", "topic", "partition"), [(SEND_BACK, "SCHEDULE_TOPIC_XXXX-3", BY_KEY), (WHEEL, WHEEL, 7)]
)
def test_what_the_sidecar_itself_sends_on_goes_there_unasked(
    bench: Bench, source: str, topic: str, partition: int
) -> None:
    bench.source = ASource(source)
    went = bench.run(a_record(0, topic, partition), a_record(1, topic, partition))
    assert [(one.topic, one.partition) for one in went] == [(topic, partition)] * 2
    assert bench.asked == []


def test_a_destination_is_judged_once_a_batch(bench: Bench) -> None:
    bench.run(*(a_record(offset) for offset in range(5)), a_record(5, partition=1))
    assert bench.asked == ["orders"]


def test_kafka_is_asked_once_for_all_destinations_of_a_batch(bench: Bench) -> None:
    """Everybody's records are in it: they do not wait for as many answers as there are names."""
    records = [a_record(number, f"absent-{number % 10}") for number in range(50)]
    letters = bench.run(a_record(50), *records, a_record(51, "bills"))
    assert codes(letters[1:-1]) == ["UNKNOWN_DESTINATION"] * 50
    assert bench.asked == [" ".join(sorted(["orders", "bills", *{f"absent-{number}" for number in range(10)}]))]


def test_for_partitions_that_are_not_there_kafka_is_asked_once_more(bench: Bench) -> None:
    bench.run(*(a_record(offset, partition=3 + offset % 2) for offset in range(50)))
    assert bench.asked == ["orders", "orders"]
    assert len(bench.put.rejections) == 50


def test_a_full_queue_is_waited_for_and_nothing_changes_places(bench: Bench) -> None:
    bench.publishing.room = 2
    produced = bench.run(*(a_record(offset) for offset in range(5)))
    assert [one.texts["UNIQ_KEY"] for one in produced] == ["0", "1", "2", "3", "4"]
    assert bench.publishing.rooms_made == 9


# --- records that cannot ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [
        ("absent", BY_KEY, "UNKNOWN_DESTINATION"),
        ("absent", 0, "UNKNOWN_DESTINATION"),
        ("orders", 3, "UNKNOWN_DESTINATION"),
        ("forbidden", BY_KEY, "DESTINATION_NOT_ALLOWED"),
        ("SCHEDULE_TOPIC_XXXX-1", BY_KEY, "DESTINATION_NOT_ALLOWED"),
        ("__consumer_offsets", 0, "DESTINATION_NOT_ALLOWED"),
    ],
)
def test_a_record_without_a_way_becomes_a_dead_letter_and_the_others_go_out(
    bench: Bench, topic: str, partition: int, code: str
) -> None:
    before, letter, after = bench.run(a_record(0), a_record(1, topic, partition), a_record(2))
    assert (before.topic, after.topic) == ("orders", "orders")
    assert letter[:4] == (DLQ, BY_KEY, b"k", b"v")
    assert letter.headers[:2] == [("TAGS", b"a"), ("REAL_TOPIC", topic.encode())]
    assert letter.texts["ERROR_CODE"] == code
    assert letter.texts["ERROR_TOPIC"] == SOURCE_TOPIC
    assert (letter.texts["ERROR_PARTITION"], letter.texts["ERROR_OFFSET"]) == ("4", "1")
    assert [(coordinates, rejection.code) for coordinates, rejection in bench.put.rejections.items()] == [
        ((SOURCE_TOPIC, SOURCE_PARTITION, 1), code)
    ]


def test_rejections_are_those_of_the_batch_in_hand(bench: Bench) -> None:
    bench.run(a_record(0, "absent"))
    bench.run(a_record(1))
    assert bench.put.rejections == {}


def test_a_partition_that_was_added_a_moment_ago_is_delivered_to(bench: Bench) -> None:
    bench.run(a_record(0))
    bench.topics["orders"] = 6
    (produced,) = bench.run(a_record(1, partition=5))
    assert (produced.topic, produced.partition) == ("orders", 5)


def test_a_partition_of_which_the_client_has_not_heard_is_asked_for_once(bench: Bench) -> None:
    bench.publishing.partitions["orders"] = 1
    bench.publishing.grown["orders"] = 3
    assert [(each.topic, each.partition) for each in bench.run(a_record(partition=2))] == [("orders", 2)]
    bench.publishing.grown.clear()
    bench.publishing.partitions["orders"] = 1
    with pytest.raises(TransactionAbortedError):
        bench.run(a_record(partition=2))
    assert [(topic, partition) for topic, partition, _ in bench.publishing.refusals] == [("orders", 2)]


@pytest.mark.parametrize("partitions", [1, 4])
def test_the_client_hears_of_a_topic_that_is_made_anew_with_other_partitions(bench: Bench, partitions: int) -> None:
    """By its key a record would go to a partition that is no more: it times out, and its transaction with it."""
    bench.run(a_record(0), a_record(1, "bills"))
    bench.topics["orders"] = 0
    bench.put._destinations.forget()
    bench.run(a_record(2))
    assert bench.publishing.looked_up == []
    bench.topics["orders"] = partitions
    bench.put._destinations.forget()
    assert [each.topic for each in bench.run(a_record(3), a_record(4, "bills"))] == ["orders", "bills"]
    assert bench.publishing.looked_up == ["orders"]
    bench.put._destinations.forget()
    bench.run(a_record(5))
    assert bench.publishing.looked_up == ["orders"]


def test_a_cluster_that_does_not_answer_gives_no_verdict(bench: Bench) -> None:
    def no_answer(topic: str) -> int:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    put = DequeuePut(Destinations(TopicNames(), AnyTopic(), ManualClock(), no_answer, lambda _: 0, lambda: 0), DLQ)
    with pytest.raises(KafkaException):
        put.put(bench.publishing, [Draft(bench.source, [a_record(0)])])
    assert bench.publishing.produced == []


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_a_record_that_is_too_large_becomes_a_dead_letter_with_its_value(bench: Bench) -> None:
    bench.publishing.max_bytes = {"orders": 100}
    small, letter, last = bench.run(a_record(0), a_record(1, value=bytes(200)), a_record(2))
    assert (small.topic, last.topic) == ("orders", "orders")
    assert (letter.topic, letter.value) == (DLQ, bytes(200))
    assert letter.texts["ERROR_CODE"] == "RECORD_TOO_LARGE"
    assert "'orders' refuses the record of 2" in letter.texts["ERROR_MESSAGE"]


def test_a_record_that_the_client_refuses_leaves_nothing_of_its_batch_in_memory(bench: Bench) -> None:
    client = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.max.bytes": 1_000})
    bench.publishing.produce = client.produce  # type: ignore[method-assign, assignment]
    source: Any = ASource()
    is_there = weakref.ref(source)
    bench.put.put(bench.publishing, [Draft(source, [a_record(value=bytes(5_000))])])
    assert [rejection.code for rejection in bench.put.rejections.values()] == [ErrorCode.RECORD_TOO_LARGE]
    del source
    gc.collect()
    assert is_there() is None
    client.purge()


def test_a_record_that_is_too_large_even_for_the_dead_letters_goes_there_without_its_value(bench: Bench) -> None:
    bench.publishing.max_bytes = {"orders": 100, DLQ: 600}
    (letter,) = bench.run(a_record(7, value=bytes(700)))
    assert letter[:4] == (DLQ, BY_KEY, b"k", None)
    assert "the value of 700 bytes is too large for this topic" in letter.texts["ERROR_MESSAGE"]
    assert letter.texts["ERROR_OFFSET"] == "7"


def test_a_letter_from_intake_that_is_too_large_goes_out_without_its_value(bench: Bench) -> None:
    bench.publishing.max_bytes = {DLQ: 600}
    (letter,) = bench.run(a_letter(value=bytes(700)))
    assert (letter.topic, letter.value) == (DLQ, None)
    assert letter.texts["ERROR_CODE"] == "MISSING_REAL_TOPIC"


@pytest.mark.parametrize("part", ["key", "header"])
def test_a_record_that_is_too_large_by_its_key_or_headers_is_not_dropped(bench: Bench, part: str) -> None:
    bench.publishing.max_bytes = {"orders": 600, DLQ: 600}
    record = a_record(7, key=bytes(700)) if part == "key" else a_record(7, extra=[("BIG", bytes(700))])
    (letter,) = bench.run(record)
    assert letter.topic == DLQ
    assert letter.texts["ERROR_CODE"] == "RECORD_TOO_LARGE"
    assert letter.texts["ERROR_OFFSET"] == "7"


# --- refusals of the brokers ------------------------------------------------------------------------------------------


def test_a_record_that_kafka_refused_goes_to_the_dead_letters_and_then_without_its_value(bench: Bench) -> None:
    record = a_record(3)
    assert bench.run(record)[0].topic == "orders"
    bench.refuse(record)
    (letter,) = bench.run(record)
    assert (letter.topic, letter.value) == (DLQ, b"v")
    assert letter.texts["ERROR_CODE"] == "DESTINATION_REFUSED"
    bench.refuse(record)
    (letter,) = bench.run(record)
    assert (letter.topic, letter.value) == (DLQ, None)
    assert letter.texts["ERROR_CODE"] == "DESTINATION_REFUSED"


def test_a_letter_from_intake_that_kafka_refused_goes_out_without_its_value(bench: Bench) -> None:
    letter = a_letter()
    assert bench.run(letter)[0].value == b"v"
    bench.refuse(letter)
    (produced,) = bench.run(letter)
    assert (produced.topic, produced.value) == (DLQ, None)


@pytest.mark.parametrize(("topic", "code"), [("gone", "UNKNOWN_DESTINATION"), ("forbidden", "DESTINATION_NOT_ALLOWED")])
def test_a_letter_that_kafka_refused_still_says_why_the_record_could_not_go_out(
    bench: Bench, topic: str, code: str
) -> None:
    record = a_record(3, topic=topic)
    (whole,) = bench.run(record)
    bench.refuse(record)
    (smaller,) = bench.run(record)
    assert (smaller.topic, smaller.value) == (DLQ, None)
    assert codes([whole, smaller]) == [code, code]
    assert smaller.texts["ERROR_MESSAGE"].startswith(whole.texts["ERROR_MESSAGE"])


def test_a_record_that_the_dead_letters_refuse_without_its_value_gets_smaller_still(bench: Bench) -> None:
    record = a_record(3, key=bytes(700), extra=[("BIG", bytes(700))])
    bench.run(record)
    for _ in range(4):
        bench.refuse(record)
        (letter,) = bench.run(record)
    assert sum(len(part or b"") for part in (letter.key, letter.value, *(text for _, text in letter.headers))) < 700
    assert letter.texts["ERROR_CODE"] == "DESTINATION_REFUSED"
    assert letter.texts["ERROR_OFFSET"] == "3"


def test_only_the_refused_record_is_kept_back(bench: Bench) -> None:
    bench.refuse(a_record(3))
    assert [one.topic for one in bench.run(a_record(2), a_record(3), a_record(4))] == ["orders", DLQ, "orders"]


def test_a_refusal_is_forgotten_once_its_letter_is_committed(bench: Bench) -> None:
    bench.refuse(a_record(3))
    bench.run(a_record(2))
    bench.put.committed()
    assert bench.run(a_record(3))[0].topic == DLQ
    bench.put.committed()
    assert bench.run(a_record(3))[0].topic == "orders"


def test_a_refusal_is_forgotten_with_its_source(bench: Bench) -> None:
    """A partition may go to another replica before its record is tried again, or the record be cancelled."""
    bench.refuse(a_record(3))
    bench.put.forget(bench.source)
    assert bench.run(a_record(3))[0].topic == "orders"


@pytest.mark.parametrize("is_flagged", [True, False])
def test_a_fatal_error_ends_the_clients(bench: Bench, is_flagged: bool) -> None:
    """An idempotent producer that has told of one before refuses each record for it, and flags that no more."""
    bench.publishing.fault = KafkaError(KafkaError._FATAL, "fenced", is_flagged)
    with pytest.raises(ClientsLostError, match=r"produce: .*fenced"):
        bench.run(a_record(0))


def test_any_other_error_aborts_the_transaction_and_names_the_destination(bench: Bench) -> None:
    bench.publishing.fault = KafkaError(KafkaError._UNKNOWN_PARTITION)
    with pytest.raises(TransactionAbortedError):
        bench.run(a_record(0, partition=1))
    assert [(topic, partition) for topic, partition, _ in bench.publishing.abort()] == [("orders", 1)]


# --- producers that name our own dead-letter topic --------------------------------------------------------------------


def test_a_record_for_our_dead_letters_is_delivered_like_any_other(bench: Bench) -> None:
    (produced,) = bench.run(a_record(0, DLQ))
    assert (produced.topic, produced.value, codes([produced])) == (DLQ, b"v", [""])


def test_a_record_for_a_partition_that_our_dead_letters_have_not_holds_up_nothing(bench: Bench) -> None:
    letter, after = bench.run(a_record(0, DLQ, partition=99), a_record(1))
    assert (letter.topic, letter.partition) == (DLQ, BY_KEY)
    assert letter.texts["ERROR_CODE"] == "UNKNOWN_DESTINATION"
    assert after.topic == "orders"


def test_a_record_for_any_partition_that_our_dead_letters_have_is_delivered(bench: Bench) -> None:
    bench.topics[DLQ] = bench.publishing.partitions[DLQ] = 6
    (produced,) = bench.run(a_record(0, DLQ, partition=5))
    assert (produced.partition, codes([produced])) == (5, [""])
    assert bench.put.rejections == {}


def test_a_record_for_our_dead_letters_that_is_too_large_says_why_it_has_no_value(bench: Bench) -> None:
    bench.publishing.max_bytes = {DLQ: 600}
    (letter,) = bench.run(a_record(7, DLQ, value=bytes(700)))
    assert letter.value is None
    assert letter.texts["ERROR_CODE"] == "RECORD_TOO_LARGE"
    assert letter.texts["ERROR_OFFSET"] == "7"
