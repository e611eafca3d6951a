"""How much of the schedule topics is still to be gone through, as Kafka tells it, for the whole group.

What the loop holds is only the head of a backlog. The rest is asked of Kafka: only while somebody looks, every few
seconds at most, and by the process that serves HTTP.
"""

import asyncio
from typing import NamedTuple

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from sidecar.clock import Clock
from sidecar.errors import to_keep
from sidecar.kafka.clients import admin_client, committed_offsets, outside_consumer
from sidecar.settings import Settings

FRESH_MS = 3_000
FIRST_TIMEOUT_S = 1.0
_TIMEOUT_S = 3.0

log = structlog.get_logger("timewheel.web")


class PlaceBacklog(NamedTuple):
    """One partition of a schedule topic."""

    topic: str
    partition: int
    committed: int
    """The first offset that is not done; -1: no progress is committed."""
    end: int

    @property
    def lag(self) -> int:
        """Offsets still to be gone through."""
        return max(0, self.end - max(0, self.committed))


class Backlog:
    """Asked by coroutines of one event loop; its clients are made when somebody looks for the first time."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._topics = settings.topic_names.schedule_topics(settings.levels)
        self._clock = clock
        self._clients: tuple[AdminClient, Consumer] | None = None
        self._known: list[PlaceBacklog] | None = None
        self._asked_ms = -1e9
        self._asking: asyncio.Task[None] | None = None

    async def known(self) -> list[PlaceBacklog] | None:
        """What Kafka has told last; None: nothing yet, or it does not answer."""
        if self._asking is None and self._clock.monotonic_ms() - self._asked_ms >= FRESH_MS:
            self._asking = asyncio.create_task(self._refresh())
        if self._known is None and self._asking is not None:
            await asyncio.wait([self._asking], timeout=FIRST_TIMEOUT_S)
        return self._known

    async def _refresh(self) -> None:
        try:
            self._known = await asyncio.to_thread(self._ask)
        except KafkaException as error:
            self._known = None  # rather nothing than what was true once
            log.debug("backlog not known", reason=str(error))
        finally:
            self._asked_ms = self._clock.monotonic_ms()
            self._asking = None

    def _ask(self) -> list[PlaceBacklog]:
        """In a thread, to let the clients go as well: that waits for their own, which a name server may hold up."""
        try:
            if self._clients is None:
                self._clients = self._connect()
            return self._told_by(*self._clients)
        except KafkaException as error:
            self._clients = None  # they may be looking in the wrong place
            raise to_keep(error) from None

    def _told_by(self, admin: AdminClient, consumer: Consumer) -> list[PlaceBacklog]:
        known = admin.list_topics(timeout=_TIMEOUT_S).topics
        places = [
            TopicPartition(topic, partition)
            for topic in self._topics
            if topic in known
            for partition, metadata in known[topic].partitions.items()
            if metadata.leader >= 0  # one that has none would leave all the others unanswered, too
        ]
        if not places:
            return []
        ends = admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()), request_timeout=_TIMEOUT_S)
        committed = committed_offsets(consumer, places, _TIMEOUT_S)
        return [
            PlaceBacklog(
                place.topic,
                place.partition,
                committed.get((place.topic, place.partition), -1),
                ends[place].result().offset,
            )
            for place in places
        ]

    def _connect(self) -> tuple[AdminClient, Consumer]:
        return admin_client(self._settings, role="backlog"), outside_consumer(self._settings, role="backlog")
