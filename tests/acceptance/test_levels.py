"""Delay levels, driven as users drive them: a real broker, the sidecar as a process, plain Kafka clients."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.embedded import EmbeddedKafka, run_tool
from tests.support.kafka import Headers, Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

VALUE = b"x" * 200


def scheduled(
    prefix: str, destination: str, count: int, levels: int = 3
) -> Iterator[tuple[str, bytes | None, bytes | None, Headers]]:
    """Records over the levels in turn, with their number as id."""
    for number in range(count):
        headers: Headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", b"%d" % number)]
        yield f"{prefix}SCHEDULE_TOPIC_XXXX-{number % levels + 1}", b"k%d" % number, VALUE, headers


def produce_evenly(
    kafka: Kafka, records: Iterator[tuple[str, bytes | None, bytes | None, Headers]], per_second: int
) -> None:
    producer = kafka.producer()
    began = time.monotonic()
    for number, (topic, key, value, headers) in enumerate(records):
        producer.produce(topic, value, key, headers=list(headers))
        producer.poll(max(0.0, began + number / per_second - time.monotonic()))
    assert producer.flush(10) == 0


def ids(count: int) -> list[str]:
    return [str(number) for number in range(count)]


@pytest.mark.slow
def test_evenly_spread_records_arrive_once_and_within_100_ms(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.start()
    # A broker that has just started runs its first transactions in an interpreter: they are not what is measured.
    warm_up = kafka.create_topic(f"{prefix}warm-up", 3)
    for _ in range(3):
        kafka.produce(scheduled(prefix, warm_up, 300))
    kafka.read([warm_up], 900)
    produce_evenly(kafka, scheduled(prefix, destination, 6_000), per_second=1_000)
    verdict = judge(ids(6_000), kafka.read([destination], 6_000))
    verdict.assert_exactly_once()
    assert verdict.percentile(0.99) < 100, f"p99 lateness is {verdict.percentile(0.99)} ms"


def test_a_heap_of_records_arrives_once(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.start()
    kafka.produce(scheduled(prefix, destination, 6_000))
    verdict = judge(ids(6_000), kafka.read([destination], 6_000))
    verdict.assert_exactly_once()


def test_order_is_kept_per_level_partition(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    kafka.produce(scheduled(prefix, destination, 2_000, levels=1))
    delivered = kafka.read([destination], 2_000)
    assert [record.text("UNIQ_KEY") for record in delivered] == ids(2_000)


@pytest.mark.slow
def test_ten_sigkills_lose_nothing_and_repeat_nothing(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.settings["batch_records"] = 20  # many transactions, so that there is something to do for every life
    sidecar.start()
    kafka.produce(scheduled(prefix, destination, 20_000))
    sidecar.kill()
    restart_s: list[float] = []

    with kafka.followed(destination) as deliveries:
        for kill in range(30):
            deliveries.catch_up()
            began = time.monotonic()
            sidecar.start(wait_ready=False)
            wait_until(deliveries.has_more, f"delivery after kill {kill}", 30)
            restart_s.append(time.monotonic() - began)
            sidecar.kill()
            if kill >= 9 and kafka.count_aborted(destination):
                break
    sidecar.settings["batch_records"] = 5_000
    sidecar.start()
    verdict = judge(ids(20_000), kafka.read([destination], 20_000, 60))
    verdict.assert_exactly_once()
    assert kafka.count_aborted(destination), "no kill has met an open transaction: the test proves less than it says"
    # Most of it is Python's imports. A time-out that somebody waits for is longer.
    assert max(restart_s) < 6, f"restarts took {[f'{seconds:.1f}' for seconds in restart_s]} s until the first delivery"


@pytest.mark.slow
def test_a_broker_that_is_killed_and_comes_back_costs_nothing(prefix: str, sidecar: SidecarProcess) -> None:
    with EmbeddedKafka() as broker:
        kafka = Kafka(broker.bootstrap_servers)
        destination = kafka.create_topic(f"{prefix}orders", 3)
        sidecar.settings["bootstrap_servers"] = broker.bootstrap_servers
        sidecar.start()
        pid = sidecar.process.pid
        kafka.produce(scheduled(prefix, destination, 20_000))
        wait_until(lambda: sidecar.metric("timewheel_delivered_records_total") > 0, "the first delivery")
        broker.kill()
        broker.restart()
        verdict = judge(ids(20_000), kafka.read([destination], 20_000, 90))
        verdict.assert_exactly_once()
        assert sidecar.process.poll() is None
        assert sidecar.process.pid == pid


@pytest.mark.long
def test_a_partition_that_was_paused_and_comes_back_is_read_on(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, tmp_path: Path
) -> None:
    """librdkafka remembers a pause through a rebalance."""
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.settings |= {"levels": "8s", "read_ahead_records": 10, "partitions": 2}
    sidecar.start()
    kafka.produce(scheduled(prefix, destination, 500, levels=1))
    wait_until(lambda: sidecar.metric("timewheel_waiting_records") >= 20, "both partitions are read ahead and paused")
    (tmp_path / "other").mkdir()
    other = SidecarProcess(kafka.bootstrap_servers, tmp_path / "other")
    other.settings |= {**sidecar.settings, "data_dir": tmp_path / "other" / "data"}
    with other:
        pass  # it has joined, taken partitions, and is killed: all of them come back
    judge(ids(500), kafka.read([destination], 500, 60)).assert_exactly_once()


@pytest.mark.long
def test_a_partition_whose_read_ahead_is_small_is_read_on_in_time(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    """A broker keeps the fetch that was open at the pause, and with it the partition's next, for the fetch's wait."""
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.settings |= {"levels": "2s", "read_ahead_bytes": 20_000}  # some 30 records
    sidecar.start()
    produce_evenly(kafka, scheduled(prefix, destination, 1_200, levels=1), per_second=200)
    verdict = judge(ids(1_200), kafka.read([destination], 1_200))
    verdict.assert_exactly_once()
    assert verdict.percentile(0.5) < 60, f"the median lateness is {verdict.percentile(0.5)} ms"


def test_console_producer_lines_with_three_headers_are_delivered(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.start()
    lines = "".join(f"REAL_TOPIC:{destination},TAGS:t{n},UNIQ_KEY:{n}\tk{n}\tvalue {n}\n" for n in range(5))
    tool = run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        [
            *("--bootstrap-server", kafka.bootstrap_servers, "--topic", f"{prefix}SCHEDULE_TOPIC_XXXX-1"),
            *("--reader-property", "parse.headers=true", "--reader-property", "parse.key=true"),
        ],
        input=lines.encode(),
    )
    assert tool.returncode == 0, tool.stderr.decode()
    delivered = kafka.read([destination], 5)
    judge(ids(5), delivered).assert_exactly_once()
    by_id = {record.text("UNIQ_KEY"): record for record in delivered}
    assert {n: (r.key, r.value, r.text("TAGS")) for n, r in by_id.items()} == {
        str(n): (b"k%d" % n, b"value %d" % n, f"t{n}") for n in range(5)
    }


@pytest.mark.parametrize("tool", ["kcat"], indirect=True)
def test_kcat_headers_are_carried_exactly(kafka: Kafka, prefix: str, sidecar: SidecarProcess, tool: str) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.start()
    given = ["REAL_TOPIC=" + destination, "REAL_QID=2", "a=1", "a=2", "empty=", "null", "UNIQ_KEY=one"]
    topic = f"{prefix}SCHEDULE_TOPIC_XXXX-1"
    command = [tool, "-b", kafka.bootstrap_servers, "-P", "-t", topic, "-k", "key"]
    subprocess.run([*command, *(part for header in given for part in ("-H", header))], input=b"value", check=True)
    (record,) = kafka.read([destination], 1)
    assert (record.key, record.value, record.partition) == (b"key", b"value", 2)
    assert record.headers[:-1] == [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None), ("UNIQ_KEY", b"one")]
    assert record.headers[-1][0] == "TIMER_OUT_MS"


def test_keys_land_where_a_java_producer_puts_them(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 5)
    by_java = kafka.create_topic(f"{prefix}by-java", 5)
    sidecar.start()
    kafka.produce(scheduled(prefix, destination, 200))
    lines = "".join(f"k{number}\tv\n" for number in range(200))
    tool = run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        ["--bootstrap-server", kafka.bootstrap_servers, "--topic", by_java, "--reader-property", "parse.key=true"],
        input=lines.encode(),
    )
    assert tool.returncode == 0, tool.stderr.decode()
    java = {record.key: record.partition for record in kafka.read([by_java], 200)}
    assert {record.key: record.partition for record in kafka.read([destination], 200)} == java


def test_rejected_records_reach_the_dead_letters_with_their_reason(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    small = kafka.create_topic(f"{prefix}small", max_message_bytes="2000")
    kafka.create_topic(f"{prefix}secret")
    sidecar.settings["denied_topics"] = "*secret"
    sidecar.start()
    level_1 = f"{prefix}SCHEDULE_TOPIC_XXXX-1"
    real = destination.encode()
    faulty: dict[str, tuple[bytes, Headers]] = {
        "MISSING_REAL_TOPIC": (b"v", []),
        "ILLEGAL_REAL_TOPIC": (b"v", [("REAL_TOPIC", b"no/such name")]),
        "ILLEGAL_REAL_QID": (b"v", [("REAL_TOPIC", real), ("REAL_QID", b"")]),
        "NOT_CANCELLABLE": (b"v", [("REAL_TOPIC", real), ("TIMER_DEL_UNIQKEY", b"x")]),
        "DESTINATION_NOT_ALLOWED": (b"v", [("REAL_TOPIC", f"{prefix}secret".encode())]),
        "UNKNOWN_DESTINATION": (b"v", [("REAL_TOPIC", f"{prefix}missing".encode())]),
        "RECORD_TOO_LARGE": (b"v" * 3_000, [("REAL_TOPIC", small.encode())]),
    }
    batch: list[tuple[str, bytes | None, bytes | None, Headers]] = []
    for number, (code, (value, headers)) in enumerate(faulty.items()):
        good: Headers = [("REAL_TOPIC", real), ("UNIQ_KEY", b"%d" % number)]
        batch.append(
            (level_1, code.encode(), value, [*headers, ("keep", b"me"), ("ERROR_CODE", b"of an earlier life")])
        )
        batch.append((level_1, b"good", b"v", good))
    kafka.produce(batch)
    judge(ids(len(faulty)), kafka.read([destination], len(faulty))).assert_exactly_once()
    letters = kafka.read([f"{prefix}DLQ-{sidecar.settings['group_id']}"], len(faulty))
    assert {(letter.key or b"").decode(): letter.text("ERROR_CODE") for letter in letters} == {
        code: code for code in faulty
    }
    for letter in letters:
        value, headers = faulty[letter.text("ERROR_CODE")]
        assert letter.value == value
        assert letter.headers[: len(headers) + 1] == [*headers, ("keep", b"me")]
        assert letter.text("ERROR_TOPIC") == level_1
        assert letter.text("ERROR_MESSAGE")
    assert f"{prefix}missing" not in kafka.topics(), "a destination was created by accident"


def test_a_destination_created_before_its_record_is_due_is_found(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    sidecar.start()
    destination = f"{prefix}later"
    kafka.produce(scheduled(prefix, destination, 1))
    kafka.create_topic(destination)
    judge(ids(1), kafka.read([destination], 1)).assert_exactly_once()


def test_a_record_of_one_megabyte_is_delivered(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders", max_message_bytes="2000000")
    sidecar.start()
    value = b"x" * 1_048_000
    headers: Headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", b"0")]
    kafka.produce([(f"{prefix}SCHEDULE_TOPIC_XXXX-1", None, value, headers)], message_max_bytes=2_000_000)
    (record,) = kafka.read([destination], 1)
    assert record.value == value


@pytest.mark.long
def test_at_least_once_delivers_everything_without_transactions(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.settings["guarantee"] = "at_least_once"
    sidecar.start()
    kafka.produce(scheduled(prefix, destination, 1_000))
    verdict = judge(ids(1_000), kafka.read([destination], 1_000))
    assert not verdict.lost
    assert not verdict.early
