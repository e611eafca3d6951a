"""Whether a destination can be delivered to."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.contract import ErrorCode, TopicNames
from connectors.testing import ManualClock
from sidecar.dispatch.destinations import (
    CREATES_FOR_MS,
    KNOWN_FOR_MS,
    UNANSWERED_FOR_MS,
    UNKNOWN_FOR_MS,
    UNSHOWN_FOR_MS,
    Destinations,
    unknown_partition,
)
from sidecar.records import Rejection


@dataclass
class Policy:
    create_destinations: bool = False
    max_group_topics: int = 5
    topics: str = "*"
    groups: str = "*"

    def is_topic_allowed(self, topic: str) -> bool:
        return fnmatchcase(topic, self.topics)

    def is_topic_denied(self, topic: str) -> bool:
        return False

    def is_group_allowed(self, group: str) -> bool:
        return fnmatchcase(group, self.groups)


@dataclass
class Cluster:
    """Topics and their partitions, and what was asked."""

    topics: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    questions: int = 0
    created: list[str] = field(default_factory=list)
    refusal: int | None = None
    reason: str | None = None
    shows_what_it_creates: bool = True

    def count_partitions(self, topics: Collection[str]) -> dict[str, int]:
        self.asked += topics
        self.questions += 1
        return {topic: self.topics.get(topic, 0) for topic in topics}

    def create_topic(self, topic: str) -> int:
        if self.refusal is not None:
            raise KafkaException(KafkaError(self.refusal, self.reason))
        self.created.append(topic)
        if not self.shows_what_it_creates:
            return 0
        self.topics[topic] = 1
        return 1

    def count_group_topics(self) -> int:
        return sum(map(TopicNames().is_group_topic, self.topics))


Judged = tuple[Destinations, Cluster, ManualClock]
Make = Callable[..., Judged]


@pytest.fixture
def make() -> Make:
    def make(policy: Policy | None = None, names: TopicNames | None = None, **topics: int) -> Judged:
        cluster, clock = Cluster(topics), ManualClock()
        destinations = Destinations(
            names or TopicNames(),
            policy or Policy(),
            clock,
            cluster.count_partitions,
            cluster.create_topic,
            cluster.count_group_topics,
        )
        return destinations, cluster, clock

    return make


def rejected(verdict: int | Rejection) -> Rejection:
    assert isinstance(verdict, Rejection)
    return verdict


def test_a_topic_that_exists_has_its_partitions(make: Make) -> None:
    destinations, _, _ = make(orders=6)
    assert destinations.judge("orders") == 6


def test_a_topic_that_does_not_exist_is_refused_and_not_created(make: Make) -> None:
    destinations, cluster, _ = make()
    rejection = rejected(destinations.judge("orders"))
    assert rejection.code is ErrorCode.UNKNOWN_DESTINATION
    assert "topic 'orders' does not exist, or the sidecar has no right to it" in rejection.message
    assert cluster.created == []


def test_a_missing_topic_is_created_where_the_settings_say_so(make: Make) -> None:
    destinations, cluster, _ = make(Policy(create_destinations=True), bills=2)
    assert destinations.judge("orders") == 1
    assert destinations.judge("bills") == 2
    assert cluster.created == ["orders"]


@pytest.mark.parametrize(
    "refusal",
    [KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.INVALID_REPLICATION_FACTOR],
)
def test_a_topic_that_kafka_refuses_to_create_is_refused_and_holds_up_nothing(make: Make, refusal: int) -> None:
    destinations, cluster, _ = make(Policy(create_destinations=True))
    cluster.refusal = refusal
    assert rejected(destinations.judge("orders")).code is ErrorCode.DESTINATION_REFUSED


def test_a_cluster_that_does_not_answer_is_no_verdict() -> None:
    def no_answer(_: Collection[str]) -> dict[str, int]:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    destinations = Destinations(TopicNames(), Policy(), ManualClock(), no_answer, lambda _: 0, lambda: 0)
    for _ in range(2):
        with pytest.raises(KafkaException):
            destinations.judge("orders")


@pytest.mark.parametrize("no_verdict", [KafkaError._TIMED_OUT, KafkaError.NOT_CONTROLLER])
def test_a_topic_that_is_not_created_in_time_is_not_asked_for_again_at_once(make: Make, no_verdict: int) -> None:
    """Each attempt holds up the loop."""
    destinations, cluster, clock = make(orders=1)
    cluster.refusal = no_verdict
    for _ in range(3):
        with pytest.raises(KafkaException):
            destinations.judge("RETRY-billing")
        cluster.refusal = KafkaError.POLICY_VIOLATION  # what it would hear, were it asked
        destinations.forget()
    assert destinations.judge("orders") == 1
    cluster.refusal = None
    clock.advance(UNANSWERED_FOR_MS)
    assert destinations.judge("RETRY-billing") == 1


def test_a_topic_that_is_not_created_in_time_is_seen_as_soon_as_it_is_there_and_others_have_their_verdicts(
    make: Make,
) -> None:
    destinations, cluster, _ = make(orders=1)
    cluster.refusal = KafkaError._TIMED_OUT
    assert destinations.judge_all(["RETRY-billing", "orders"]) == {"orders": 1}
    assert list(destinations.unanswered) == ["RETRY-billing"]
    cluster.topics["RETRY-billing"] = 3
    assert destinations.judge("RETRY-billing") == 3
    assert destinations.unanswered == {}


def test_many_topics_that_are_not_created_in_time_cost_one_attempt_and_each_has_its_turn(make: Make) -> None:
    """A transaction is open meanwhile, and does not last for a dozen attempts."""
    destinations, cluster, clock = make(orders=1)
    cluster.refusal = KafkaError._TIMED_OUT
    topics = [f"RETRY-{number}" for number in range(5)]
    asked: list[str] = []
    create = cluster.create_topic

    def counted(topic: str) -> int:
        asked.append(topic)
        return create(topic)

    destinations._create_topic = counted
    for turn in range(5):
        assert destinations.judge_all([*topics, "orders"]) == {"orders": 1}
        assert sorted(destinations.unanswered) == topics
        assert len(asked) == turn + 1
        clock.advance(UNANSWERED_FOR_MS)
    assert sorted(asked) == topics
    cluster.refusal = None
    assert set(destinations.judge_all(topics)) == set(topics)


def test_topics_are_created_for_a_while_and_the_others_the_next_time(make: Make) -> None:
    destinations, cluster, clock = make()
    topics = [f"RETRY-{number}" for number in range(5)]
    create = cluster.create_topic

    def slow(topic: str) -> int:
        clock.advance(CREATES_FOR_MS / 2)
        return create(topic)

    destinations._create_topic = slow
    assert len(destinations.judge_all(topics)) == 2
    with pytest.raises(KafkaException, match="others are created before it"):
        raise destinations.silence(topics[-1])
    for _ in range(2):
        clock.advance(UNSHOWN_FOR_MS)
        found = destinations.judge_all(topics)
    assert set(found) == set(topics)


def test_a_topic_that_has_been_created_and_is_not_shown_yet_is_no_verdict(make: Make) -> None:
    destinations, cluster, clock = make()
    cluster.shows_what_it_creates = False
    with pytest.raises(KafkaException, match="not shown yet"):
        destinations.judge("RETRY-billing")
    cluster.shows_what_it_creates = True
    clock.advance(UNSHOWN_FOR_MS)
    assert destinations.judge("RETRY-billing") == 1
    assert destinations.unanswered == {}


def test_a_topic_that_has_refused_a_record_is_believed_for_a_while(make: Make) -> None:
    destinations, _, clock = make(orders=2, compacted=1)
    refusal = Rejection(ErrorCode.DESTINATION_REFUSED, "no right to write")
    destinations.refuses("orders", refusal)
    destinations.refuses_keyless("compacted", refusal)
    destinations.forget()
    assert destinations.judge("orders") is refusal
    assert destinations.judge("compacted") == 1
    assert destinations.known_of_keyless("compacted") is refusal
    assert destinations.known_of_keyless("orders") is None
    clock.advance(KNOWN_FOR_MS)
    assert destinations.judge("orders") == 2
    assert destinations.known_of_keyless("compacted") is None


# --- retry and dead-letter topics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["RETRY-billing", "DLQ-billing"])
def test_a_groups_missing_topic_is_created_whatever_holds_for_others(make: Make, topic: str) -> None:
    destinations, cluster, _ = make()
    assert destinations.judge(topic) == 1
    assert cluster.created == [topic]


def test_a_group_that_is_not_allowed_has_no_topic_created(make: Make) -> None:
    destinations, cluster, _ = make(Policy(groups="billing"))
    assert rejected(destinations.judge("RETRY-other")).code is ErrorCode.DESTINATION_NOT_ALLOWED
    assert destinations.judge("RETRY-billing") == 1
    assert cluster.created == ["RETRY-billing"]


def test_no_more_group_topics_are_created_than_there_may_be(make: Make) -> None:
    destinations, cluster, _ = make(Policy(max_group_topics=3), **{"DLQ-timewheel": 1, "orders": 3})
    assert [destinations.judge(f"RETRY-{group}") for group in ("a", "b")] == [1, 1]
    assert rejected(destinations.judge("RETRY-c")).code is ErrorCode.TOO_MANY_GROUP_TOPICS
    assert cluster.created == ["RETRY-a", "RETRY-b"]
    cluster.topics["RETRY-c"] = 4
    destinations.forget()
    assert destinations.judge("RETRY-c") == 4, "one that is there is used, however many there are"


# --- many at once -----------------------------------------------------------------------------------------------------


def test_kafka_is_asked_once_for_all_that_it_has_to_be_asked_for(make: Make) -> None:
    destinations, cluster, clock = make(orders=3, bills=1)
    destinations.judge("orders")
    verdicts = destinations.judge_all(["orders", "bills", "absent", "__consumer_offsets", "RETRY-a"])
    assert cluster.questions == 2
    assert cluster.asked == ["orders", "bills", "absent", "RETRY-a"]
    assert (verdicts["orders"], verdicts["bills"], verdicts["RETRY-a"]) == (3, 1, 1)
    codes = [rejected(verdicts[topic]).code for topic in ("absent", "__consumer_offsets")]
    assert codes == [ErrorCode.UNKNOWN_DESTINATION, ErrorCode.DESTINATION_NOT_ALLOWED]
    clock.advance(UNKNOWN_FOR_MS)
    assert destinations.judge_all(verdicts) == verdicts
    assert cluster.asked[4:] == ["absent"]


def test_of_many_missing_group_topics_no_more_are_created_than_there_may_be(make: Make) -> None:
    destinations, cluster, _ = make(Policy(max_group_topics=3), **{"DLQ-timewheel": 1})
    verdicts = destinations.judge_all([f"RETRY-{group}" for group in "abc"])
    assert list(verdicts.values())[:2] == [1, 1]
    assert rejected(verdicts["RETRY-c"]).code is ErrorCode.TOO_MANY_GROUP_TOPICS
    assert cluster.created == ["RETRY-a", "RETRY-b"]


# --- what is remembered -----------------------------------------------------------------------------------------------


def test_a_topic_that_exists_is_believed_for_a_while(make: Make) -> None:
    destinations, cluster, clock = make(orders=6)
    destinations.judge("orders")
    cluster.topics["orders"] = 12
    clock.advance(KNOWN_FOR_MS - 1)
    assert destinations.judge("orders") == 6
    clock.advance(1)
    assert destinations.judge("orders") == 12
    assert cluster.asked == ["orders"] * 2


def test_a_topic_that_is_missing_is_asked_for_again_soon(make: Make) -> None:
    destinations, cluster, clock = make()
    rejected(destinations.judge("orders"))
    cluster.topics["orders"] = 1
    clock.advance(UNKNOWN_FOR_MS)
    assert destinations.judge("orders") == 1


def test_after_a_failed_delivery_everything_is_asked_for_again(make: Make) -> None:
    destinations, cluster, _ = make(orders=6)
    destinations.judge("orders")
    cluster.topics["orders"] = 12
    destinations.forget()
    assert destinations.judge("orders") == 12


def test_what_is_remembered_is_bounded(make: Make) -> None:
    destinations, _, _ = make()
    for number in range(10_005):
        destinations.judge(f"topic-{number}")
    assert len(destinations._verdicts) <= 10_000


# --- what is allowed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic",
    [f"SCHEDULE_TOPIC_XXXX-{queue}" for queue in ("1", "99", "wheel", "sendback", "redriven")],
)
def test_a_schedule_topic_is_no_destination(make: Make, topic: str) -> None:
    destinations, cluster, _ = make(**{topic: 1})
    rejection = rejected(destinations.judge(topic))
    assert rejection.code is ErrorCode.DESTINATION_NOT_ALLOWED
    assert "is a schedule topic" in rejection.message
    assert cluster.asked == []


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__anything"])
def test_kafkas_internal_topics_are_no_destinations(make: Make, topic: str) -> None:
    destinations, cluster, _ = make(Policy(create_destinations=True), **{topic: 50})
    assert rejected(destinations.judge(topic)).code is ErrorCode.DESTINATION_NOT_ALLOWED
    assert cluster.asked == []


def test_a_topic_beyond_the_allowed_ones_is_refused_whether_it_exists_or_not(make: Make) -> None:
    destinations, cluster, _ = make(Policy(topics="orders*", create_destinations=True), orders=1, bills=1)
    assert destinations.judge("orders") == 1
    for topic in ("bills", "absent"):
        rejection = rejected(destinations.judge(topic))
        assert rejection.code is ErrorCode.DESTINATION_NOT_ALLOWED
        assert "allowed_topics" in rejection.message
    assert cluster.asked == ["orders"]


def test_retry_and_dead_letter_topics_are_a_matter_of_their_group(make: Make) -> None:
    topics = dict.fromkeys(("RETRY-billing", "DLQ-billing", "RETRY-orders", "DLQ-enc--orders.2Feu"), 1)
    destinations, _, _ = make(Policy(groups="orders*"), **topics)
    assert destinations.judge("RETRY-orders") == 1
    assert destinations.judge("DLQ-enc--orders.2Feu") == 1
    for topic in ("RETRY-billing", "DLQ-billing"):
        rejection = rejected(destinations.judge(topic))
        assert rejection.code is ErrorCode.DESTINATION_NOT_ALLOWED
        assert "group 'billing' is not among allowed_groups" in rejection.message


def test_with_a_prefix_only_prefixed_names_are_ours(make: Make) -> None:
    destinations, _, _ = make(names=TopicNames(prefix="eu."), **{"SCHEDULE_TOPIC_XXXX-1": 1})
    assert destinations.judge("SCHEDULE_TOPIC_XXXX-1") == 1
    rejected(destinations.judge("eu.SCHEDULE_TOPIC_XXXX-1"))


def test_a_partition_that_the_topic_has_not_is_told_with_those_it_has() -> None:
    rejection = unknown_partition("orders", 7, 3)
    assert rejection.code is ErrorCode.UNKNOWN_DESTINATION
    assert rejection.message == "REAL_QID is 7, but 'orders' has 3 partitions (0 to 2)"


@pytest.mark.parametrize(("topic", "remedy"), [("RETRY-a_eu", "another id for group 'a_eu'"), ("a_eu", "another name")])
def test_a_name_that_collides_with_another_says_with_which_and_what_to_do(make: Make, topic: str, remedy: str) -> None:
    destinations, cluster, _ = make(Policy(create_destinations=True))
    cluster.refusal = KafkaError.TOPIC_EXCEPTION
    cluster.reason = f"Topic '{topic}' collides with existing topic: {topic.replace('_', '.')}"
    message = rejected(destinations.judge(topic)).message
    assert "existing topic: " + topic.replace("_", ".") in message
    assert f"Kafka takes '.' and '_' for the same in names of topics, so choose {remedy}" in message
