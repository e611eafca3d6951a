"""How the audit reaches Kafka: librdkafka's options for Spark's Java client, and which topics are read."""

from pathlib import Path

import pytest

from connectors.contract import DelayLevels, TopicNames
from spark.cluster import audited_topics
from spark.errors import AuditError
from spark.kafka_options import for_librdkafka, for_spark

BROKER = {"bootstrap.servers": "kafka:9093"}


def test_what_both_clients_call_alike_goes_through_and_what_tunes_one_of_them_does_not() -> None:
    options = {**BROKER, "security.protocol": "ssl", "queued.min.messages": "9", "client.rack": "a"}
    assert for_spark(options) == {
        "kafka.bootstrap.servers": "kafka:9093",
        "kafka.security.protocol": "SSL",
        "kafka.client.rack": "a",
    }


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    ],
)
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_user_and_a_password_become_a_login_module(mechanism: str, module: str, name: str) -> None:
    java = for_spark({**BROKER, name: mechanism, "sasl.username": 'a"b', "sasl.password": "c\\d"})
    assert java["kafka.sasl.mechanism"] == mechanism
    assert java["kafka.sasl.jaas.config"] == rf'{module} required username="a\"b" password="c\\d";'


def test_pem_files_become_stores_of_the_type_pem(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("CERTIFICATE")
    (tmp_path / "key.pem").write_text("KEY")
    files = {
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": str(tmp_path / "cert.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
        "ssl.key.password": "secret",
    }
    java = for_spark({**BROKER, **files})
    assert java["kafka.ssl.truststore.type"] == java["kafka.ssl.keystore.type"] == "PEM"
    assert java["kafka.ssl.truststore.location"] == "/ca.pem"
    assert java["kafka.ssl.keystore.certificate.chain"] == "CERTIFICATE"
    assert java["kafka.ssl.keystore.key"] == "KEY"
    assert java["kafka.ssl.key.password"] == "secret"


def test_a_login_module_of_ones_own_keeps_the_mechanism() -> None:
    """Java's default is another: GSSAPI."""
    java = for_spark({**BROKER, "sasl.mechanism": "OAUTHBEARER", "java.sasl.jaas.config": "x;"})
    assert (java["kafka.sasl.jaas.config"], java["kafka.sasl.mechanism"]) == ("x;", "OAUTHBEARER")


def test_what_only_java_knows_goes_by_its_own_name_and_never_to_librdkafka() -> None:
    options = {**BROKER, "sasl.mechanism": "OAUTHBEARER", "java.sasl.jaas.config": "x;", "java.sasl.mechanism": "Y"}
    java = for_spark(options)
    assert (java["kafka.sasl.jaas.config"], java["kafka.sasl.mechanism"]) == ("x;", "Y")
    assert set(for_librdkafka(options)) == {"bootstrap.servers", "sasl.mechanism"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"enable.ssl.certificate.verification": "false"}, "enable.ssl.certificate.verification"),
        ({"sasl.mechanism": "GSSAPI"}, "java.sasl.jaas.config"),
        ({"ssl.key.location": "/nowhere/key.pem"}, "ssl.key.location /nowhere/key.pem"),
    ],
)
def test_what_cannot_be_had_is_named_with_its_remedy(options: dict[str, str], named: str) -> None:
    with pytest.raises(AuditError, match=named.replace(".", r"\.")):
        for_spark({**BROKER, **options})


def test_the_topics_of_the_level_table_and_of_groups_are_read_and_no_others() -> None:
    names = TopicNames("p.")
    existing = ["orders", "p.SCHEDULE_TOPIC_XXXX-1", "p.SCHEDULE_TOPIC_XXXX-3", "SCHEDULE_TOPIC_XXXX-1", "p.RETRY-g"]
    existing += [names.wheel, names.send_back, names.redriven, "p.DLQ-g", "RETRY-g", "__consumer_offsets"]
    levels = DelayLevels.parse("1s 2s")
    assert audited_topics(existing, names, len(levels)) == sorted(
        ["p.SCHEDULE_TOPIC_XXXX-1", "p.RETRY-g", names.wheel, names.send_back, "p.DLQ-g"]
    )
