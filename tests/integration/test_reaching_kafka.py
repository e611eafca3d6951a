"""A sidecar, or a command, that does not reach Kafka: it tells why, and which setting to look at."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from connectors.embedded.data_dir import new_cluster_id
from connectors.embedded.ports import any_free
from sidecar.kafka.probe import Probe
from sidecar.observability.health import Cause
from sidecar.settings import load_settings
from tests.integration.test_sasl_ssl import KEY_PASSWORD, TOKEN, environment
from tests.support.kafka import Kafka
from tests.support.own_broker import OwnBroker
from tests.support.secured_kafka import ADMIN, Certificates, SecuredKafka, secured_kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

SECRETS = re.compile(f"hunter2|{TOKEN}|{ADMIN}{ADMIN}")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    certificates = Certificates.made(tmp_path_factory.mktemp("certificates"), KEY_PASSWORD)
    with secured_kafka(tmp_path_factory.mktemp("secured"), [], certificates) as broker:
        yield broker


WRONGS = ("password", "mechanism", "authority", "no TLS", "nothing at all")
Wrong = tuple[dict[str, str], str, str]


def stranger(directory: Path) -> str:
    """The certificate of an authority that has signed nothing."""
    directory.mkdir()
    return str(Certificates(directory, "").make_authority("stranger"))


def wrongs(directory: Path) -> dict[str, Wrong]:
    """What an operator may have got wrong: options, the cause, and which of them to check."""
    return {
        "password": ({"sasl.password": "not-the-hunter2"}, "Authentication failed", "sasl.password"),
        "mechanism": ({"sasl.mechanisms": "SCRAM-SHA-256"}, "Unsupported SASL mechanism", "sasl.mechanism"),
        "authority": ({"ssl.ca.location": stranger(directory / "other")}, "verify failed", "ssl.ca.location"),
        "no TLS": ({"security.protocol": "SASL_PLAINTEXT"}, "Disconnected", "security.protocol"),
        "nothing at all": ({"security.protocol": "PLAINTEXT"}, "Disconnected", "security.protocol"),
    }


@pytest.mark.parametrize("wrong", WRONGS)
def test_a_probe_tells_why_it_is_not_let_in(secured: SecuredKafka, tmp_path: Path, wrong: str) -> None:
    options, cause, to_check = wrongs(tmp_path)[wrong]
    told = why(secured.bootstrap_servers, {**secured.login(ADMIN), **options})
    assert cause in told.words
    assert to_check in told.remedy
    assert not SECRETS.search(str(told))


def test_a_probe_tells_that_its_certificate_is_missing(secured: SecuredKafka) -> None:
    login = {
        name: value for name, value in secured.login(ADMIN).items() if "certificate" not in name and "key" not in name
    }
    assert "ssl.certificate.location" in why(secured.bootstrap_servers, login).remedy


def test_a_probe_that_speaks_tls_to_a_plain_listener_says_so(secured: SecuredKafka, kafka: Kafka) -> None:
    told = why(kafka.bootstrap_servers, secured.login(ADMIN))
    # Which of the two it is depends on who is quicker: the handshake to fail, or the listener to close.
    assert re.search("SSL handshake failed|SSL connection closed by peer", told.words)
    assert "security.protocol" in told.remedy


@pytest.mark.parametrize(
    ("address", "cause", "to_check"),
    [("no-such-host.invalid:9092", "Failed to resolve", "DNS"), ("127.0.0.1:1", "refused", "bootstrap_servers")],
)
def test_a_probe_tells_what_is_wrong_with_the_address(address: str, cause: str, to_check: str) -> None:
    told = why(address, {})
    assert cause in told.words
    assert to_check in told.remedy


@pytest.mark.parametrize(
    ("advertised", "cause"), [("no-such-host.invalid:9092", "not known"), ("127.0.0.1:1", "Connection refused")]
)
def test_brokers_that_send_clients_on_to_where_nobody_gets(tmp_path: Path, advertised: str, cause: str) -> None:
    with broker_that_is_elsewhere(tmp_path, advertised) as bootstrap_servers:
        ended = subprocess.run(
            [sys.executable, "-m", "sidecar", "topics", "create", "--bootstrap-servers", bootstrap_servers],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert ended.returncode == 3, ended.stderr
    assert f"({advertised}: " in ended.stderr
    assert cause in ended.stderr
    assert "set advertised.listeners of the brokers" in ended.stderr


@contextmanager
def broker_that_is_elsewhere(directory: Path, advertised: str) -> Iterator[str]:
    """Where it answers; it tells clients another address."""
    port, controller_port = any_free(), any_free()
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{advertised}",
        "log.cleaner.dedupe.buffer.size": "16777216",
    }
    broker = OwnBroker(directory, new_cluster_id(), properties)
    broker.start()
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})

    def answers() -> bool:
        broker.assert_runs()
        try:
            return bool(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    try:
        wait_until(answers, "the broker answers", 60, poll_s=0.2)
        yield f"127.0.0.1:{port}"
    finally:
        broker.kill()


def why(bootstrap_servers: str, options: dict[str, str]) -> Cause:
    probe = Probe(load_settings({"bootstrap_servers": bootstrap_servers, "kafka": options}))
    causes: list[Cause] = []

    def is_told() -> bool:
        cause = probe.ask(1)
        assert cause is not None, "it is let in"
        causes.append(cause)
        return "bootstrap_servers, and the security settings" not in cause.remedy

    wait_until(is_told, "the cause is told", 30)
    return causes[-1]


@pytest.mark.long
def test_a_start_that_is_not_let_in_ends_and_says_so_without_its_secrets(secured: SecuredKafka, tmp_path: Path) -> None:
    sidecar = SidecarProcess(secured.bootstrap_servers, tmp_path, log_level="debug")
    sidecar.start(wait_ready=False, env=environment(secured, tmp_path, **{"sasl.password": "not-the-hunter2"}))
    told: list[dict[str, Any]] = []

    def has_ended() -> bool:
        status, body = sidecar.get("/readyz") if sidecar.http_address is not None else (0, "")
        if status:
            assert status == 503
            answer = json.loads(body)
            told.extend([answer] if answer.get("state") == "broker_away" else [])
        return sidecar.process.poll() is not None

    wait_until(has_ended, "it ends", 60)
    assert sidecar.process.wait() == 3, sidecar.log_text()
    last_line = sidecar.log_text().splitlines()[-1]
    assert "no answer from Kafka" in last_line
    (event,) = [event for event in sidecar.events() if event["event"] == "no broker answers"]
    for words, remedy in (
        (last_line, last_line),
        (event["reason"], event["operator_action"]),
        (told[-1]["words"], told[-1]["action"]),
        (told[-1]["reasons"][0], told[-1]["reasons"][0]),
    ):
        assert "Authentication failed: Invalid username or password" in words
        assert "check sasl.mechanism, sasl.username and sasl.password under kafka" in remedy
    assert not SECRETS.search(sidecar.log_text() + json.dumps(told))


@pytest.mark.long
@pytest.mark.parametrize(
    "command", [["topics", "check"], ["send", "--topic", "a", "--delay", "1s", "v"], ["dlq", "list"]]
)
def test_a_command_that_is_not_let_in_says_so(secured: SecuredKafka, tmp_path: Path, command: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "sidecar", *command, "--bootstrap-servers", secured.bootstrap_servers],
        env={**os.environ, **environment(secured, tmp_path, **{"sasl.password": "not-the-hunter2"})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout) == (3, "")
    (line,) = ended.stderr.splitlines()
    assert "Authentication failed" in line
    assert "check sasl.mechanism, sasl.username and sasl.password under kafka" in line
    assert not SECRETS.search(line)


@pytest.mark.long
def test_a_sidecar_that_is_let_in_no_more_waits_and_goes_on_when_it_is(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    with secured_kafka(tmp_path / "kafka", []) as kafka:
        sidecar = SidecarProcess(kafka.bootstrap_servers, tmp_path, levels="1s")
        sidecar.start(wait_ready=False, env={"TIMEWHEEL_KAFKA": json.dumps(kafka.login(ADMIN))})
        try:
            sidecar.wait_ready(60)
            kafka.restart("another-password")
            wait_until(lambda: "Authentication failed" in readyz(sidecar)["words"], "it tells why it waits", 90)
            assert readyz(sidecar)["action"].startswith("check sasl.mechanism, sasl.username and sasl.password")
            assert sidecar.get("/healthz")[0] == 200
            kafka.restart()
            wait_until(lambda: readyz(sidecar)["state"] == "healthy", "it goes on", 90)
            told = [event["event"] for event in sidecar.events() if "broker answers" in event["event"]]
            assert (told[0], told[-1]) == ("no broker answers", "a broker answers again")
        finally:
            sidecar.kill()


def readyz(sidecar: SidecarProcess) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(sidecar.get("/readyz")[1] or "{}")
    return {"words": "", "state": "", **answer}
