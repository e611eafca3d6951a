"""The embedded broker is a real one: it keeps, loses, refuses and ends as promised."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from connectors.embedded import BrokerFailedError, DataDirError, EmbeddedKafka, PortTakenError, run_tool
from connectors.embedded.ports import any_free, is_free

pytestmark = pytest.mark.kafka

START_LIMIT_S = 15.0  # with the jars cached; some two seconds on an idle machine
POLL_S = 0.05


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as broker:
        yield broker


def eventually(condition: Callable[[], bool], within_s: float) -> bool:
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(POLL_S)
    return True


def make_topic(broker: EmbeddedKafka, partitions: int = 1) -> str:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})  # must outlive the wait for its answer
    client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)
    return topic


def produce(broker: EmbeddedKafka, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def consume(broker: EmbeddedKafka, topic: str, count: int, within_s: float = 20.0) -> list[Message]:
    """The first records of the topic, up to `count` of them or the deadline."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    messages: list[Message] = []
    deadline_s = time.monotonic() + within_s
    while len(messages) < count and time.monotonic() < deadline_s:
        message = consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            messages.append(message)
    consumer.close()
    return messages


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def test_it_starts_quickly_and_stops_for_good(kafka: EmbeddedKafka) -> None:
    # `kafka` has been started before: fetching jars and recording the class archive are not what is timed here.
    started_s = time.monotonic()
    with EmbeddedKafka() as broker:
        assert time.monotonic() - started_s < START_LIMIT_S
        assert broker.is_running
        port = int(broker.bootstrap_servers.rsplit(":", 1)[1])
        folder = broker.log_path.parent
    assert not broker.is_running
    assert is_free(port)
    assert not folder.exists(), "a temporary data directory is thrown away"


def test_a_record_comes_back(kafka: EmbeddedKafka) -> None:
    topic = make_topic(kafka)
    produce(kafka, topic, [b"one", b"two"])
    assert values(consume(kafka, topic, 2)) == [b"one", b"two"]


def test_a_topic_that_does_not_exist_is_not_made(kafka: EmbeddedKafka) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    assert client.list_topics("no-such-topic", timeout=20).topics["no-such-topic"].error is not None
    assert "no-such-topic" not in client.list_topics(timeout=20).topics


def test_a_transaction_commits(kafka: EmbeddedKafka) -> None:
    topic = make_topic(kafka)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"once")
    producer.commit_transaction(20)
    assert values(consume(kafka, topic, 1)) == [b"once"]


def test_kafkas_own_console_producer_writes_headers(kafka: EmbeddedKafka) -> None:
    topic = make_topic(kafka)
    connection = ["--bootstrap-server", kafka.bootstrap_servers, "--topic", topic]
    done = run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        [*connection, "--reader-property", "parse.headers=true", "--reader-property", "parse.key=true"],
        input=b"REAL_TOPIC:orders,TIMER_DELAY_SEC:90\tkey\thello\n",
    )
    assert done.returncode == 0, done.stderr.decode()
    (message,) = consume(kafka, topic, 1)
    assert (message.key(), message.value()) == (b"key", b"hello")
    assert message.headers() == [("REAL_TOPIC", b"orders"), ("TIMER_DELAY_SEC", b"90")]


def test_a_tool_that_fails_returns_its_exit_code_and_words() -> None:
    done = run_tool("org.apache.kafka.tools.ConsoleProducer", ["--no-such-option"])
    assert done.returncode != 0
    assert b"no-such-option" in done.stderr


@pytest.mark.long
def test_data_in_a_named_directory_outlives_a_stop(tmp_path: Path) -> None:
    with EmbeddedKafka(data_dir=tmp_path / "data") as broker:
        topic = make_topic(broker)
        produce(broker, topic, [b"kept"])
    with EmbeddedKafka(data_dir=tmp_path / "data") as broker:
        assert values(consume(broker, topic, 1)) == [b"kept"]


def test_a_directory_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.embedded.data_dir._LOCK_TIMEOUT_S", 0.1)
    with EmbeddedKafka(data_dir=tmp_path) as broker:
        with pytest.raises(DataDirError, match="another broker uses"):
            EmbeddedKafka(data_dir=tmp_path).start()
        assert broker.is_running


@pytest.mark.long
def test_what_was_committed_outlives_a_kill(tmp_path: Path) -> None:
    with EmbeddedKafka() as broker:
        address = broker.bootstrap_servers
        topic = make_topic(broker)
        produce(broker, topic, [b"acknowledged"])
        broker.kill()
        assert not broker.is_running
        broker.restart()
        assert broker.bootstrap_servers == address
        assert values(consume(broker, topic, 1)) == [b"acknowledged"]


@pytest.mark.slow
def test_a_transaction_committed_just_before_a_kill_is_read_after_it() -> None:
    # Enough records that the markers of the commit are still due when it returns.
    records, partitions = 6000, 3
    with EmbeddedKafka(log_level="info") as broker:
        for kill_after_s in (0.0, 0.0, 0.0, 0.004, 0.012):
            topic = make_topic(broker, partitions)
            with_offsets = [TopicPartition(topic, partition, 7 + partition) for partition in range(partitions)]
            consumer = committed_reader(broker, topic)
            producer = Producer(
                {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic, "log_level": 0}
            )
            producer.init_transactions(20)
            producer.begin_transaction()
            for number in range(records):
                producer.produce(topic, bytes(100), str(number))
            producer.send_offsets_to_transaction(with_offsets, consumer.consumer_group_metadata(), 20)
            producer.commit_transaction(20)
            kill_at_s = time.monotonic() + kill_after_s
            while time.monotonic() < kill_at_s:
                pass
            broker.kill()
            broker.restart()
            assert count_committed(consumer, topic, partitions, records) == records
            assert eventually(lambda: committed_offsets(consumer, topic, partitions) == [7, 8, 9], within_s=20)  # noqa: B023
            consumer.close()
        assert "Couldn't find leader endpoint" not in broker.log_path.read_text()


@pytest.mark.long
def test_a_stop_in_the_middle_of_commits_leaves_no_transaction_hanging() -> None:
    with EmbeddedKafka(log_level="info") as broker:
        for _ in range(3):
            topic, is_over = make_topic(broker, 2), threading.Event()
            committing = [Committing(broker, topic, f"{topic}-{number}", is_over) for number in range(8)]
            for thread in committing:
                thread.start()
            assert eventually(lambda: all(thread.commits >= 5 for thread in committing), within_s=60)  # noqa: B023
            broker.restart()
            is_over.set()
            for thread in committing:
                thread.join(30)
            assert eventually(lambda: hanging(broker, topic, 2) == {}, within_s=30)  # noqa: B023
        assert "Couldn't find leader endpoint" not in broker.log_path.read_text()


class Committing(threading.Thread):
    """Commits one transaction after another, until it is told to end or the broker goes away."""

    def __init__(self, broker: EmbeddedKafka, topic: str, transactional_id: str, is_over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.commits = 0
        self._topic = topic
        self._is_over = is_over
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 5_000,
                "message.timeout.ms": 5_000,
                "linger.ms": 0,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        self._producer.init_transactions(20)
        with suppress(KafkaException):
            while not self._is_over.is_set():
                self._producer.begin_transaction()
                for partition in range(2):
                    self._producer.produce(self._topic, b"v", partition=partition)
                self._producer.commit_transaction(5)
                self.commits += 1


def hanging(broker: EmbeddedKafka, topic: str, partitions: int) -> dict[int, int]:
    """Up to where the partitions can be read that cannot be read to their ends."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    latest = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}

    def ends(isolation: IsolationLevel) -> dict[int, int]:
        asked = admin.list_offsets(latest, isolation_level=isolation, request_timeout=10)
        return {place.partition: answer.result().offset for place, answer in asked.items()}

    try:
        written, committed = ends(IsolationLevel.READ_UNCOMMITTED), ends(IsolationLevel.READ_COMMITTED)
    except KafkaException:  # it has just started
        return {-1: -1}
    return {partition: end for partition, end in committed.items() if end < written[partition]}


def committed_reader(broker: EmbeddedKafka, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,  # it reads on as soon as the broker is back
            "log_level": 0,
        }
    )


def count_committed(consumer: Consumer, topic: str, partitions: int, wanted: int, within_s: float = 20.0) -> int:
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    count = 0
    deadline_s = time.monotonic() + within_s
    while count < wanted and time.monotonic() < deadline_s:
        count += sum(message.error() is None for message in consumer.consume(wanted, POLL_S))
    return count


def committed_offsets(consumer: Consumer, topic: str, partitions: int) -> list[int]:
    """Nothing while the offsets wait for the end of their transaction."""
    asked = [TopicPartition(topic, partition) for partition in range(partitions)]
    try:
        return [answer.offset for answer in consumer.committed(asked, timeout=2)]
    except KafkaException:
        return []


@pytest.mark.long
def test_a_directory_left_by_a_killed_owner_is_started_on(tmp_path: Path) -> None:
    with EmbeddedKafka(data_dir=tmp_path) as broker:
        topic = make_topic(broker)
        produce(broker, topic, [b"acknowledged"])
        broker.kill()
    with EmbeddedKafka(data_dir=tmp_path, log_level="info") as broker:
        assert values(consume(broker, topic, 1)) == [b"acknowledged"]
    assert "Fencing broker 1" in (tmp_path / "controller.log").read_text()


def test_a_broker_killed_before_it_has_registered_leaves_nothing_to_fence(tmp_path: Path) -> None:
    broker = EmbeddedKafka(data_dir=tmp_path, heap="1m")
    with pytest.raises(BrokerFailedError):
        broker.start()
    with EmbeddedKafka(data_dir=tmp_path) as broker:
        assert broker.is_running


def test_a_fencing_that_fails_says_why(tmp_path: Path) -> None:
    with EmbeddedKafka(data_dir=tmp_path) as broker:
        broker.kill()
    with pytest.raises(BrokerFailedError, match=r"Invalid value many for configuration num\.io\.threads"):
        EmbeddedKafka(data_dir=tmp_path, server_properties={"num.io.threads": "many"}).start()
    assert "Invalid value many" in (tmp_path / "kafka.log").read_text()


def test_a_suspended_broker_answers_nobody_until_it_is_resumed(kafka: EmbeddedKafka) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    assert client.list_topics(timeout=20).brokers
    kafka.suspend()
    try:
        produced = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        produced.produce("t", b"waits")
        assert produced.flush(0.5) == 1
        produced.purge()
    finally:
        kafka.resume()
    assert client.list_topics(timeout=20).brokers


def test_a_suspended_broker_can_be_stopped() -> None:
    broker = EmbeddedKafka().start()
    broker.suspend()
    broker.stop()
    assert not broker.is_running


def test_a_taken_port_is_named(kafka: EmbeddedKafka) -> None:
    port = int(kafka.bootstrap_servers.rsplit(":", 1)[1])
    broker = EmbeddedKafka(port=port)
    with pytest.raises(PortTakenError, match=f"port {port} .* is taken"):
        broker.start()
    assert not broker.is_running


def test_a_named_port_is_used() -> None:
    port = any_free()
    with EmbeddedKafka(port=port) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"


def test_a_property_that_kafka_refuses_fails_with_its_reason() -> None:
    broker = EmbeddedKafka(server_properties={"num.io.threads": "many"})
    with pytest.raises(BrokerFailedError, match=r"Invalid value many for configuration num\.io\.threads") as caught:
        broker.start()
    assert "Invalid value many" in caught.value.log_path.read_text()
    assert not broker.is_running
    caught.value.log_path.unlink()


def test_a_broker_that_ends_while_it_starts_fails_with_the_end_of_its_log(tmp_path: Path) -> None:
    broker = EmbeddedKafka(data_dir=tmp_path, heap="1m")  # formats, but no Kafka fits into it
    with pytest.raises(BrokerFailedError) as caught:
        broker.start()
    assert caught.value.log_path == tmp_path / "kafka.log"
    assert caught.value.log_tail
    assert caught.value.log_tail in str(caught.value)


def test_wait_returns_when_the_broker_ends_by_itself() -> None:
    with EmbeddedKafka() as broker:
        assert broker.pid is not None
        with pytest.raises(TimeoutError):
            broker.wait(timeout_s=0)
        os.kill(broker.pid, signal.SIGKILL)
        assert broker.wait(timeout_s=20) == -signal.SIGKILL
        assert not broker.is_running


OWNER = """
import sys
from connectors.embedded import EmbeddedKafka
broker = EmbeddedKafka().start()
print(broker.pid, broker.log_path.parent, broker.bootstrap_servers, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_the_process_that_started_it_even_by_sigkill(kafka: EmbeddedKafka) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        pid, folder, address = owner.stdout.readline().split()
        owner.kill()
    assert eventually(lambda: not is_alive(int(pid)), within_s=5)
    assert eventually(lambda: not Path(folder).exists(), within_s=5)
    assert is_free(int(address.rsplit(":", 1)[1]))


def test_the_terminals_interrupt_does_not_reach_it(kafka: EmbeddedKafka) -> None:
    assert kafka.pid is not None
    assert os.getsid(kafka.pid) != os.getsid(0)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that nobody has waited for yet (a zombie) does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.strip().startswith("Z")
