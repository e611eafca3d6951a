"""What Kafka tells of the backlog, and what becomes of clients that it does not answer."""

import asyncio
import threading
import weakref
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from connectors.testing import ManualClock
from sidecar.kafka.backlog import FRESH_MS, Backlog
from sidecar.settings import Settings


class Silent:
    """A client of a Kafka that does not answer."""

    def list_topics(self, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "nobody there"))


class Watched(Backlog):
    """Tells which thread has let its clients go."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(Settings(), clock)
        self.let_go_by: list[str] = []

    def _connect(self) -> tuple[AdminClient, Consumer]:
        clients = Silent(), Silent()
        for client in clients:
            weakref.finalize(client, lambda: self.let_go_by.append(threading.current_thread().name))
        return cast(tuple[AdminClient, Consumer], clients)


def test_clients_that_get_no_answer_are_let_go_where_it_may_take_long() -> None:
    """Their threads are waited for, which a name server may hold; the event loop answers probes meanwhile."""
    clock = ManualClock()
    backlog = Watched(clock)

    async def ask_twice() -> None:
        for _ in range(2):
            assert await backlog.known() is None
            clock.advance(FRESH_MS)

    asyncio.run(ask_twice())
    assert len(backlog.let_go_by) == 4
    assert threading.main_thread().name not in backlog.let_go_by
