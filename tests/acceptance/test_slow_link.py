"""Brokers that take little: a backlog that would not fit through in one transaction's time goes out in smaller ones."""

import time
from pathlib import Path
from random import Random

import pytest

from connectors.embedded import EmbeddedKafka, run_tool
from tests.support.kafka import Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import now_ms, timed, wheel_topic

pytestmark = [pytest.mark.kafka, pytest.mark.long]

COUNT = 10_000
VALUE_BYTES = 1_000
BYTES_PER_S = 300_000
"""By which a transaction of all of them would take half a minute, where it has five."""


def test_under_a_quota_a_backlog_goes_out_though_it_is_too_large_for_one_transaction(tmp_path: Path) -> None:
    # By default it counts over ten seconds, and all of this would pass before the first is held up.
    with EmbeddedKafka(server_properties={"quota.window.num": "2"}) as broker:
        kafka = Kafka(broker.bootstrap_servers)
        destination = kafka.create_topic("orders")
        kafka.create_topic(wheel_topic(""), message_timestamp_type="LogAppendTime")
        names = [f"m{number}" for number in range(COUNT)]
        values = (Random(name).randbytes(VALUE_BYTES) for name in names)  # no compression makes them smaller
        due = ("TIMER_DELIVER_MS", now_ms() + 1_000)
        kafka.produce(timed("", destination, name, due, value=value) for name, value in zip(names, values, strict=True))
        limited = run_tool(
            "kafka.admin.ConfigCommand",
            [
                *("--bootstrap-server", broker.bootstrap_servers, "--alter"),
                *("--entity-type", "clients", "--entity-default"),
                *("--add-config", f"producer_byte_rate={BYTES_PER_S}"),
            ],
        )
        assert limited.returncode == 0, limited.stderr.decode()
        began_s = time.monotonic()
        with SidecarProcess(broker.bootstrap_servers, tmp_path) as sidecar:
            wait_until(lambda: "a quota of this sidecar's user or client" in sidecar.get("/readyz")[1], "told", 60)
            assert sidecar.metric("timewheel_throttled_seconds") > 0
            delivered = kafka.read([destination], COUNT, 120)
            assert [event["brokers"] for event in sidecar.events() if event["event"] == "throttled by kafka"] == [[1]]
            aborted = [event for event in sidecar.events() if event["event"] == "transaction aborted"]
        judge(names, delivered).assert_exactly_once()
        assert len(aborted) <= 2, "what has failed for its size is not tried again as large"
        assert time.monotonic() - began_s > COUNT * VALUE_BYTES / BYTES_PER_S / 2, "the quota was not in force"
