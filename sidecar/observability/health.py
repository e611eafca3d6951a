"""What the sidecar knows of its own state, written by the loop and read by the web threads.

The states are told apart here and nowhere else: probes, the API, the page and the commands all show `Health.verdict`.
Several may hold at once; the first of this table is told.

    stuck        the loop does not turn
    stopping     a stop was asked for
    broker_away  no broker answers
    stuck        a schedule topic is gone, or may not be read any more
    starting     no partitions are assigned: not yet, or not again since a rebalance began or the clients were lost
    stuck        a partition waits for an operator, cannot be opened and is tried again, or takes nothing in
    disk_full    intake is paused, or a partition closed, for want of disk; delivery of what is stored goes on
    recovering   what is committed is read again, and how far that has come
    held         an operator has stopped delivery or intake
    behind       something has been due for more than a second
    healthy      none of these
"""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from connectors.contract import Place
from sidecar.clock import Clock
from sidecar.store.errors import MAKE_ROOM
from sidecar.switches import Switches

LOOP_STUCK_AFTER_MS = 30_000
"""A loop that has not turned for this long is not alive."""

BROKER_AWAY_GRACE_MS = 60_000
"""A broker that does not answer for less than this leaves the sidecar ready."""

BEHIND_AFTER_MS = 1_000
"""What has been due for longer than this is late."""

DOUBT_AFTER_MS = 1_000
"""After waiting for Kafka this long it is worth asking whether any broker answers."""

FORGIVEN_AFTER_MS = 5_000
"""A broker that answers, and has refused nothing for this long, has nothing held against it."""

FORGIVEN_AT_LAST_MS = 10_000
"""As `FORGIVEN_AFTER_MS`, while something is due or waited for."""

FENCED_TWICE_WITHIN_MS = 600_000
"""Once, Kafka may have had enough of a transaction that lasted too long; twice in this time somebody has to look."""

_TREND_OVER_MS = 10_000
_OBSERVATIONS_MAX = 60


class State(StrEnum):
    """See the module's docstring; of several processes the one is told whose state comes first here."""

    STUCK = "stuck"
    STOPPING = "stopping"
    BROKER_AWAY = "broker_away"
    STARTING = "starting"
    DISK_FULL = "disk_full"
    RECOVERING = "recovering"
    HELD = "held"
    BEHIND = "behind"
    HEALTHY = "healthy"


SEVERITY = list(State)
"""The worst first."""


class Cause(NamedTuple):
    """Why no broker answers, or a partition or topic is not worked on."""

    words: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.words}; {self.remedy}"


GONE = Cause(
    "does not exist any more, or this login may not describe it",
    "if it was deleted, make it anew with 'timewheel topics create', what waited in it is lost; if not, allow the "
    "sidecar's login to describe and read it",
)
CLOSED = Cause("may not be read by this login any more", "allow the sidecar's login to read it; nothing is lost")
"""What has become of a schedule topic."""


class Verdict(NamedTuple):
    """How the sidecar is."""

    state: State
    words: str
    """One sentence, with the cause where it is known."""
    action: str = ""
    """What an operator should do; empty where there is nothing to do."""
    progress: float | None = None
    """While recovering, the share that is done."""


WAITS_FOR_DELIVERY = "takes in no more, cancels included, until delivery is started: what waits for that leaves no room"


class Paused(StrEnum):
    """Why a wheel partition takes nothing in."""

    DISK = "disk"
    DELIVERY_STOPPED = "delivery_stopped"
    """What waits for the switch leaves no room in memory."""
    OTHER = "other"
    """A record is due farther ahead than the wheel spans, or the disk has another fault; its warning says which."""


@dataclass
class Health:
    """Single assignments only, so that readers need no lock."""

    clock: Clock
    switches: Switches = field(default_factory=Switches)
    turned_ms: float = 0.0
    phase: str = "checks the schedule topics"
    """What a start is doing."""
    assigned: bool = False
    """Whether the group has assigned partitions to this session, or none where others have them all."""
    unassigned_since_ms: float | None = None
    """Since when they are gone, with the session or for a rebalance, until there are some again; None: they are not."""
    is_rebalancing: bool = False
    """Whether they are gone for a rebalance."""
    places: frozenset[Place] = frozenset()
    """The topics and partitions that are read."""
    leaderless: frozenset[Place] = frozenset()
    """Partitions of the schedule topics that no broker leads, whoever reads them."""
    held_back: frozenset[Place] = frozenset()
    """Partitions that cannot be read on before a producer's transaction ends."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """Which topics of their names are read, by Kafka's ids."""
    unreadable: dict[str, Cause] = field(default_factory=dict)
    """Schedule topics that were there and are gone, or may not be read -> which of it."""
    topics_made_anew: int = 0
    """How often schedule topics were deleted and made again."""
    stopping: bool = False
    stopped: dict[str, Cause] = field(default_factory=dict)
    """``topic-partition`` -> why it waits for an operator."""
    failing: dict[str, Cause] = field(default_factory=dict)
    """``topic-partition`` -> why it is closed; it is tried again."""
    recovering: dict[str, str] = field(default_factory=dict)
    """``topic-partition`` -> how far it has come reading again what is committed."""
    recovered: float = 0.0
    """The share of that which is done, all partitions together."""
    troubled: dict[str, str] = field(default_factory=dict)
    """``topic-partition`` -> what it does not do just now, while all else goes on: its disk is full, or its memory
    while delivery is stopped."""
    remedies: dict[str, str] = field(default_factory=dict)
    """``topic-partition``, of ``troubled`` and ``recovering`` -> what somebody can do about it."""
    destinations_away: dict[str, str] = field(default_factory=dict)
    """``topic-partition`` of a destination -> why it takes nothing just now, while all others go on."""
    noted: dict[str, str] = field(default_factory=dict)
    """``topic-partition`` -> what somebody should know of it, though it does all it should."""
    disk_full: frozenset[str] = frozenset()
    """The partitions among ``troubled`` and ``failing`` that lack nothing but disk."""
    broker_silent_since_ms: float | None = None
    broker_error: str = ""
    broker_remedy: str = ""
    """What ends what `broker_error` tells of, where that is known."""
    broker_error_ms: float = 0.0
    """When somebody last found Kafka silent, or was refused."""
    broker_reachable: bool | None = None
    """What a probe has found since a broker came into doubt; None: it has not asked yet."""
    broker_cause: Cause | None = None
    """Why it reached none."""
    waits_since_ms: float | None = None
    """Since when a call to Kafka has been waited for."""
    oldest_due_at_ms: float | None = None
    """When, by the monotonic clock, the oldest record that waits falls or fell due; None: none waits."""
    identity: str = ""
    """What its transactional ids begin with, behind the group's."""
    fenced_ms: tuple[float, ...] = ()
    """When Kafka has taken those ids away, the last two times."""

    def __post_init__(self) -> None:
        self.turned_ms = self.clock.monotonic_ms()
        self._state: tuple[State, float] = (State.STARTING, self.turned_ms)
        self._behind: deque[tuple[float, float]] = deque(maxlen=_OBSERVATIONS_MAX)

    # --- written by the loop ------------------------------------------------------------------------------------------

    def partitions_assigned(self) -> None:
        """The group has assigned partitions, or none."""
        self.assigned = True
        self.unassigned_since_ms = None
        self.is_rebalancing = False

    def partitions_revoked(self) -> None:
        """The group has taken all partitions back: it assigns them anew once every member has joined."""
        self._unassigned()
        self.is_rebalancing = True

    def session_ended(self) -> None:
        """The clients are gone, and with them the partitions; new ones may follow."""
        self._unassigned()
        self.is_rebalancing = False

    def _unassigned(self) -> None:
        if self.assigned:
            self.assigned = False
            self.unassigned_since_ms = self.clock.monotonic_ms()

    def turned(self) -> None:
        """The loop is turning."""
        self.turned_ms = self.clock.monotonic_ms()
        self.waits_since_ms = None

    def waits(self) -> None:
        """The loop waits for Kafka to answer a call; said again and again meanwhile."""
        self.turned_ms = self.clock.monotonic_ms()
        if self.waits_since_ms is None:
            self.waits_since_ms = self.turned_ms

    def knows_due(self, in_ms: int | None) -> None:
        """The oldest record that waits falls due in so long (below 0: is due); None: none waits.

        Told ahead, because a loop that waits for Kafka cannot tell what falls due meanwhile. In a rebalance nobody has
        the partitions, and what was known before it stands.
        """
        if self.is_rebalancing and in_ms is None:
            return
        self.oldest_due_at_ms = None if in_ms is None else self.clock.monotonic_ms() + in_ms

    def broker_answers(self) -> None:
        self.broker_silent_since_ms = None
        self.broker_error = ""
        self.broker_remedy = ""
        self.broker_reachable = None
        self.broker_cause = None

    def broker_is_silent(self, error: str, remedy: str = "") -> None:
        """Kafka does not do what it should: it is silent, or it refuses. A probe finds out which."""
        self.broker_error_ms = self.clock.monotonic_ms()
        if self.broker_silent_since_ms is None:
            self.broker_silent_since_ms = self.broker_error_ms
        self.broker_error = error
        self.broker_remedy = remedy or (_RIGHTS_REMEDY if _NO_RIGHTS in error else "")

    def was_fenced(self) -> None:
        """Kafka has taken the transactional ids away."""
        self.fenced_ms = (*self.fenced_ms[-1:], self.clock.monotonic_ms())

    # --- written by the observer --------------------------------------------------------------------------------------

    @property
    def is_broker_in_doubt(self) -> bool:
        """Whether to ask if any broker answers."""
        waits_ms = self.waits_since_ms
        is_waiting = waits_ms is not None and self.clock.monotonic_ms() - waits_ms >= DOUBT_AFTER_MS
        return is_waiting or self.broker_silent_since_ms is not None

    def probed(self, cause: Cause | None) -> None:
        """A broker has been asked: why none answered, or None where one did."""
        self.broker_reachable = cause is None
        self.broker_cause = cause
        if cause is not None:
            if self.broker_silent_since_ms is None:
                waits_since_ms = self.waits_since_ms
                self.broker_silent_since_ms = self.clock.monotonic_ms() if waits_since_ms is None else waits_since_ms
            return
        quiet_ms = self.clock.monotonic_ms() - self.broker_error_ms
        is_idle = self.behind_ms <= BEHIND_AFTER_MS and self.waits_since_ms is None
        if quiet_ms >= (FORGIVEN_AFTER_MS if is_idle else FORGIVEN_AT_LAST_MS):
            self.broker_answers()  # an idle sidecar hears nothing of a broker that is back

    def observe(self) -> None:
        """To be called about once a second: remembers since when it is as it is, and where the backlog goes."""
        now_ms = self.clock.monotonic_ms()
        self._behind.append((now_ms, self.behind_ms))
        state = self.verdict().state
        if state is not self._state[0]:
            self._state = state, now_ms

    # --- read ---------------------------------------------------------------------------------------------------------

    @property
    def since_turn_ms(self) -> float:
        """How long ago the loop last turned."""
        return self.clock.monotonic_ms() - self.turned_ms

    @property
    def broker_silent_ms(self) -> float:
        """How long Kafka has not answered; 0: it does, be it that it refuses."""
        since_ms = None if self.broker_reachable else self.broker_silent_since_ms
        return 0.0 if since_ms is None else self.clock.monotonic_ms() - since_ms

    def is_alive(self) -> bool:
        return self.since_turn_ms < LOOP_STUCK_AFTER_MS

    @property
    def behind_ms(self) -> float:
        """How long the oldest due record has been due."""
        due_at_ms = self.oldest_due_at_ms
        return 0.0 if due_at_ms is None else max(0.0, self.clock.monotonic_ms() - due_at_ms)

    def paused(self, why: Paused) -> int:
        """How many partitions take nothing in, for this reason."""
        disk_full = self.disk_full
        reasons = (
            Paused.DISK
            if where in disk_full
            else Paused.DELIVERY_STOPPED
            if reason == WAITS_FOR_DELIVERY
            else Paused.OTHER
            for where, reason in self.troubled.items()
        )
        return sum(reason is why for reason in reasons)

    def state_for_ms(self, state: State) -> float:
        """How long this state has lasted, to the second."""
        told, since_ms = self._state
        return self.clock.monotonic_ms() - since_ms if told is state else 0.0

    @property
    def rival(self) -> Cause | None:
        """That another process seems to have this identity; None: no sign of one."""
        if len(self.fenced_ms) < 2 or self.clock.monotonic_ms() - self.fenced_ms[0] > FENCED_TWICE_WITHIN_MS:
            return None
        return Cause(
            f"Kafka keeps taking the transactional ids of '{self.identity}' away",
            "look for a second sidecar with this instance_id, or one whose group_id and instance_id together read the "
            "same, and give each its own; without one, raise transaction_timeout",
        )

    def verdict(self) -> Verdict:
        """How the sidecar is, the worst of it first."""
        if not self.is_alive():
            silent_s = (self.clock.monotonic_ms() - self.turned_ms) / 1000
            words = f"the loop has not turned for {silent_s:.0f} s"
            return Verdict(State.STUCK, words, "restart the sidecar; nothing is lost")
        if self.stopping:
            return Verdict(State.STOPPING, "finishes the transaction in hand and ends")
        if self.broker_reachable is False:
            return self._broker_away()
        if self.unreadable:
            return self._of_topics()
        if not self.assigned:
            if self.is_rebalancing and not self._broker_words():
                return Verdict(State.STARTING, _REBALANCING + self._has_waited(), _REBALANCING_REMEDY)
            words = (self._broker_words() or self.phase) + self._has_waited()
            return Verdict(State.STARTING, words, rival.remedy if (rival := self.rival) else self.broker_remedy)
        return self._of_partitions() or self._of_delivery()

    def _broker_away(self) -> Verdict:
        words = f"no broker has answered for {_seconds(self.broker_silent_ms)}"
        words += f" ({self._broker_words()})" if self._broker_words() else ""
        remedy = self.broker_cause.remedy if self.broker_cause else "check the brokers and the way to them"
        hope = _GOES_ON if self._has_been_assigned else _TRIED_AGAIN
        return Verdict(State.BROKER_AWAY, words + self._has_waited(), f"{remedy}; {hope}")

    def _of_topics(self) -> Verdict:
        topic, cause = min(self.unreadable.items())
        others = f", and {len(self.unreadable) - 1} more" if len(self.unreadable) > 1 else ""
        return Verdict(State.STUCK, f"{topic} {cause.words}{others}{self._has_waited()}", cause.remedy)

    @property
    def _has_been_assigned(self) -> bool:
        return self.assigned or self.unassigned_since_ms is not None

    def _has_waited(self) -> str:
        """What to add while nothing is delivered; empty while nothing is due."""
        behind_ms = self.behind_ms
        return f"; what is due has waited for {_seconds(behind_ms)}" if behind_ms > BEHIND_AFTER_MS else ""

    def _broker_words(self) -> str:
        """Why no broker answers, as the probe knows it; or what the loop's clients say."""
        return self.broker_cause.words if self.broker_cause else self.broker_error

    def _of_partitions(self) -> Verdict | None:
        """What holds up single partitions."""
        needs_operator = [
            (f"{where} is stopped: {cause.words}", cause.remedy) for where, cause in sorted(self.stopped.items())
        ] + [
            (f"{where} failed: {cause.words}", f"{cause.remedy}; the partition is tried again, nothing is lost")
            for where, cause in sorted(self.failing.items())
            if where not in self.disk_full
        ]
        needs_operator += [
            (f"{where}: {why}; {_STORED_GOES_ON}", self.remedies[where])
            for where, why in sorted(self.troubled.items())
            if where in self.remedies and where not in self.disk_full
        ]
        if needs_operator:
            words, action = needs_operator[0]
            others = f", and {len(needs_operator) - 1} more" if len(needs_operator) > 1 else ""
            return Verdict(State.STUCK, words + others, action)
        if full := sorted(self.disk_full):
            closed = {where: cause.words for where, cause in self.failing.items()}
            why = self.troubled.get(full[0])
            stored = _STORED_GOES_ON if why else "it delivers nothing until there is room"
            why = why or self.recovering.get(full[0]) or closed.get(full[0], "")
            return Verdict(
                State.DISK_FULL,
                f"{full[0]}: {why}; {stored}",
                MAKE_ROOM,
            )
        if self.recovering:
            where, how_far = min(self.recovering.items())
            others = f", and {len(self.recovering) - 1} more" if len(self.recovering) > 1 else ""
            words = f"{self.recovered:.0%} of what is committed is read again ({where} {how_far}{others})"
            return Verdict(State.RECOVERING, words, "", self.recovered)
        return None

    def _of_delivery(self) -> Verdict:
        behind_ms = self.behind_ms
        if self.switches.stop_dequeue or self.switches.stop_enqueue:
            held = [
                words
                for words, is_off in (
                    ("delivery is stopped (stop_dequeue)", self.switches.stop_dequeue),
                    ("intake is stopped (stop_enqueue)", self.switches.stop_enqueue),
                )
                if is_off
            ]
            if self.switches.stop_dequeue and behind_ms > BEHIND_AFTER_MS:
                held.append(f"what is due has waited for {_seconds(behind_ms)}")
            flags = [
                flag
                for flag, is_off in (
                    ("--start-dequeue", self.switches.stop_dequeue),
                    ("--start-enqueue", self.switches.stop_enqueue),
                )
                if is_off
            ]
            return Verdict(State.HELD, "; ".join(held), f"'timewheel switch {' '.join(flags)}' lets it go on")
        if behind_ms > BEHIND_AFTER_MS:
            return Verdict(State.BEHIND, f"behind by {_seconds(behind_ms)} because {self._cause()}", self._remedy())
        words = "; ".join(self.warnings())
        return Verdict(State.HEALTHY, words or ("what is due goes out on time" if self.places else _NOTHING_ASSIGNED))

    def _cause(self) -> str:
        if rival := self.rival:
            return rival.words
        waits_since_ms = self.waits_since_ms
        if self.broker_error:
            return f"Kafka refuses what is sent: {self.broker_error}"
        if waits_since_ms is not None and self.clock.monotonic_ms() - waits_since_ms >= DOUBT_AFTER_MS:
            waits_ms = self.clock.monotonic_ms() - waits_since_ms
            return f"Kafka has not acknowledged what was sent {_seconds(waits_ms)} ago"
        return f"more has fallen due than has gone out yet{self._trend()}"

    def _remedy(self) -> str:
        if rival := self.rival:
            return rival.remedy
        if self.broker_remedy:
            return f"{self.broker_remedy}; nothing is lost"
        if self.broker_error or self.waits_since_ms is not None:
            return "look at the destinations and their brokers; it is tried again until it goes, nothing is lost"
        return "nothing, if it catches up; otherwise more workers, replicas or partitions"

    def _trend(self) -> str:
        """Whether the backlog shrinks, and when it will be gone."""
        now_ms, behind_ms = self.clock.monotonic_ms(), self.behind_ms
        before = next(((at, was) for at, was in reversed(self._behind) if now_ms - at >= _TREND_OVER_MS), None)
        if before is None:
            return ""
        gained = (before[1] - behind_ms) / (now_ms - before[0])
        if gained > 0.02:
            return f"; catching up, about {_seconds(behind_ms / gained)} to go"
        return "; falling further behind" if gained < -0.02 else "; neither catching up nor falling back"

    def unready_reasons(self) -> list[str]:
        """Why traffic should not count on this sidecar; empty when it should."""
        reasons = []
        if self.stopping:
            reasons.append("stopping")
        if not self.is_alive():
            reasons.append(f"stuck: the loop has not turned for {_seconds(self.since_turn_ms)}")
        now_ms, since_ms = self.clock.monotonic_ms(), self.unassigned_since_ms
        if not self._has_been_assigned:
            reasons.append(self._broker_told() or "starting: no partitions assigned yet")
        elif since_ms is not None and now_ms - since_ms > BROKER_AWAY_GRACE_MS:
            told = self._broker_told() or (_REBALANCING if self.is_rebalancing else self.phase)
            reasons.append(f"no partitions have been assigned again for {(now_ms - since_ms) / 1000:.0f} s: {told}")
        elif self.broker_silent_ms > BROKER_AWAY_GRACE_MS:
            reasons.append(f"kafka has not answered for {self.broker_silent_ms / 1000:.0f} s: {self._broker_told()}")
        reasons += [f"{topic} {cause.words}" for topic, cause in sorted(self.unreadable.items())]
        reasons += [f"{where} is stopped: {cause.words}" for where, cause in sorted(self.stopped.items())]
        reasons += [f"{where} failed and is tried again: {why}" for where, why in sorted(self.failing.items())]
        reasons += [f"{where} recovers: {how_far}" for where, how_far in sorted(self.recovering.items())]
        return reasons

    def _broker_told(self) -> str:
        return str(self.broker_cause or self.broker_error)

    def warnings(self) -> list[str]:
        """What an operator should know of a sidecar that is ready all the same."""
        doubt = {"instance_id": str(rival)} if (rival := self.rival) else {}
        unread = {f"{topic}-{number}": _HELD_BACK for topic, number in self.held_back}
        unread |= {f"{topic}-{number}": _NO_LEADER for topic, number in self.leaderless & self.places}
        refused = (
            {"kafka refuses what is sent": self.broker_error} if self.broker_reachable and self.broker_error else {}
        )
        groups = (doubt, refused, unread, self.troubled, self.destinations_away, self.noted)
        told = [entry for group in groups for entry in sorted(group.items())]
        return [f"{where}: {why}" for where, why in told[:_WARNINGS_MAX]]


_WARNINGS_MAX = 20

CHOOSE_PROGRESS = "stop all sidecars of the group, choose with 'timewheel progress set', start them again"
"""What an operator can do about most partitions that are stopped."""
_STORED_GOES_ON = "what is stored is delivered all the same"
_GOES_ON = "delivery goes on by itself, nothing is lost"
_TRIED_AGAIN = "it is tried again, nothing is lost"
_NOTHING_ASSIGNED = "no partitions are assigned to it; other members of the group have them all"
_REBALANCING = "the group is in a rebalance, which waits until every member has joined it"
_REBALANCING_REMEDY = (
    "if it lasts, 'kafka-consumer-groups.sh --describe --members --state' names the members: end the one that does not "
    "join. Without that, Kafka drops it after its max.poll.interval.ms"
)
_NO_RIGHTS = "authorization failed"
"""Librdkafka's words for every refusal of the brokers' authorizer."""
_RIGHTS_REMEDY = "give the sidecar's login the rights that docs/security.md lists; it is tried again"
_HELD_BACK = (
    "a producer's transaction is open, and what is written behind it cannot be read before it ends; "
    "'kafka-transactions.sh describe-producers' names the producer"
)
_NO_LEADER = "no broker leads it, and nothing more is read of it; bring the broker back that holds it"


def _seconds(duration_ms: float) -> str:
    """For people: ``0.4 s``, ``12 s``, ``3 min``, ``5 h``."""
    seconds = duration_ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.0f} h"
