"""A consumer's side of its group: it joins, learns what it has and what it has lost, and tells the application.

Callbacks run inside ``poll`` and ``consume``. What a callback leaves undone (no assign, no unassign) is done for it, as
the Python client does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition

from connectors.contract import Place
from connectors.testing.client import Config
from connectors.testing.fetching import Fetching
from connectors.testing.groups import GroupCoordinator, Member

if TYPE_CHECKING:
    from connectors.testing.consumer import InMemoryConsumer

Callback = Callable[[Any, list[TopicPartition]], object]


@dataclass(frozen=True)
class ConsumerGroupMetadata:
    """What a transaction is told of the consumer: opaque to applications."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Membership:
    """Between one consumer and the coordinator.

    Args:
        crash_at: asked around each callback whether the process ends there.
        commit_stored: auto-commit, before partitions go.
    """

    def __init__(
        self,
        consumer: "InMemoryConsumer",
        groups: GroupCoordinator,
        fetching: Fetching,
        config: Config,
        crash_at: Callable[[str], None],
        commit_stored: Callable[[Sequence[Place]], None],
    ) -> None:
        self._consumer = consumer
        self._groups = groups
        self._fetching = fetching
        self._crash_at = crash_at
        self._commit_stored = commit_stored
        self._group_id: str = config["group.id"]
        self._instance_id: str | None = config.get("group.instance.id") or None
        self._session_timeout_ms = int(config.get("session.timeout.ms", 45_000))
        strategy = str(config.get("partition.assignment.strategy", "range,roundrobin"))
        self._is_cooperative = strategy.startswith("cooperative")
        self._callbacks: dict[str, Callback | None] = {}
        self._topics: list[str] = []
        self._member: Member | None = None
        self._is_fenced = False
        self._is_touched = False

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        member = self._member
        if member is None:
            return ConsumerGroupMetadata(self._group_id, instance_id=self._instance_id)
        return ConsumerGroupMetadata(
            self._group_id, member.generation, "" if member.is_expelled else member.id, self._instance_id
        )

    def subscribe(
        self, topics: Sequence[str], on_assign: Callback | None, on_revoke: Callback | None, on_lost: Callback | None
    ) -> None:
        if self._member is not None:
            self.leave()
        self._topics = list(topics)
        self._callbacks = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost or on_revoke}
        self._join()

    def serve(self) -> None:
        """Tell the application what has changed."""
        member = self._member
        if member is None or self._is_fenced:
            return
        if member.is_expelled:
            lost = sorted(member.owned)
            member.owned.clear()
            if lost:
                self._call("on_lost", lost)
            member = self._join()
        if member.must_release:
            self._release(member, sorted(member.owned))
            member.must_release = False
            self._groups.try_complete(self._group_id)
        while member.is_dirty and not self._groups.group(self._group_id).is_rebalancing:
            member.is_dirty = False
            target = set(member.assigned)
            revoked = sorted(member.owned - target)
            if revoked:
                self._release(member, revoked)
                if self._has_successor():  # since a moment ago; it speaks for this member now
                    return
            added = sorted(target - member.owned)
            member.owned |= target
            self._call("on_assign", added)
            if revoked:
                self._groups.rebalance(self._group_id)

    def leave(self, *, is_closing: bool = False) -> None:
        """Give everything back; a static member that is closed keeps its place until its session times out."""
        member = self._member
        if member is None or self._is_fenced:
            return
        if member.owned:
            if member.is_expelled:
                self._call("on_lost", sorted(member.owned))
            else:
                self._release(member, sorted(member.owned))
        self._member = None
        if is_closing and self._instance_id is not None:
            self._groups.watch_session(self._group_id, member)
        else:
            self._groups.leave(self._group_id, member)

    def touch(self) -> None:
        """The application sets its assignment itself."""
        self._is_touched = True

    def fence(self) -> None:
        self._is_fenced = True

    def expel(self) -> None:
        """The coordinator takes the session for over."""
        if self._member is not None and not self._member.is_expelled and not self._is_fenced:
            self._groups.expel(self._group_id, self._member)

    def silent(self) -> None:
        if self._member is not None:
            self._groups.watch_session(self._group_id, self._member)

    def heard(self) -> None:
        if self._member is not None:
            self._groups.hear(self._group_id, self._member)

    def _has_successor(self) -> bool:
        return self._is_fenced

    def _join(self) -> Member:
        member = self._member = self._groups.join(
            self._group_id,
            self._consumer,
            self._topics,
            instance_id=self._instance_id,
            session_timeout_ms=self._session_timeout_ms,
            is_cooperative=self._is_cooperative,
        )
        return member

    def _release(self, member: Member, places: list[Place]) -> None:
        self._commit_stored(places)
        self._call("on_revoke", places)
        member.owned -= set(places)

    def _call(self, name: str, places: list[Place]) -> None:
        """A callback, and what it has left undone."""
        self._crash_at(f"{name}:before")
        self._is_touched = False
        partitions = [TopicPartition(*place) for place in places]
        callback = self._callbacks[name]
        if callback is not None:
            callback(self._consumer, partitions)
        if not self._is_touched:
            if name == "on_assign":
                self._fetching.assign(
                    [p for p in partitions if (p.topic, p.partition) not in self._fetching.partitions]
                )
            else:
                self._fetching.remove(places)
        self._crash_at(f"{name}:after")
