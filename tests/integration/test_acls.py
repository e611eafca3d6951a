"""The access list of docs/security.md on a broker with the standard authorizer: it suffices, one ACL fewer does not.

All sidecars run at a time, each as a user of its own: one with the whole list, the others with an ACL less.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from tests.support.secured_kafka import ADMIN, Denied, SecuredKafka, secured_kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"

_RESOURCES = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
}


@dataclass(frozen=True)
class Acl:
    """One line and one operation of the document."""

    kind: ResourceType
    name: str
    is_prefix: bool
    operation: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.kind.name.lower()} {self.name}"

    def binding(self, user: str, prefix: str) -> AclBinding:
        """For a user whose names begin with a prefix."""
        name = self.name if self.kind is ResourceType.BROKER else prefix + self.name
        pattern = ResourcePatternType.PREFIXED if self.is_prefix else ResourcePatternType.LITERAL
        operation = AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.operation).upper()]
        return AclBinding(self.kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def documented() -> list[Acl]:
    found = []
    for line in re.findall(r"^acls (--.*)$", DOCUMENT.read_text(), flags=re.MULTILINE):
        words = shlex.split(line)
        is_prefix = "prefixed" in words
        kind, name = ResourceType.BROKER, "kafka-cluster"  # the admin client's name for the cluster
        for option, resource in _RESOURCES.items():
            if option in words:
                kind, name = resource, words[words.index(option) + 1]
        operations = [words[place + 1] for place, word in enumerate(words) if word == "--operation"]
        found += [Acl(kind, name, is_prefix, operation) for operation in operations]
    return found


ACLS = documented()


class Scenario:
    """A sidecar as one user, and everything it is there for: levels, the wheel, retries, dead letters."""

    def __init__(self, kafka: SecuredKafka, number: int, directory: Path, without: Acl | None) -> None:
        self.user, self.prefix = f"user{number}", f"p{number}."
        self._kafka = kafka
        kafka.allow([acl.binding(self.user, self.prefix) for acl in ACLS if acl != without])
        self._expected = {
            f"{self.prefix}orders": 2,
            f"{self.prefix}RETRY-billing": 1,
            f"{self.prefix}DLQ-billing": 1,
            f"{self.prefix}DLQ-{self.prefix}timewheel": 1,
        }
        directory.mkdir()
        self.sidecar = SidecarProcess(
            kafka.bootstrap_servers,
            directory,
            topic_prefix=self.prefix,
            group_id=f"{self.prefix}timewheel",
            levels="1s 2s",
            transaction_timeout="5s",
        )

    def start(self) -> None:
        login = json.dumps(self._kafka.login(self.user))
        self.sidecar.start(wait_ready=False, env={"TIMEWHEEL_KAFKA": login})

    def schedule(self) -> None:
        """As somebody else, who may do everything: the sidecar's rights are what is examined."""
        producer = Producer({"bootstrap.servers": self._kafka.bootstrap_servers, **self._kafka.login(ADMIN)})
        schedule, orders = f"{self.prefix}SCHEDULE_TOPIC_XXXX-", f"{self.prefix}orders".encode()
        failed = [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", orders)]
        for queue, headers in (
            ("1", [("REAL_TOPIC", orders)]),
            ("wheel", [("REAL_TOPIC", orders), ("TIMER_DELAY_MS", b"1000")]),
            ("wheel", [("REAL_TOPIC", orders), ("TIMER_DELAY_MS", b"no number")]),
            ("sendback", [*failed, ("DELAY", b"1")]),
            ("sendback", [*failed, ("DELAY", b"-1")]),
        ):
            producer.produce(schedule + queue, b"v", headers=list(headers))
        assert producer.flush(30) == 0

    def has_topics(self) -> bool:
        known = self._kafka.admin().list_topics(timeout=10).topics
        return f"{self.prefix}SCHEDULE_TOPIC_XXXX-wheel" in known

    def has_delivered(self) -> bool:
        """Everything to where it belongs."""
        known = self._kafka.admin().list_topics(timeout=10).topics
        return all(topic in known and self.count(topic) >= count for topic, count in self._expected.items())

    def complaints(self) -> list[str]:
        """Warnings about what the sidecar may not do."""
        return [
            str(event)
            for event in self.sidecar.events()
            if event["level"] != "info" and re.search("cannot be read|retention unknown", str(event))
        ]

    def has_ended(self) -> bool:
        """With an error."""
        return self.sidecar.process.poll() not in (None, 0)

    def denied(self) -> list[Denied]:
        return [each for each in self._kafka.denied() if each.user == self.user]

    def count(self, topic: str) -> int:
        """How many records a read_committed reader sees."""
        reader = Consumer(
            {
                "bootstrap.servers": self._kafka.bootstrap_servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                **self._kafka.login(ADMIN),
            }
        )
        try:
            reader.assign([TopicPartition(topic, 0, 0)])
            count = 0
            while (message := reader.poll(5)) is not None and message.error() is None:
                count += 1
            return count
        finally:
            reader.close()


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Acl | None, Scenario]]:
    """By the ACL that is missing; the one that lacks none has done all it should."""
    missing: list[Acl | None] = [None, *ACLS]
    directory = tmp_path_factory.mktemp("secured")
    with secured_kafka(directory, [f"user{number}" for number in range(len(missing))]) as kafka:
        names = [f"p{number}.orders" for number in range(len(missing))]
        admin = kafka.admin()
        for answer in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            answer.result(30)
        made = {
            without: Scenario(kafka, number, directory / f"sidecar{number}", without)
            for number, without in enumerate(missing)
        }
        try:
            for scenario in made.values():
                scenario.start()
            whole = made[None]
            wait_until(whole.has_topics, "the schedule topics are there", 60, poll_s=0.3)
            wait_until(lambda: whole.sidecar.get("/readyz")[0] == 200, "the sidecar is ready", 60)
            for without, scenario in made.items():
                if without is None or scenario.has_topics():
                    scenario.schedule()
            wait_until(whole.has_delivered, "everything is delivered", 60, poll_s=0.5)
            yield made
        finally:
            for scenario in made.values():
                scenario.sidecar.kill()


def test_the_document_lists_what_is_examined() -> None:
    assert len(ACLS) == len(set(ACLS)) == 13


def test_the_list_suffices(scenarios: dict[Acl | None, Scenario]) -> None:
    whole = scenarios[None]
    assert whole.complaints() == []
    assert whole.denied() == []
    code, _ = whole.sidecar.terminate()
    assert code == 0


@pytest.mark.parametrize("without", ACLS, ids=str)
def test_one_fewer_does_not(scenarios: dict[Acl | None, Scenario], without: Acl) -> None:
    scenario = scenarios[without]
    # Some refusals are silent: what a client may not describe is left out of what it is told.
    refused = f"the broker refuses the sidecar without {without}"
    wait_until(lambda: scenario.denied() or scenario.has_ended(), refused, 60, poll_s=0.2)
    if without.operation == "DescribeConfigs":
        wait_until(scenario.complaints, "the sidecar says so", 30, poll_s=0.2)
    else:
        assert not scenario.has_delivered()


def test_a_schedule_topic_that_may_be_read_no_more_is_told_and_makes_no_dead_letters(tmp_path: Path) -> None:
    """Its progress is refused, too, with the error that a destination without the right to write gives."""
    (tmp_path / "kafka").mkdir()
    with secured_kafka(tmp_path / "kafka", ["user0"]) as kafka:
        scenario = Scenario(kafka, 0, tmp_path / "sidecar", None)
        admin, wheel = kafka.admin(), "p0.SCHEDULE_TOPIC_XXXX-wheel"
        admin.create_topics([NewTopic("p0.orders", 1, 1)])["p0.orders"].result(30)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **kafka.login(ADMIN)})

        def schedule() -> None:
            headers: list[tuple[str, str | bytes | None]] = [("REAL_TOPIC", b"p0.orders"), ("TIMER_DELAY_MS", b"3000")]
            producer.produce(wheel, b"v", headers=headers)
            assert producer.flush(30) == 0

        def is_told(words: str) -> bool:
            return words in scenario.sidecar.get("/readyz")[1]

        where = ResourceType.TOPIC, wheel, ResourcePatternType.LITERAL, "User:user0", "*", AclOperation.READ
        try:
            scenario.start()
            scenario.sidecar.wait_ready(60)
            schedule()
            wait_until(lambda: scenario.sidecar.pending() == 1, "the message is on the wheel", 30)
            kafka.allow([AclBinding(*where, AclPermissionType.DENY)])
            wait_until(lambda: "Failed to commit offsets" in scenario.sidecar.log_text(), "it is refused", 30)
            for answer in admin.delete_acls([AclBindingFilter(*where, AclPermissionType.DENY)]).values():
                answer.result(30)
            wait_until(lambda: scenario.count("p0.orders") == 1, "it is delivered", 60, poll_s=0.5)

            kafka.allow([AclBinding(*where, AclPermissionType.DENY)])
            wait_until(lambda: is_told(f"{wheel} may not be read"), "an idle sidecar tells it, too", 60, poll_s=0.5)
            schedule()
            for answer in admin.delete_acls([AclBindingFilter(*where, AclPermissionType.DENY)]).values():
                answer.result(30)
            wait_until(lambda: scenario.count("p0.orders") == 2, "nothing has got lost", 60, poll_s=0.5)
            scenario.sidecar.wait_ready(60)
            assert scenario.count("p0.DLQ-p0.timewheel") == 0
        finally:
            scenario.sidecar.kill()


def test_records_for_a_topic_that_may_be_read_and_not_written_become_dead_letters_and_hold_up_nobody(
    tmp_path: Path,
) -> None:
    """Of such a topic Kafka tells when it is to join a transaction, which fails as a whole."""
    (tmp_path / "kafka").mkdir()
    with secured_kafka(tmp_path / "kafka", ["user0"]) as kafka:
        scenario = Scenario(kafka, 0, tmp_path / "sidecar", Acl(ResourceType.TOPIC, "orders", False, "Write"))
        admin, topic = kafka.admin(), ResourceType.TOPIC
        for answer in admin.create_topics([NewTopic(f"p0.{name}", 1, 1) for name in ("orders", "bills")]).values():
            answer.result(30)
        kafka.allow(
            [
                Acl(topic, *what).binding("user0", "p0.")
                for what in (("orders", False, "Read"), ("bills", False, "Write"))
            ]
        )
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **kafka.login(ADMIN)})
        try:
            scenario.start()
            wait_until(lambda: scenario.sidecar.get("/readyz")[0] == 200, "the sidecar is ready", 60)
            waits: list[tuple[str, str | bytes | None]] = [("TIMER_DELAY_MS", b"1500")]
            for queue, headers in (("1", []), ("2", []), ("wheel", waits)):
                for destination in [b"p0.orders", *[b"p0.bills"] * 50]:
                    told = [("REAL_TOPIC", destination), *headers]
                    producer.produce(f"p0.SCHEDULE_TOPIC_XXXX-{queue}", b"v", headers=told)
            assert producer.flush(30) == 0
            wait_until(lambda: scenario.count("p0.bills") == 150, "everybody else's records are there", 60, poll_s=0.5)
            wait_until(
                lambda: scenario.count("p0.DLQ-p0.timewheel") == 3, "those for it are dead letters", 60, poll_s=0.5
            )
            assert scenario.count("p0.orders") == 0
            assert scenario.sidecar.metric("timewheel_transactions_total", outcome="aborted") < 100
        finally:
            scenario.sidecar.kill()
