"""Send-back, driven as consumers drive it: a real broker, the sidecar as a process, plain Kafka clients."""

import subprocess

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from connectors.embedded import run_tool
from tests.support.kafka import Headers, Kafka, Record, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

LEVELS = "20ms 30ms 40ms 50ms"


@pytest.fixture
def sidecar(sidecar: SidecarProcess) -> SidecarProcess:
    """With levels that are over soon."""
    sidecar.settings["levels"] = LEVELS
    return sidecar


@pytest.fixture
def send_back(prefix: str) -> str:
    return f"{prefix}SCHEDULE_TOPIC_XXXX-sendback"


def failed(group: str, *more: tuple[str, bytes | None]) -> Headers:
    """What a consumer adds to the message that it sends back."""
    return [("CONSUMER_GROUP", group.encode()), ("RETRY_TOPIC", b"orders"), *more]


def read_created(kafka: Kafka, topic: str, count: int, timeout_s: float = 30.0) -> list[Record]:
    """From a topic that the sidecar creates when it is first needed."""
    wait_until(lambda: topic in kafka.topics(), f"{topic} is there", timeout_s)
    return kafka.read([topic], count, timeout_s)


def test_sixteen_retries_and_the_seventeenth_failure_is_the_last(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, send_back: str
) -> None:
    sidecar.start()
    own: Headers = [("TAGS", b"a"), ("x", None), ("UNIQ_KEY", b"one")]
    headers = [*own, *failed("billing")]
    counts, ids = [], []
    for hop in range(1, 17):
        kafka.produce([(send_back, b"key", b"value", headers)])
        retry = read_created(kafka, f"{prefix}RETRY-billing", hop)[-1]
        assert retry.text("RECONSUME_TIME") == str(hop)
        assert retry.lateness_ms >= 0
        headers = retry.headers  # as the consumer saw it
        counts.append(len(headers))
        ids.append(retry.text("ORIGIN_MESSAGE_ID"))
    kafka.produce([(send_back, b"key", b"value", [*headers, ("DELAY", b"4")])])
    (letter,) = read_created(kafka, f"{prefix}DLQ-billing", 1)
    assert letter.text("RECONSUME_TIME") == "17"
    assert {*counts, len(letter.headers)} == {len(own) + len(failed("billing")) + 3}
    assert {*ids, letter.text("ORIGIN_MESSAGE_ID"), letter.text("UNIQ_KEY")} == {"one"}
    assert (letter.key, letter.value, letter.text("TAGS"), letter.header("x")) == (b"key", b"value", "a", None)
    assert letter.text("RETRY_TOPIC") == "orders"
    assert letter.header("DELAY") is None
    assert len(kafka.read([f"{prefix}RETRY-billing"], 16)) == 16


def test_the_delay_is_the_level_of_the_attempt_or_the_consumers_wish(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, send_back: str
) -> None:
    sidecar.start()
    wishes = {"third": None, "first": b"1", "fourth": b"4", "clamped": b"99", "dead": b"-1"}
    kafka.produce(
        (send_back, None, b"v", failed("billing", ("UNIQ_KEY", name.encode()), ("DELAY", wish)))
        for name, wish in wishes.items()
    )
    retries = {record.text("UNIQ_KEY"): record for record in read_created(kafka, f"{prefix}RETRY-billing", 4)}
    waited = {f"{prefix}SCHEDULE_TOPIC_XXXX-{level}": level for level in range(1, 5)}
    levels = {record.text("UNIQ_KEY"): waited[record.topic] for record in kafka.read(list(waited), 4)}
    assert levels == {"third": 3, "first": 1, "fourth": 4, "clamped": 4}
    assert all(record.lateness_ms >= 0 for record in retries.values())
    (letter,) = kafka.read([f"{prefix}DLQ-billing"], 1)
    assert letter.text("UNIQ_KEY") == "dead"


def test_the_console_producer_sends_back_by_headers_alone(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, send_back: str
) -> None:
    sidecar.start()
    lines = "".join(f"CONSUMER_GROUP:billing,RETRY_TOPIC:orders,RECONSUME_TIME:{n}\tk{n}\tvalue {n}\n" for n in (0, 1))
    tool = run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        [
            *("--bootstrap-server", kafka.bootstrap_servers, "--topic", send_back),
            *("--reader-property", "parse.headers=true", "--reader-property", "parse.key=true"),
        ],
        input=lines.encode(),
    )
    assert tool.returncode == 0, tool.stderr.decode()
    retries = read_created(kafka, f"{prefix}RETRY-billing", 2)
    assert {(r.key, r.value, r.text("RECONSUME_TIME"), r.text("UNIQ_KEY")) for r in retries} == {
        (b"k0", b"value 0", "1", f"{send_back}-0-0"),
        (b"k1", b"value 1", "2", f"{send_back}-0-1"),
    }


@pytest.mark.parametrize("tool", ["kcat"], indirect=True)
def test_kcat_sends_back_what_kcat_has_read(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, send_back: str, tool: str
) -> None:
    sidecar.start()

    def send(headers: Headers) -> None:
        command = [tool, "-b", kafka.bootstrap_servers, "-P", "-t", send_back, "-k", "key"]
        given = (part for name, value in headers for part in ("-H", f"{name}={(value or b'').decode()}"))
        subprocess.run([*command, *given], input=b"value", check=True)

    send(failed("billing/eu"))
    (first,) = read_created(kafka, f"{prefix}RETRY-enc--billing.2Feu", 1)
    send([*first.headers, ("RETRY_TOPIC", first.topic.encode()), ("MAX_RECONSUME_TIMES", b"1")])
    (letter,) = read_created(kafka, f"{prefix}DLQ-enc--billing.2Feu", 1)
    assert (letter.key, letter.value) == (b"key", b"value")
    assert (letter.text("RETRY_TOPIC"), letter.text("RECONSUME_TIME")) == ("orders", "2")


@pytest.mark.long
def test_kills_in_the_middle_lose_no_attempt_and_repeat_none(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, send_back: str
) -> None:
    sidecar.settings["batch_records"] = 4  # many transactions, so that a kill meets an open one
    sidecar.start()
    sidecar.kill()
    count = 8_000
    kafka.produce(
        (send_back, b"k%d" % number, b"v", failed(f"group-{number % 2}", ("UNIQ_KEY", b"%d" % number)))
        for number in range(count)
    )
    on_the_level = f"{prefix}SCHEDULE_TOPIC_XXXX-3"

    for kill in range(30):
        with kafka.followed(on_the_level) as moves:
            moves.catch_up()
            sidecar.start(wait_ready=False)
            wait_until(moves.has_more, f"life {kill} works", 30)
            sidecar.kill()
        if kill >= 4 and kafka.count_aborted(on_the_level):
            break
    assert kafka.lag(f"{prefix}timewheel", send_back) > 0, "it was done before the last kill: the test proves nothing"
    sidecar.settings["batch_records"] = 5_000
    sidecar.start()
    retries = [record for n in (0, 1) for record in read_created(kafka, f"{prefix}RETRY-group-{n}", count // 2, 60)]
    judge(map(str, range(count)), retries).assert_exactly_once()
    assert kafka.count_aborted(on_the_level), "no kill has met an open transaction: the test proves less than it says"


def test_what_cannot_be_retried_goes_to_the_sidecars_dead_letters(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, send_back: str
) -> None:
    own = f"{prefix}timewheel"
    sidecar.settings |= {"allowed_groups": f"billing,own*,{own}", "max_group_topics": 1_000}
    sidecar.start()
    faulty: dict[str, Headers] = {
        "MISSING_CONSUMER_GROUP": [("RETRY_TOPIC", b"orders")],
        "MISSING_RETRY_TOPIC": [("CONSUMER_GROUP", b"billing")],
        "ILLEGAL_CONSUMER_GROUP": failed(own),
        "ILLEGAL_RECONSUME_TIMES": failed("billing", ("RECONSUME_TIME", b"two")),
        "ILLEGAL_DELIVERY_TIME": failed("billing", ("DELAY", b"10s")),
        "DESTINATION_NOT_ALLOWED": failed("other"),
    }
    good = failed("billing")
    kafka.produce(
        (send_back, code.encode(), b"v", headers) for bad in faulty.items() for code, headers in (bad, ("good", good))
    )
    assert len(read_created(kafka, f"{prefix}RETRY-billing", len(faulty))) == len(faulty)
    letters = kafka.read([f"{prefix}DLQ-{own}"], len(faulty))
    assert {(letter.key or b"").decode(): letter.text("ERROR_CODE") for letter in letters} == {c: c for c in faulty}
    for letter in letters:
        assert (
            letter.headers[: -len(("CODE", "MESSAGE", "TOPIC", "PARTITION", "OFFSET"))]
            == faulty[letter.text("ERROR_CODE")]
        )
        assert (letter.text("ERROR_TOPIC"), letter.text("ERROR_PARTITION")) == (send_back, "0")
        assert letter.text("ERROR_MESSAGE")
    assert f"{prefix}RETRY-other" not in kafka.topics()


def test_group_topics_are_created_as_told_and_no_more_than_told(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, send_back: str
) -> None:
    sidecar.settings |= {"partitions": 3, "dead_letter_retention": "40d", "max_group_topics": 3}
    sidecar.start()  # has created its own dead letters: the first of three
    kafka.produce([(send_back, None, b"v", failed("one"))])
    read_created(kafka, f"{prefix}RETRY-one", 1)
    kafka.produce([(send_back, None, b"v", failed("one", ("DELAY", b"-1")))])
    read_created(kafka, f"{prefix}DLQ-one", 1)
    kafka.produce([(send_back, None, b"v", failed("two"))])
    (letter,) = kafka.read([f"{prefix}DLQ-{prefix}timewheel"], 1)
    assert letter.text("ERROR_CODE") == "TOO_MANY_GROUP_TOPICS"
    known = kafka.admin.list_topics(timeout=10).topics
    assert f"{prefix}RETRY-two" not in known
    days = {}
    for topic in (f"{prefix}RETRY-one", f"{prefix}DLQ-one", f"{prefix}DLQ-{prefix}timewheel"):
        assert len(known[topic].partitions) == 3
        resource = ConfigResource(ResourceType.TOPIC, topic)
        days[topic[len(prefix) :]] = int(
            kafka.admin.describe_configs([resource])[resource].result()["retention.ms"].value
        )
    day_ms = 86_400_000
    assert days == {"RETRY-one": 7 * day_ms, "DLQ-one": 40 * day_ms, f"DLQ-{prefix}timewheel": 40 * day_ms}
