"""The group coordinator: who is a member, who has which partition, and what has been committed.

A rebalance here is one step: it waits until every member answers (a dead one answers until its session times out) and,
under the eager protocol, has given up what it had. Cooperative members keep what does not move; what moves is given on
in a second rebalance, once its owner has let go of it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaError

from connectors.contract import Place
from connectors.testing.assignor import spread
from connectors.testing.errors import RefusedOffsetsError
from connectors.testing.log import PendingOffset, Span, SpanState
from connectors.testing.timers import Timers

METADATA_BYTES_MAX = 4095
"""What a broker with ``offset.metadata.max.bytes`` of 4,096 accepts."""


class MemberClient(Protocol):
    """What the coordinator sees of a consumer."""

    @property
    def is_responsive(self) -> bool:
        """Whether heartbeats come."""

    def fence(self) -> None:
        """Another consumer has taken this one's ``group.instance.id``."""


@dataclass(eq=False)
class Member:
    """A consumer in its group. The consumer acts on `is_dirty`, `must_release` and `is_expelled` in its next poll."""

    id: str
    instance_id: str | None
    client: MemberClient
    topics: Sequence[str]
    session_timeout_ms: int
    is_cooperative: bool
    generation: int = -1
    owned: set[Place] = field(default_factory=set)
    """What its application has been given and has not given back."""
    assigned: list[Place] = field(default_factory=list)
    is_dirty: bool = False
    must_release: bool = False
    is_expelled: bool = False
    has_missed_topics: bool = False
    """Topics have changed while it led the group and was silent."""
    heartbeats: int = 0
    """How often they have stopped or begun; tells one silence from the next."""


class Committed(NamedTuple):
    """An offset that the coordinator keeps."""

    offset: int
    metadata: str | None
    sequence: int


class Group:
    """One consumer group."""

    def __init__(self) -> None:
        self.generation = 0
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        self.offsets: dict[Place, Committed] = {}
        self.pending: dict[Place, int] = {}
        """How many open transactions hold an offset for the partition."""
        self.is_rebalancing = False


class GroupCoordinator:
    """All groups.

    Args:
        places: the partitions of every topic, by topic.
    """

    def __init__(self, timers: Timers, places: Callable[[], Mapping[str, Sequence[Place]]]) -> None:
        self._timers = timers
        self._places = places
        self._groups: dict[str, Group] = {}
        self._sequence = 0
        self._members = 0

    def group(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group()
        return group

    # --- membership ---------------------------------------------------------------------------------------------------

    def join(
        self,
        group_id: str,
        client: MemberClient,
        topics: Sequence[str],
        *,
        instance_id: str | None,
        session_timeout_ms: int,
        is_cooperative: bool,
    ) -> Member:
        """A new member, or the return of a static one, which takes its place over as it stands."""
        group = self.group(group_id)
        self._members += 1
        member = Member(
            f"{instance_id or 'member'}-{self._members:08d}",
            instance_id,
            client,
            list(topics),
            session_timeout_ms,
            is_cooperative,
        )
        before = group.members.get(group.instances.get(instance_id or "", ""))
        if before is not None and instance_id is not None:
            group.members = {  # in the place of the one before, so that the order of joining stays
                (member.id if id_ == before.id else id_): (member if id_ == before.id else other)
                for id_, other in group.members.items()
            }
            if before.client is not client:
                before.client.fence()
            group.instances[instance_id] = member.id
            if not group.is_rebalancing:
                member.assigned, member.generation, member.is_dirty = before.assigned, group.generation, True
                return member
        else:
            group.members[member.id] = member
            if instance_id is not None:
                group.instances[instance_id] = member.id
        self.rebalance(group_id)
        return member

    def leave(self, group_id: str, member: Member) -> None:
        """At once, as dynamic members do when they are closed."""
        group = self.group(group_id)
        if self._remove(group, member):
            self.rebalance(group_id)

    def watch_session(self, group_id: str, member: Member) -> None:
        """Heartbeats have stopped: expel the member unless it, or its successor, has come back in time."""
        member.heartbeats += 1
        silence = member.heartbeats
        self._timers.after(member.session_timeout_ms, lambda: self._expire(group_id, member, silence))

    def hear(self, group_id: str, member: Member) -> None:
        """Heartbeats have begun again."""
        member.heartbeats += 1
        if member.has_missed_topics:
            member.has_missed_topics = False
            self.rebalance(group_id)
        self.try_complete(group_id)

    def expel(self, group_id: str, member: Member) -> None:
        """The session is over."""
        member.is_expelled = True
        self.leave(group_id, member)

    def topics_changed(self) -> None:
        """Topics were made or deleted: groups that subscribe to them divide anew once the one that leads has seen it.

        Who comes back as a static member in its place has nothing to compare what it sees with.
        """
        for group_id, group in self._groups.items():
            leader = next(iter(group.members.values()), None)
            if leader is not None:
                leader.has_missed_topics = not leader.client.is_responsive
                if not leader.has_missed_topics:
                    self.rebalance(group_id)

    def rebalance(self, group_id: str) -> None:
        group = self.group(group_id)
        group.is_rebalancing = bool(group.members)
        for member in group.members.values():
            member.must_release = not member.is_cooperative and bool(member.owned)
        self.try_complete(group_id)

    def try_complete(self, group_id: str) -> None:
        """Finish the rebalance if nobody is waited for."""
        group = self.group(group_id)
        if not group.is_rebalancing:
            return
        members = group.members
        if any(not member.client.is_responsive or member.must_release for member in members.values()):
            return
        group.is_rebalancing = False
        group.generation += 1
        places = self._places()
        wanted = {id_: subscribed(member.topics, places) for id_, member in members.items()}
        ideal = spread(places, wanted, {id_: member.owned for id_, member in members.items()})
        owner = {place: id_ for id_, member in members.items() for place in member.owned}
        for id_, member in members.items():
            member.assigned = [place for place in ideal[id_] if owner.get(place, id_) == id_]
            member.generation = group.generation
            member.is_dirty = True

    def _expire(self, group_id: str, member: Member, silence: int) -> None:
        if member.heartbeats == silence and member.id in self.group(group_id).members:
            self.expel(group_id, member)

    def _remove(self, group: Group, member: Member) -> bool:
        if group.members.get(member.id) is not member:
            return False
        del group.members[member.id]
        if member.instance_id is not None:
            group.instances.pop(member.instance_id, None)
        return True

    # --- offsets ------------------------------------------------------------------------------------------------------

    def commit(
        self, group_id: str, offsets: Sequence[tuple[Place, int, str | None]], generation: int, member_id: str,
        instance_id: str | None, span: Span | None = None,
    ) -> None:  # fmt: skip
        """Keep offsets, at once or when the transaction ends.

        Raises:
            RefusedOffsetsError: the committer is not, or no longer, what it takes itself for.
        """
        group = self.group(group_id)
        self._validate(group, generation, member_id, instance_id, is_transactional=span is not None)
        if any(len((metadata or "").encode()) > METADATA_BYTES_MAX for _, _, metadata in offsets):
            raise RefusedOffsetsError(KafkaError.OFFSET_METADATA_TOO_LARGE)
        for place, offset, metadata in offsets:
            self._sequence += 1
            if span is None:
                group.offsets[place] = Committed(offset, metadata, self._sequence)
            else:
                span.offsets.append(PendingOffset(group_id, place, offset, metadata, self._sequence))
                group.pending[place] = group.pending.get(place, 0) + 1

    def settle(self, span: Span) -> None:
        """A transaction has ended: its offsets are final, or forgotten."""
        for pending in span.offsets:
            group = self.group(pending.group_id)
            place = pending.place
            group.pending[place] -= 1
            if not group.pending[place]:
                del group.pending[place]
            if span.state is SpanState.COMMITTED:
                before = group.offsets.get(place)
                if before is None or before.sequence < pending.sequence:
                    group.offsets[place] = Committed(pending.offset, pending.metadata, pending.sequence)

    def forget_topic(self, topic: str) -> None:
        """A topic is deleted: so is what groups have committed for it."""
        for group in self._groups.values():
            for place in [place for place in group.offsets if place[0] == topic]:
                del group.offsets[place]

    def _validate(
        self, group: Group, generation: int, member_id: str, instance_id: str | None, *, is_transactional: bool
    ) -> None:
        """As Kafka's `ClassicGroup.validateOffsetCommit`."""
        if generation < 0 and not group.members:
            return
        if generation >= 0 or member_id or instance_id is not None:
            if instance_id is not None and instance_id in group.instances:
                if group.instances[instance_id] != member_id:
                    raise RefusedOffsetsError(KafkaError.FENCED_INSTANCE_ID)
            elif member_id not in group.members:
                raise RefusedOffsetsError(KafkaError.UNKNOWN_MEMBER_ID)
            if generation != group.generation:
                raise RefusedOffsetsError(KafkaError.ILLEGAL_GENERATION)
        elif not is_transactional:
            raise RefusedOffsetsError(KafkaError.UNKNOWN_MEMBER_ID)


def subscribed(patterns: Sequence[str], topics: Mapping[str, object]) -> list[str]:
    """Existing topics that a subscription names; a name that begins with ``^`` is a regular expression."""
    named = [topic for topic in patterns if topic in topics]
    expressions = [re.compile(pattern) for pattern in patterns if pattern.startswith("^")]
    if expressions:
        named += [topic for topic in topics if any(expression.match(topic) for expression in expressions)]
    return list(dict.fromkeys(named))
