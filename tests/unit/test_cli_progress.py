"""``timewheel progress set`` where Kafka does not do it."""

from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from sidecar.cli.progress import _commit
from sidecar.cli.progress_choice import Chosen
from sidecar.errors import KafkaUnreachableError, TimewheelError
from sidecar.settings import Settings


class Refusing:
    """An admin client whose request fails, if it is given a time at all."""

    def __init__(self, code: int) -> None:
        self._code = code

    def alter_consumer_group_offsets(self, groups: list[Any], *, request_timeout: float) -> dict[str, Future[Any]]:
        assert 0 < request_timeout <= 30
        answer: Future[Any] = Future()
        answer.set_exception(KafkaException(KafkaError(self._code)))
        return {group.group_id: answer for group in groups}


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (KafkaError._TIMED_OUT, KafkaUnreachableError, "whether it is set all the same is not known"),
        (KafkaError.UNKNOWN_MEMBER_ID, TimewheelError, "stop every sidecar of the group"),
    ],
)
def test_a_group_that_does_not_take_it_is_told_in_a_sentence(code: int, kind: type[Exception], words: str) -> None:
    """Without a coordinator the client alone waits for a minute."""
    chosen = {("t", 0): Chosen(5, "", "at 5")}
    with pytest.raises(kind, match=f"progress of t-0 cannot be set: .*{words}") as caught:
        _commit(Settings(), cast(AdminClient, Refusing(code)), chosen)
    assert type(caught.value) is kind
