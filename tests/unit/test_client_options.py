"""Which client gets which of the user's librdkafka options, and which are refused."""

from typing import Any

import pytest

from connectors import AsyncScheduledProducer, ProtectedOptionError, RetryingConsumer, ScheduledProducer
from connectors.client_options import for_consumer, for_producer
from connectors.testing import InMemoryKafka


def test_each_client_gets_what_it_understands() -> None:
    config = {"bootstrap.servers": "b:9092", "security.protocol": "ssl", "group.id": "g", "linger.ms": 5}
    assert for_producer(config) == {"bootstrap.servers": "b:9092", "security.protocol": "ssl", "linger.ms": 5}
    assert for_consumer(config) == {"bootstrap.servers": "b:9092", "security.protocol": "ssl", "group.id": "g"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partitioner", "consistent_random"),
        ("enable.idempotence", False),
        ("enable.idempotence", "false"),
        ("acks", 1),
        ("request.required.acks", "0"),
        ("transactional.id", "t"),
        ("delivery.report.only.error", True),
        ("on_delivery", print),
        ("dr_cb", print),
        ("default.topic.config", {"partitioner": "random"}),
    ],
)
def test_options_that_receipts_hang_on_are_refused_by_name(name: str, value: Any) -> None:
    for make in (ScheduledProducer, AsyncScheduledProducer):
        with pytest.raises(ProtectedOptionError, match=f"the option {name} cannot be set"):
            make({name: value}, clients=InMemoryKafka())
    with pytest.raises(ProtectedOptionError, match=f"the option {name} cannot be set"):
        RetryingConsumer({"group.id": "g"}, ["t"], producer_config={name: value}, clients=InMemoryKafka())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.auto.commit", True),
        ("auto.commit.enable", "true"),
        ("enable.auto.offset.store", True),
        ("isolation.level", "read_uncommitted"),
        ("on_commit", print),
        ("default.topic.config", {"auto.offset.reset": "earliest"}),
    ],
)
def test_options_that_no_loss_hangs_on_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ProtectedOptionError, match=f"the option {name} cannot be set"):
        RetryingConsumer({"group.id": "g", name: value}, ["t"], clients=InMemoryKafka())


def test_an_option_that_is_refused_is_told_with_the_value_it_has() -> None:
    with pytest.raises(ProtectedOptionError, match="; leave it out, or set it to all"):
        ScheduledProducer({"acks": 1}, clients=InMemoryKafka())


def test_what_is_so_anyway_may_be_said() -> None:
    ScheduledProducer(
        {"enable.idempotence": "true", "acks": "-1", "partitioner": "murmur2_random"}, clients=InMemoryKafka()
    )
    config = {"group.id": "g", "enable.auto.commit": "false", "isolation.level": "read_committed"}
    RetryingConsumer(config, ["t"], clients=InMemoryKafka())
