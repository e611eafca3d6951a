"""What the sidecar knows of its own state, written by the loop and read by the web threads."""

from dataclasses import dataclass, field

from sidecar.clock import Clock

LOOP_STUCK_AFTER_MS = 30_000
"""A loop that has not turned for this long is not alive."""

BROKER_AWAY_GRACE_MS = 60_000
"""A broker that does not answer for less than this leaves the sidecar ready."""


@dataclass
class Health:
    """Single assignments only, so that readers need no lock."""

    clock: Clock
    turned_ms: float = 0.0
    assigned: bool = False
    places: frozenset[tuple[str, int]] = frozenset()
    """The topics and partitions that are read."""
    stopping: bool = False
    stopped: dict[str, str] = field(default_factory=dict)
    """``topic-partition`` -> why it waits for an operator."""
    failing: dict[str, str] = field(default_factory=dict)
    """``topic-partition`` -> why its store failed; it is tried again."""
    recovering: dict[str, str] = field(default_factory=dict)
    """``topic-partition`` -> how far it has come reading again what is committed."""
    troubled: dict[str, str] = field(default_factory=dict)
    """``topic-partition`` -> what it does not do just now, while all else goes on: its disk is full."""
    broker_silent_since_ms: float | None = None
    broker_complained_ms: float = 0.0
    """When somebody last found Kafka silent."""
    broker_error: str = ""

    def __post_init__(self) -> None:
        self.turned_ms = self.clock.monotonic_ms()

    def turned(self) -> None:
        """The loop is turning."""
        self.turned_ms = self.clock.monotonic_ms()

    def broker_answers(self) -> None:
        self.broker_silent_since_ms = None
        self.broker_error = ""

    def broker_is_silent(self, error: str) -> None:
        self.broker_complained_ms = self.clock.monotonic_ms()
        if self.broker_silent_since_ms is None:
            self.broker_silent_since_ms = self.broker_complained_ms
        self.broker_error = error

    @property
    def since_turn_ms(self) -> float:
        """How long ago the loop last turned."""
        return self.clock.monotonic_ms() - self.turned_ms

    @property
    def broker_silent_ms(self) -> float:
        """How long Kafka has not answered; 0: it does."""
        since_ms = self.broker_silent_since_ms
        return 0.0 if since_ms is None else self.clock.monotonic_ms() - since_ms

    def is_alive(self) -> bool:
        return self.since_turn_ms < LOOP_STUCK_AFTER_MS

    def unready_reasons(self) -> list[str]:
        """Why traffic should not count on this sidecar; empty when it should."""
        reasons = []
        if self.stopping:
            reasons.append("stopping")
        if not self.assigned:
            reasons.append(self.broker_error or "starting: no partitions assigned yet")
        since_ms = self.broker_silent_since_ms
        if self.assigned and since_ms is not None:
            silent_ms = self.clock.monotonic_ms() - since_ms
            if silent_ms > BROKER_AWAY_GRACE_MS:
                reasons.append(f"kafka has not answered for {silent_ms / 1000:.0f} s: {self.broker_error}")
        reasons += [f"{where} is stopped: {why}" for where, why in sorted(self.stopped.items())]
        reasons += [f"{where} failed and is tried again: {why}" for where, why in sorted(self.failing.items())]
        reasons += [f"{where} recovers: {how_far}" for where, how_far in sorted(self.recovering.items())]
        return reasons

    def warnings(self) -> list[str]:
        """What an operator should know of a sidecar that is ready all the same."""
        return [f"{where}: {why}" for where, why in sorted(self.troubled.items())]
