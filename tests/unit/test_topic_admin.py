"""A controller that does not answer holds up the loop, and every delivery with it, no longer than it has to."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from sidecar.kafka.topic_admin import TopicAdmin
from sidecar.settings import Settings


class MuteController:
    """An admin client whose creation of a topic is on its way for as long as anybody cares to wait."""

    times_named = 0
    """How often a broker has been asked who the controller is."""

    def create_topics(self, topics: list[Any], **_: float) -> dict[str, Future[None]]:
        return {new.topic: Future() for new in topics}

    def describe_topics(self, topics: TopicCollection, **_: float) -> dict[str, Future[None]]:
        answer = Future[None]()
        answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT, "Timed out waiting for controller")))
        return dict.fromkeys(topics.topic_names, answer)

    def list_topics(self, **_: float) -> None:
        self.times_named += 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_a_creation_that_is_not_answered_is_left_to_go_on_by_itself() -> None:
    admin: Any = MuteController()
    began_s = time.monotonic()
    with pytest.raises(KafkaException, match="creation of RETRY-billing") as raised:
        TopicAdmin(admin, Settings()).create_topic("RETRY-billing")
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    assert 0.5 < time.monotonic() - began_s < 3


@pytest.mark.parametrize("ask", [lambda topics: topics.look(["a"]), lambda topics: topics.identify("a")])
def test_a_client_whose_controller_does_not_answer_asks_who_it_is_now(ask: Callable[[TopicAdmin], object]) -> None:
    admin: Any = MuteController()
    for times in (1, 2):
        with pytest.raises(KafkaException, match="waiting for controller"):
            ask(TopicAdmin(admin, Settings()))
        assert admin.times_named == times
