"""Alerts and progress in one transaction, on a real broker; and their metrics."""

import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from connectors.embedded import EmbeddedKafka
from spark.alert_sink import MAX_DESTINATIONS, AlertMetrics, KafkaAlerts
from spark.alerts import Alert, Progress
from spark.errors import AuditError, NotAnsweredError
from tests.support.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def alert(name: str, destination: str | None = "orders") -> Alert:
    return Alert(name, destination, "SCHEDULE_TOPIC_XXXX-wheel", 2, 17, 1_000, "", 12_000)


def until(judged_until_ms: int) -> Progress:
    return Progress(judged_until_ms, judged_until_ms - 500)


def sink(kafka: Kafka, prefix: str, metrics: AlertMetrics | None = None) -> KafkaAlerts:
    options = {"bootstrap.servers": kafka.bootstrap_servers}
    topic = f"{prefix}TIMEWHEEL-ALERTS"
    return KafkaAlerts(options, topic, f"{topic}.progress", metrics or AlertMetrics(), replication_factor=1)


def test_alerts_are_json_keyed_by_id_and_the_progress_goes_with_them(kafka: Kafka, prefix: str) -> None:
    first = sink(kafka, prefix)
    assert first.progress() is None
    assert first.put([alert("a"), alert("größe")], until(12_000)) == 2
    assert first.put([], until(13_000)) == 0
    records = kafka.read([f"{prefix}TIMEWHEEL-ALERTS"], 2)
    assert [(record.key or b"").decode() for record in records] == ["a", "größe"]
    assert json.loads(records[0].value or b"") == {
        "alert": "overdue",
        "id": "a",
        "destination": "orders",
        "topic": "SCHEDULE_TOPIC_XXXX-wheel",
        "partition": 2,
        "offset": 17,
        "due_ms": 1_000,
        "why": "",
        "as_of_ms": 12_000,
        "overdue_ms": 11_000,
    }
    first.close()
    again = sink(kafka, prefix)
    assert again.progress() == until(13_000)
    again.close()


def test_what_fails_half_way_is_not_seen_and_moves_no_progress(kafka: Kafka, prefix: str) -> None:
    metrics = AlertMetrics()
    alerts = sink(kafka, prefix, metrics)
    alerts.put([alert("before")], until(1_000))

    def half() -> Iterator[Alert]:
        yield alert("half")
        raise RuntimeError("Spark has failed")

    with pytest.raises(RuntimeError):
        alerts.put(half(), until(2_000))
    alerts.put([alert("after")], until(3_000))
    seen = [record.key for record in kafka.read([f"{prefix}TIMEWHEEL-ALERTS"], 2)]
    assert seen == [b"before", b"after"]
    assert alerts.progress() == until(3_000)
    assert metrics.registry.get_sample_value("timewheel_audit_overdue_total", {"destination": "orders"}) == 2
    alerts.close()


def test_one_that_was_taken_over_writes_nothing_more(kafka: Kafka, prefix: str) -> None:
    old = sink(kafka, prefix)
    old.put([alert("old")], until(1_000))
    new = sink(kafka, prefix)
    with pytest.raises(AuditError, match="has taken over"):
        old.put([alert("zombie")], until(2_000))
    assert new.progress() == until(1_000)
    new.put([alert("new")], until(2_000))
    assert [record.key for record in kafka.read([f"{prefix}TIMEWHEEL-ALERTS"], 2)] == [b"old", b"new"]
    old.close()
    new.close()


class Answer:
    """What `Consumer.committed` gives for a partition; a `TopicPartition` cannot be made with an error."""

    def __init__(self, offset: int, metadata: str = "", error: KafkaError | None = None) -> None:
        self.offset, self.metadata, self.error = offset, metadata, error


class Group:
    """A consumer whose group has committed something; Kafka says so at last."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)

    def committed(self, _asked: Sequence[TopicPartition], _timeout_s: float) -> list[Answer]:
        return [self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]]


UNSTABLE = Answer(-1001, error=KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT))


def test_progress_that_is_not_known_yet_is_not_taken_for_none(
    kafka: Kafka, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was due within the last hour would be alerted a second time."""
    alerts = sink(kafka, prefix)
    with monkeypatch.context() as patch:
        patch.setattr(alerts, "_consumer", Group(UNSTABLE, Answer(0, '{"judged_until_ms": 3000}')))
        assert alerts.progress() == Progress(3_000, None), "of an audit that did not keep the other"
        patch.setattr("spark.alert_sink._TIMEOUT_S", 0.3)
        patch.setattr(alerts, "_consumer", Group(UNSTABLE))
        with pytest.raises(NotAnsweredError, match=r"the progress of .* cannot be read"):
            alerts.progress()
    alerts.close()


def test_metrics_are_bounded_and_written_whole(tmp_path: Path) -> None:
    file = tmp_path / "alerts.prom"
    metrics = AlertMetrics(file)
    metrics.judged({f"topic-{number}": 1 for number in range(MAX_DESTINATIONS + 50)}, 12_000)
    families = {family.name: family for family in text_string_to_metric_families(file.read_text())}
    raised = [sample for sample in families["timewheel_audit_overdue"].samples if sample.name.endswith("_total")]
    assert len(raised) == MAX_DESTINATIONS + 1
    assert {sample.labels["destination"]: sample.value for sample in raised}["other"] == 50
    assert families["timewheel_audit_watched_until_timestamp_seconds"].samples[0].value == 12.0
    assert [path.name for path in tmp_path.iterdir()] == ["alerts.prom"]


def test_a_metrics_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match=r"--metrics-file .*absent/alerts.prom cannot be written: No such file"):
        AlertMetrics(tmp_path / "absent" / "alerts.prom").judged({}, 12_000)


def test_without_kafka_that_is_said(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark.alert_sink._TIMEOUT_S", 1.0)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(NotAnsweredError, match="cannot be written"):
            sink(Kafka(f"127.0.0.1:{nobody.getsockname()[1]}"), prefix)


def test_a_kafka_that_goes_away_is_no_refusal_and_is_not_waited_for_as_long_as_a_transaction_may_last(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedKafka() as broker:
        options = {"bootstrap.servers": broker.bootstrap_servers}
        alerts = KafkaAlerts(options, f"{prefix}alerts", prefix, AlertMetrics(), replication_factor=1)
        assert alerts.put([], until(1_000)) == 0
    monkeypatch.setattr("spark.alert_sink._TIMEOUT_S", 1.0)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(NotAnsweredError, match="cannot be written"):
            sink(Kafka(f"127.0.0.1:{nobody.getsockname()[1]}"), prefix)
