"""The broker's server.properties."""

from pathlib import Path

import pytest

from connectors.embedded import EmbeddedKafkaError
from connectors.embedded.fencing import PROPERTIES
from connectors.embedded.server_properties import HEADER, render, render_fencing


def properties(**overrides: str) -> dict[str, str]:
    dotted = {name.replace("_", "."): value for name, value in overrides.items()}
    text = render(port=9092, controller_port=9093, log_dir=Path("/data/kafka"), overrides=dotted)
    first, *lines = text.splitlines()
    assert first == HEADER
    return dict(line.split("=", 1) for line in lines)


def test_one_node_is_broker_and_controller_on_the_loopback_address() -> None:
    rendered = properties()
    assert rendered["process.roles"] == "broker,controller"
    assert rendered["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert rendered["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert rendered["controller.quorum.voters"] == "1@127.0.0.1:9093"
    assert rendered["log.dirs"] == "/data/kafka"


def test_the_fencing_controller_is_the_same_node_on_the_same_data_without_the_broker() -> None:
    overrides = {"metadata.log.dir": "/data/metadata", "broker.session.timeout.ms": "60000"}
    text = render_fencing(controller_port=9093, log_dir=Path("/data/kafka"), overrides=overrides)
    rendered = dict(line.split("=", 1) for line in text.splitlines()[1:])
    assert rendered["process.roles"] == "controller"
    assert rendered["listeners"] == "CONTROLLER://127.0.0.1:9093"
    assert "advertised.listeners" not in rendered
    same = ("node.id", "controller.quorum.voters", "controller.listener.names", "log.dirs")
    assert {name: rendered[name] for name in same} == {name: properties()[name] for name in same}
    assert rendered["metadata.log.dir"] == "/data/metadata"
    assert int(rendered["broker.session.timeout.ms"]) < 1000, "an override must not make it wait"


def test_the_records_that_tell_of_the_fencing_come_after_the_session_and_its_last_look() -> None:
    session_ms = int(PROPERTIES["broker.session.timeout.ms"])
    assert int(PROPERTIES["metadata.max.idle.interval.ms"]) > session_ms + session_ms / 8
    assert int(PROPERTIES["broker.heartbeat.interval.ms"]) <= session_ms / 2


def test_topics_are_not_made_by_accident() -> None:
    assert properties()["auto.create.topics.enable"] == "false"


def test_an_override_wins_over_a_default_and_adds_what_is_not_there() -> None:
    rendered = properties(auto_create_topics_enable="true", message_max_bytes="2000000")
    assert rendered["auto.create.topics.enable"] == "true"
    assert rendered["message.max.bytes"] == "2000000"


@pytest.mark.parametrize("name", ["listeners", "log.dirs", "node.id", "advertised.listeners"])
def test_what_the_arguments_decide_cannot_be_overridden(name: str) -> None:
    with pytest.raises(EmbeddedKafkaError, match=name):
        properties(**{name: "x"})


@pytest.mark.parametrize(("name", "value"), [("a", "1\nlisteners=x"), ("a=b", "1"), ("", "1"), ("a b", "1")])
def test_an_override_cannot_break_out_of_its_line(name: str, value: str) -> None:
    with pytest.raises(EmbeddedKafkaError, match="not one name and one line"):
        properties(**{name: value})


def test_a_backslash_and_a_leading_space_reach_kafka_as_they_are() -> None:
    assert properties(a="x\\d")["a"] == "x\\\\d"
    assert properties(a=" x")["a"] == "\\ x"
