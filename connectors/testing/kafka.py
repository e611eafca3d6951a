"""The broker: topics, time, and the clients that are made for it."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from math import ceil
from threading import RLock

from connectors.clock import Clock
from connectors.contract import Place
from connectors.testing.admin import InMemoryAdmin
from connectors.testing.client import Client, Config
from connectors.testing.clock import ManualClock
from connectors.testing.consumer import InMemoryConsumer
from connectors.testing.faults import Faults
from connectors.testing.groups import GroupCoordinator
from connectors.testing.log import Entry, PartitionLog
from connectors.testing.process import Process
from connectors.testing.producer import InMemoryProducer
from connectors.testing.timers import Timers
from connectors.testing.topics import Topic
from connectors.testing.transactions import TransactionCoordinator

DEFAULT_BROKER_CONFIGS: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "offset.metadata.max.bytes": "4096",
    "offsets.retention.minutes": "10080",
    "transaction.max.timeout.ms": "900000",
}


class InMemoryKafka:
    """A Kafka of one broker, in this process, without threads, sleeping or randomness.

    Args:
        clock: what time it is; a `ManualClock` where none is given.
        wait: how a client's waiting passes, called with whole ms; by default the clock's ``advance``. With a clock that
            cannot be advanced nobody waits: a call with a timeout looks once and returns.
        broker_configs: what ``describe_configs`` of the broker answers, on top of the defaults.
        tells_epochs: whether records and offsets come with their leader epoch, by which consumers notice that a log
            has lost its end.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        wait: Callable[[int], object] | None = None,
        broker_configs: Mapping[str, str] | None = None,
        tells_epochs: bool = False,
    ) -> None:
        self.clock: Clock = clock if clock is not None else ManualClock()
        self.faults = Faults()
        self.tells_epochs = tells_epochs
        self.timers = Timers(self.clock)
        self.topics: dict[str, Topic] = {}
        self.broker_configs = {**DEFAULT_BROKER_CONFIGS, **(broker_configs or {})}
        self.groups = GroupCoordinator(self.timers, self._places)
        self.transactions = TransactionCoordinator(self.timers, self.groups.settle, self.clock.now_ms)
        self.senders: list[InMemoryProducer] = []
        """Producers with records that have not been sent; they are, in the background of anybody's next call."""
        self.sending = RLock()
        """Held while records move: into a queue, from there into a log, or as a report back."""
        self._pass = wait if wait is not None else getattr(self.clock, "advance", None)
        self._unavailable_until_ms = -1.0
        self._leaderless_until_ms: dict[Place, float] = {}
        self._topic_numbers = count(1)
        self._process_numbers = count(1)

    # --- clients ------------------------------------------------------------------------------------------------------

    def process(self, name: str) -> Process:
        """A process whose clients crash together; `name` is what faults are told."""
        return Process(self, name)

    def consumer(self, config: Config) -> InMemoryConsumer:
        """A consumer in a process of its own."""
        return self._anonymous().consumer(config)

    def producer(self, config: Config) -> InMemoryProducer:
        """A producer in a process of its own."""
        return self._anonymous().producer(config)

    def admin(self, config: Config | None = None) -> InMemoryAdmin:
        """An admin client in a process of its own."""
        return self._anonymous().admin(config or {})

    def kill_client(self, *clients: Client) -> None:
        """SIGKILL for the processes of these clients."""
        for client in clients:
            client.process.kill()

    def suspend_client(self, *clients: Client) -> None:
        """SIGSTOP for the processes of these clients; their next call wakes them."""
        for client in clients:
            client.process.suspend()

    # --- topics, from outside -----------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> Topic:
        topic = self.topics[name] = Topic(name, partitions, configs or {}, next(self._topic_numbers))
        self.groups.topics_changed()
        return topic

    def delete_topic(self, name: str) -> None:
        del self.topics[name]
        self.groups.forget_topic(name)
        self.groups.topics_changed()

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Retention has taken what is below the offset."""
        self._known_log(topic, partition).delete_before(before_offset)

    def elect(self, topic: str, partition: int, lost: int = 0) -> list[Entry]:
        """The partition gets another leader; in an unclean election it loses the last entries, which are returned."""
        return self._known_log(topic, partition).elect(lost)

    def _known_log(self, topic: str, partition: int) -> PartitionLog:
        log = self.log(topic, partition)
        if log is None:
            raise KeyError(f"there is no partition {topic}-{partition}")
        return log

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        """The partition's log; None where there is no such partition."""
        found = self.topics.get(topic)
        return found.logs[partition] if found is not None and 0 <= partition < len(found.logs) else None

    def committed(self, group_id: str) -> dict[Place, tuple[int, str | None]]:
        """What a group has committed: offset and metadata by topic and partition. Waits for nothing."""
        offsets = self.groups.group(group_id).offsets
        return {place: (committed.offset, committed.metadata) for place, committed in offsets.items()}

    def rebalance(self, group_id: str) -> None:
        """The group divides its partitions anew, as when its subscription changes."""
        self.groups.rebalance(group_id)

    # --- time and availability ----------------------------------------------------------------------------------------

    @property
    def is_available(self) -> bool:
        return self.clock.monotonic_ms() >= self._unavailable_until_ms

    def make_unavailable(self, for_ms: float) -> None:
        """The broker answers nobody until that time has passed."""
        self._unavailable_until_ms = max(self._unavailable_until_ms, self.clock.monotonic_ms() + for_ms)

    def has_leader(self, topic: str, partition: int) -> bool:
        return self.clock.monotonic_ms() >= self._leaderless_until_ms.get((topic, partition), 0.0)

    def take_leader(self, topic: str, partition: int, for_ms: float) -> None:
        """Nothing can be written to the partition until that time has passed; records for it wait in their clients.

        Nor are its offsets to be had, or any others that are asked for together with them.
        """
        self._leaderless_until_ms[topic, partition] = self.clock.monotonic_ms() + for_ms

    def wait(self, timeout_s: float, ready: Callable[[], bool]) -> bool:
        """Let time pass until `ready`, or for `timeout_s` (negative: for as long as it takes); whether it became ready.

        Raises:
            TimeoutError: an endless wait for something that no time-out will bring.
        """
        clock, timers = self.clock, self.timers
        deadline_ms = clock.monotonic_ms() + round(timeout_s * 1000, 3) if timeout_s >= 0 else float("inf")
        while True:
            timers.ring()
            if ready():
                return True
            now_ms = clock.monotonic_ms()
            if now_ms >= deadline_ms or self._pass is None:
                return False
            until_ms = min(deadline_ms, timers.next_ms)
            if self._unavailable_until_ms > now_ms:
                until_ms = min(until_ms, self._unavailable_until_ms)
            for elected_ms in self._leaderless_until_ms.values():
                if elected_ms > now_ms:
                    until_ms = min(until_ms, elected_ms)
            if until_ms == float("inf"):
                raise TimeoutError("this call would wait for ever: nothing that passes with time will end it")
            self._pass(max(1, ceil(until_ms - now_ms)))
            if clock.monotonic_ms() <= now_ms:
                return ready()

    def send_queued(self, caller: Client) -> None:
        """The background threads of every producer but the caller's own."""
        with self.sending:
            senders, self.senders = self.senders, []
            for producer in senders:
                if producer is caller or not producer.send_queued():
                    self.senders.append(producer)

    # ------------------------------------------------------------------------------------------------------------------

    def _anonymous(self) -> Process:
        return Process(self, f"process-{next(self._process_numbers)}")

    def _places(self) -> dict[str, Sequence[Place]]:
        return {name: [(name, log.number) for log in topic.logs] for name, topic in self.topics.items()}
