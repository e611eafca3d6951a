"""What may go wrong, where: a decision at every labelled point of every client call.

A label is a call and a side of its effect: at ``commit_transaction:before`` nothing has happened yet, at
``commit_transaction:after`` the broker has done it and the client does not know. `POSSIBLE` is the table of labels and
of what may happen at each.

    fault            what the process sees                                   why it happens in the field
    CRASH            SimulatedCrash; its clients are gone, unclosed          kill -9, power, out of memory
    TIME_OUT         _TIMED_OUT, retriable, before or after the effect       a slow broker, a lost answer
    UNAVAILABLE      nothing is answered for `ms`                            broker restart, network partition
    NOT_COORDINATOR  a retriable error                                       the coordinator has moved
    ABORT            an error with txn_requires_abort                        the broker gave the transaction up
    FENCE            _FENCED, fatal, from then on                            a newer producer with this id; expiry
    EXPEL            on_lost at the next poll; commits are refused           a pause longer than the session timeout
    REFUSE           the queued records of a partition fail for good         a policy, a size limit, a missing right
    SHORT_READ       no more than `count` records come                       how fetches fall
    LATE_MARKERS     the commit is decided, but seen only after `ms`         a slow leader of one partition
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from confluent_kafka import KafkaError


class Kind(StrEnum):
    """See the module's table."""

    CRASH = "crash"
    TIME_OUT = "time_out"
    UNAVAILABLE = "unavailable"
    NOT_COORDINATOR = "not_coordinator"
    ABORT = "abort"
    FENCE = "fence"
    EXPEL = "expel"
    REFUSE = "refuse"
    SHORT_READ = "short_read"
    LATE_MARKERS = "late_markers"


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong."""

    kind: Kind
    ms: int = 0
    """UNAVAILABLE, LATE_MARKERS: for how long."""
    count: int = 0
    """SHORT_READ: how many records."""
    code: int = KafkaError.POLICY_VIOLATION
    """REFUSE: the error."""


CRASH = Fault(Kind.CRASH)
TIME_OUT = Fault(Kind.TIME_OUT)

_ASKING = (Kind.CRASH, Kind.TIME_OUT, Kind.UNAVAILABLE)
_COORDINATOR = (*_ASKING, Kind.NOT_COORDINATOR)
_LOCAL = (Kind.CRASH,)
_ANSWERED = (Kind.CRASH, Kind.TIME_OUT)

POSSIBLE: Mapping[str, tuple[Kind, ...]] = {
    "init_transactions:before": _COORDINATOR,
    "init_transactions:after": _ANSWERED,
    "begin_transaction:before": _LOCAL,
    "begin_transaction:after": _LOCAL,
    "produce:before": _LOCAL,
    "produce:after": _LOCAL,
    "send:before": (Kind.REFUSE,),
    "poll:before": _LOCAL,
    "flush:before": (Kind.CRASH, Kind.UNAVAILABLE),
    "flush:after": _LOCAL,
    "send_offsets:before": (*_COORDINATOR, Kind.ABORT, Kind.FENCE),
    "send_offsets:after": _ANSWERED,
    "commit_transaction:before": (*_COORDINATOR, Kind.ABORT, Kind.FENCE),
    "commit_transaction:sent": _LOCAL,
    "commit_transaction:markers": (Kind.LATE_MARKERS,),
    "commit_transaction:after": _ANSWERED,
    "abort_transaction:before": (*_COORDINATOR, Kind.FENCE),
    "abort_transaction:after": _ANSWERED,
    "subscribe:before": _LOCAL,
    "subscribe:after": _LOCAL,
    "consume:before": (Kind.CRASH, Kind.UNAVAILABLE, Kind.EXPEL, Kind.SHORT_READ),
    "consume:after": _LOCAL,
    "on_assign:before": _LOCAL,
    "on_assign:after": _LOCAL,
    "on_revoke:before": _LOCAL,
    "on_revoke:after": _LOCAL,
    "on_lost:before": _LOCAL,
    "on_lost:after": _LOCAL,
    "committed:before": _COORDINATOR,
    "committed:after": _ANSWERED,
    "commit:before": _COORDINATOR,
    "commit:after": _ANSWERED,
    "watermarks:before": _ASKING,
    "watermarks:after": _ANSWERED,
    "metadata:before": _ASKING,
    "metadata:after": _ANSWERED,
    "list_offsets:before": _ASKING,
    "list_offsets:after": _ANSWERED,
    "describe_topics:before": _ASKING,
    "describe_topics:after": _ANSWERED,
    "describe_configs:before": _ASKING,
    "describe_configs:after": _ANSWERED,
    "create_topics:before": _ASKING,
    "create_topics:after": _ANSWERED,
    "delete_topics:before": _ASKING,
    "delete_topics:after": _ANSWERED,
    "delete_records:before": _ASKING,
    "delete_records:after": _ANSWERED,
    "close:before": _LOCAL,
    "close:after": _LOCAL,
}
"""Every label, and what may be injected there."""

LABELS: tuple[str, ...] = tuple(POSSIBLE)

Policy = Callable[[str, str], Fault | None]
"""Label and process -> what goes wrong now; None: nothing."""


@dataclass
class Refusal:
    """A standing rule: records that the broker does not accept."""

    topic: str
    partition: int | None = None
    larger_than_bytes: int = -1
    code: int = KafkaError.POLICY_VIOLATION


@dataclass
class _Appointment:
    label: str
    fault: Fault
    countdown: int
    process: str | None


class Faults:
    """The broker's ill will: by appointment (`at`), by seed (`seed`), by a policy of one's own, by standing rule."""

    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()
        """How often each label has been reached."""
        self.injected: list[tuple[str, str, Fault]] = []
        """Label, process and fault, in order: what a failing seed prints."""
        self.policy: Policy | None = None
        self.refusals: list[Refusal] = []
        self._appointments: list[_Appointment] = []

    def at(self, label: str, fault: Fault = CRASH, *, nth: int = 1, process: str | None = None) -> None:
        """Once, at the `nth` time from now that `label` is reached (by that process, where one is named).

        Raises:
            ValueError: there is no such label, or such a fault does not happen there.
        """
        if label not in POSSIBLE:
            raise ValueError(f"there is no label {label!r}; see LABELS")
        if fault.kind not in POSSIBLE[label]:
            raise ValueError(f"{fault.kind} does not happen at {label}; see POSSIBLE")
        self._appointments.append(_Appointment(label, fault, nth, process))

    def seed(
        self,
        chance: random.Random,
        rate: float,
        kinds: Sequence[Kind] = tuple(Kind),
        *,
        away_ms: int = 3_000,
        processes: Sequence[str] | None = None,
    ) -> None:
        """At every label, with probability `rate`, one of the `kinds` that may happen there.

        `away_ms`: the longest unavailability, and the latest markers. `processes`: whom it may meet; None: all.
        """
        wanted = set(kinds)
        table = {label: [kind for kind in possible if kind in wanted] for label, possible in POSSIBLE.items()}

        def policy(label: str, process: str) -> Fault | None:
            if chance.random() >= rate or (processes is not None and process not in processes):
                return None
            possible = table[label]
            if not possible:
                return None
            return Fault(chance.choice(possible), ms=chance.randrange(1, away_ms + 1), count=chance.randrange(1, 6))

        self.policy = policy

    def refuse(
        self,
        topic: str,
        *,
        partition: int | None = None,
        larger_than_bytes: int = -1,
        code: int = KafkaError.POLICY_VIOLATION,
    ) -> Refusal:
        """From now on records of this topic (partition, size of the value) fail with `code`; `allow` ends it."""
        refusal = Refusal(topic, partition, larger_than_bytes, code)
        self.refusals.append(refusal)
        return refusal

    def allow(self, refusal: Refusal) -> None:
        """Take a standing rule back."""
        self.refusals.remove(refusal)

    def stop(self) -> None:
        """Nothing more goes wrong; hits are still counted."""
        self.policy = None
        self.refusals.clear()
        self._appointments.clear()

    def unreached(self) -> list[str]:
        """Labels that no call has come by yet."""
        return [label for label in LABELS if not self.hits[label]]

    # --- asked by the clients -----------------------------------------------------------------------------------------

    def decide(self, label: str, process: str) -> Fault | None:
        """Count the label, and tell what goes wrong there."""
        self.hits[label] += 1
        fault = None
        if self._appointments:
            fault = self._due(label, process)
        if fault is None and self.policy is not None:
            fault = self.policy(label, process)
        if fault is not None:
            self.injected.append((label, process, fault))
        return fault

    def refused(self, topic: str, partition: int, value: bytes | None) -> int | None:
        """The error code of the first standing rule that the record breaks."""
        for rule in self.refusals:
            if (
                rule.topic == topic
                and rule.partition in (None, partition)
                and len(value or b"") > rule.larger_than_bytes
            ):
                return rule.code
        return None

    def _due(self, label: str, process: str) -> Fault | None:
        for appointment in self._appointments:
            if appointment.label == label and appointment.process in (None, process):
                appointment.countdown -= 1
                if appointment.countdown == 0:
                    self._appointments.remove(appointment)
                    return appointment.fault
        return None
