"""The log of a sidecar that runs: how long it gets, and what does not stand in it."""

import pytest

from tests.support.kafka import Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

REJECTED = 5_000


def test_thousands_of_rejected_records_are_few_lines_without_payloads_keys_or_secrets(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    sidecar.settings |= {"http_token": "a-token-nobody-sees", "kafka": "sasl.password=a-password-nobody-sees"}
    sidecar.settings |= {"log_level": "debug"}
    with sidecar:
        topic = f"{prefix}SCHEDULE_TOPIC_XXXX-1"
        kafka.produce((topic, b"a key nobody sees", b"a value nobody sees", []) for _ in range(REJECTED))
        wait_until(
            lambda: sidecar.metric("timewheel_rejected_records_total", code="MISSING_REAL_TOPIC") == REJECTED,
            "all are rejected",
        )
        assert sidecar.terminate()[0] == 0
    assert "nobody sees" not in sidecar.log_text()
    assert "nobody-sees" not in sidecar.log_text()
    one_by_one = [event for event in sidecar.events() if event["event"] == "record rejected"]
    more = [event for event in sidecar.events() if event["event"] == "more records rejected"]
    assert 10 <= len(one_by_one) <= 20
    assert len(one_by_one) + sum(event["count"] for event in more) == REJECTED
    wrong = [event for event in sidecar.events() if event["level"] in ("warning", "error")]
    assert all(event["operator_action"] for event in wrong if event["logger"].startswith("timewheel"))


def test_a_key_and_the_beginning_of_a_value_are_logged_where_that_is_asked_for(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    sidecar.settings["log_records"] = True
    with sidecar:
        kafka.produce([(f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", b"the key", b"v" * 1_000, [("REAL_TOPIC", b"orders")])])

        def line() -> dict[str, object] | None:
            return next((event for event in sidecar.events() if event["event"] == "record rejected"), None)

        told = wait_until(line, "the rejection is logged")
        assert told is not None
        assert (told["code"], told["key"]) == ("NO_DELIVERY_TIME", "the key")
        assert told["value"] == "v" * 200 + "… (1000 bytes)"
