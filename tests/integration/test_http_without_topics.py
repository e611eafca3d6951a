"""The HTTP API on a broker without the schedule topics: that is certain, and told soon."""

import asyncio
import time

import httpx
import pytest

from connectors.receipt import Receipt
from sidecar.front.app import make_api
from sidecar.front.kafka import FrontKafka
from sidecar.settings import Settings
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka


def test_schedule_topics_that_are_not_there_are_told_soon_and_are_no_unknown_outcome(kafka: Kafka, prefix: str) -> None:
    settings = Settings(bootstrap_servers=kafka.bootstrap_servers, topic_prefix=prefix, kafka={"log_level": "0"})
    receipt = Receipt(schedule_topic=settings.topic_names.wheel, partition=0, id="a", topic="orders", deliver_ms=5)

    message = {"topic": "orders", "value": "v", "delay": "1h"}

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(make_api(settings, FrontKafka(settings)))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1", timeout=30) as client:
            return await asyncio.gather(
                client.post("/messages", json=message),
                client.post("/messages", json=[message]),
                client.delete(f"/messages/{receipt}"),
                client.patch(f"/messages/{receipt}", json={"delay": "1h"}),
            )

    began_s = time.monotonic()
    for answer in asyncio.run(ask()):
        assert (answer.status_code, answer.json()["type"]) == (502, "/api/v1/problems/refused"), answer.text
        assert "there is no such schedule topic or partition" in answer.json()["detail"]
    assert time.monotonic() - began_s < 15
