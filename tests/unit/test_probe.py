"""Why no broker answers: librdkafka's words, as operators read them."""

import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from connectors.testing import InMemoryKafka, ManualClock
from sidecar.kafka.probe import Probe
from sidecar.settings import load_settings

SETTINGS = load_settings({"kafka": {"sasl.password": "hunter2"}})
AT = "sasl_ssl://kafka:9092/bootstrap: "
ALL_DOWN = (KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down")
LOGIN = (KafkaError._AUTHENTICATION, f"{AT}SASL authentication error: Invalid password (after 3ms in state AUTH_REQ)")
CERTIFICATE = (KafkaError._SSL, f"{AT}SSL handshake failed: certificate verify failed (after 1ms in state SSL)")
RESOLVE = (KafkaError._RESOLVE, "kafka:9092/bootstrap: Failed to resolve 'kafka:9092' (after 2ms in state CONNECT)")
REFUSED = (KafkaError._TRANSPORT, "kafka:9092/1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused")
NO_TLS = (KafkaError._TRANSPORT, f"{AT}SSL handshake failed: Disconnected: connecting to a PLAINTEXT listener?")
GONE = (KafkaError._TRANSPORT, f"{AT}Disconnected: SSL connection closed by peer (after 2ms in state SSL_HANDSHAKE)")
NO_CERTIFICATE = (KafkaError._TRANSPORT, f"{AT}Receive failed: error:0A000412:SSL routines::alert bad certificate")
HTTP = (KafkaError._BAD_MSG, "kafka:80/1: Receive failed: Invalid response size 1213486160 (0..9): increase receive.x")
CLOSED = "[thrd:kafka:9092/bootstrap]: kafka:9092/bootstrap: Disconnected: closed by peer (after 1ms in state UP)"


class Admin:
    """A client that is told things when it is polled."""

    def __init__(self, error_cb: Callable[[KafkaError], object], logger: Any) -> None:
        self._error_cb = error_cb
        self._logger = logger
        self.answers = False
        self.brokers: dict[int, SimpleNamespace] = {}
        self.errors: list[tuple[int, str]] = []
        self.lines: list[tuple[str, str]] = []

    def list_topics(self, timeout: float) -> SimpleNamespace:
        if not self.answers:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Broker transport failure"))
        return SimpleNamespace(brokers=self.brokers)

    def poll(self, timeout_s: float) -> None:
        for code, text in self.errors:
            self._error_cb(KafkaError(code, text))
        for facility, text in self.lines:
            self._logger.log(40, "%s [%s] %s", facility, "rdkafka#producer-1", text)
        self.errors, self.lines = [], []


def a_probe() -> tuple[Probe, Admin]:
    made: list[Admin] = []

    def make(_settings: object, **told_by: Any) -> Any:
        made.append(Admin(**told_by))
        return made[0]

    return Probe(SETTINGS, make, nowhere), made[0]


def nowhere(address: tuple[str, int], timeout_s: float) -> socket.socket:
    raise socket.gaierror(-2, "Name or service not known")


@pytest.mark.parametrize(
    ("errors", "words", "check"),
    [
        ([ALL_DOWN, LOGIN, LOGIN], "kafka:9092: SASL authentication error: Invalid password", "sasl.password"),
        ([CERTIFICATE, ALL_DOWN], "kafka:9092: SSL handshake failed: certificate verify failed", "ssl.ca.location"),
        ([RESOLVE], "kafka:9092: Failed to resolve 'kafka:9092'", "DNS"),
        ([REFUSED], "kafka:9092: Connect to ipv4#10.0.0.1:9092 failed: Connection refused", "bootstrap_servers"),
        ([HTTP], "kafka:80: Receive failed: Invalid response size 1213486160", "what listens there is no Kafka"),
        ([GONE], "kafka:9092: Disconnected: SSL connection closed by peer", "protocol"),
        ([NO_TLS], "kafka:9092: SSL handshake failed: Disconnected: connecting to a PLAINTEXT listener?", "protocol"),
        ([NO_CERTIFICATE], f"kafka:9092: {NO_CERTIFICATE[1].removeprefix(AT)}", "ssl.certificate.location"),
        ([REFUSED, RESOLVE, LOGIN], "kafka:9092: SASL authentication error: Invalid password", "sasl.mechanism"),
    ],
)
def test_the_cause_is_told_with_what_to_check(errors: list[tuple[int, str]], words: str, check: str) -> None:
    probe, admin = a_probe()
    admin.errors = errors
    cause = probe.ask(1)
    assert cause is not None
    assert cause.words == words
    assert check in cause.remedy


def test_a_connection_that_the_broker_closes_is_told_in_the_log_alone() -> None:
    probe, admin = a_probe()
    admin.errors, admin.lines = [ALL_DOWN], [("FAIL", CLOSED), ("CONNECT", "of no interest")]
    cause = probe.ask(1)
    assert cause is not None
    assert cause.words == "kafka:9092: Disconnected: closed by peer"
    assert "security.protocol" in cause.remedy


def test_a_broker_that_says_nothing_at_all() -> None:
    probe, _ = a_probe()
    cause = probe.ask(1)
    assert cause is not None
    assert cause.words == "Broker transport failure"
    assert "NetworkPolicy lets connections through to bootstrap_servers" in cause.remedy


def test_the_cause_stays_while_nothing_else_is_told_and_goes_with_an_answer() -> None:
    probe, admin = a_probe()
    admin.errors = [LOGIN]
    first = probe.ask(1)
    assert probe.ask(1) == first
    admin.errors = [REFUSED]
    assert "refused" in str(probe.ask(1))
    admin.answers = True
    assert probe.ask(1) is None
    admin.answers = False
    assert "Broker transport failure" in str(probe.ask(1))


def test_what_was_told_while_brokers_answered_is_not_the_cause() -> None:
    """One of several was restarted, hours ago."""
    probe, admin = a_probe()
    admin.answers, admin.errors = True, [LOGIN, RESOLVE]
    assert probe.ask(1) is None
    admin.answers = False
    admin.errors += [REFUSED]
    assert "Connection refused" in str(probe.ask(1))


def test_what_a_broker_repeats_of_a_secret_is_masked() -> None:
    probe, admin = a_probe()
    admin.errors = [(KafkaError._AUTHENTICATION, f"{AT}SASL authentication error: no such token hunter2")]
    cause = probe.ask(1)
    assert cause is not None
    assert cause.words == "kafka:9092: SASL authentication error: no such token **********"


def test_brokers_that_send_clients_on_to_where_nobody_gets_are_away() -> None:
    probe, admin = a_probe()
    admin.answers = True
    admin.brokers = {1: SimpleNamespace(host="kafka", port=29092)}
    cause = probe.ask(1)
    assert cause is not None
    assert cause.words == "kafka:29092: Name or service not known"
    assert "advertised.listeners" in cause.remedy
    admin.answers = False  # the client has gone on to there
    for _ in range(10):
        admin.errors = [RESOLVE]
        assert probe.ask(1) == cause
    assert len(probe._told) <= 1  # as long as that lasts, nothing piles up
    admin.answers, admin.brokers = True, {}
    assert probe.ask(1) is None


def test_a_ping_finds_the_schedule_partitions_without_a_leader() -> None:
    kafka = InMemoryKafka(ManualClock())
    topic = SETTINGS.topic_names.level(2)
    kafka.create_topic(topic, 3)
    kafka.create_topic(SETTINGS.topic_names.wheel)  # and of the others there is none
    kafka.take_leader(topic, 1, 10_000)
    probe = Probe(SETTINGS, lambda *_, **_told_by: cast(AdminClient, kafka.admin()), nowhere)
    assert probe.ping(1) is None
    assert probe.leaderless == {(topic, 1)}
    ids = probe.topic_ids
    assert ids.keys() == {topic, SETTINGS.topic_names.wheel}
    kafka.admin().delete_topics([topic])[topic].result()
    kafka.create_topic(topic, 3)
    assert probe.ping(1) is None
    assert {name for name in ids if probe.topic_ids[name] != ids[name]} == {topic}
    kafka.take_leader(topic, 1, 10_000)
    assert probe.ping(1) is None
    assert probe.leaderless == {(topic, 1)}
    kafka.clock.advance(10_000)  # type: ignore[attr-defined]
    assert probe.ping(1) is None
    assert probe.leaderless == frozenset()
