"""The sidecar over TLS with a login and a certificate of its own: it delivers, and its secrets are told nowhere."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.cimpl import NewTopic

from tests.support.secured_kafka import ADMIN, Certificates, SecuredKafka, secured_kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

KEY_PASSWORD = "of-the-key-hunter2"
TOKEN = "of-the-api-hunter2"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    certificates = Certificates.made(tmp_path_factory.mktemp("certificates"), KEY_PASSWORD)
    with secured_kafka(tmp_path_factory.mktemp("sasl-ssl"), [], certificates) as broker:
        admin = broker.admin()
        for answer in admin.create_topics([NewTopic("orders", 1, 1)]).values():
            answer.result(30)
        yield broker


def environment(kafka: SecuredKafka, directory: Path, **options: str) -> dict[str, str]:
    """Who may do everything, its secrets in a file and in a variable; over HTTP nobody without the token."""
    login = {**kafka.login(ADMIN), **options}
    (directory / "password").write_text(login["sasl.password"] + "\n")
    named = {"sasl.password": f"${{dir:{directory}:password}}", "ssl.key.password": "${env:KEY_PASSWORD}"}
    return {
        "TIMEWHEEL_KAFKA": json.dumps({**login, **named}),
        "KEY_PASSWORD": KEY_PASSWORD,
        "TIMEWHEEL_HTTP_TOKEN": TOKEN,
    }


@pytest.mark.long
def test_what_is_scheduled_over_tls_is_delivered_over_tls_and_no_secret_is_told(
    kafka: SecuredKafka, tmp_path: Path
) -> None:
    sidecar = SidecarProcess(kafka.bootstrap_servers, tmp_path, levels="1s", log_level="debug")
    try:
        sidecar.start(env=environment(kafka, tmp_path))
        schedule_on_topics(kafka)
        told = [over_http(sidecar, "/api/v1/messages", {"topic": "orders", "value": "http", "delay": "200ms"})]
        assert received(kafka, 3) == {b"level", b"wheel", b"http"}
        told += [sidecar.get(path)[1] for path in ("/metrics", "/readyz", "/healthz", "/api/v1/status")]
        told.append(over_http(sidecar, "/api/v1/status"))
    finally:
        sidecar.kill()
    told.append(sidecar.log_text())
    for secret in (KEY_PASSWORD, TOKEN, kafka.login(ADMIN)["sasl.password"]):
        assert not [text for text in told if secret in text]


def schedule_on_topics(kafka: SecuredKafka) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **kafka.login(ADMIN)})
    to_orders: list[tuple[str, str | bytes | None]] = [("REAL_TOPIC", b"orders")]
    producer.produce("SCHEDULE_TOPIC_XXXX-1", b"level", headers=to_orders)
    producer.produce("SCHEDULE_TOPIC_XXXX-wheel", b"wheel", headers=[*to_orders, ("TIMER_DELAY_MS", b"500")])
    assert producer.flush(30) == 0


def over_http(sidecar: SidecarProcess, path: str, body: object = None) -> str:
    request = urllib.request.Request(
        f"http://{sidecar.http_address}{path}",
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        answer: str = response.read().decode()
        return answer


def received(kafka: SecuredKafka, count: int) -> set[bytes | None]:
    """So many values that a read_committed reader sees."""
    reader = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **kafka.login(ADMIN),
        }
    )
    values: set[bytes | None] = set()

    def has_all() -> bool:
        message = reader.poll(1)
        if message is not None and message.error() is None:
            values.add(message.value())
        return len(values) == count

    try:
        reader.subscribe(["orders"])
        wait_until(has_all, f"{count} values arrive", 30)
        return values
    finally:
        reader.close()
