"""A controller that does not answer holds up the loop, and every delivery with it, no longer than it has to."""

import time
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.settings import Settings
from sidecar.topic_admin import TopicAdmin


class MuteController:
    """An admin client whose creation of a topic is on its way for as long as anybody cares to wait."""

    def create_topics(self, topics: list[Any], **_: float) -> dict[str, Future[None]]:
        return {new.topic: Future() for new in topics}


def test_a_creation_that_is_not_answered_is_left_to_go_on_by_itself() -> None:
    admin: Any = MuteController()
    began_s = time.monotonic()
    with pytest.raises(KafkaException, match="creation of RETRY-billing") as raised:
        TopicAdmin(admin, Settings()).create_topic("RETRY-billing")
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    assert 0.5 < time.monotonic() - began_s < 3
