"""Brokers that make this sidecar wait for their answers, because it or its user has used up a quota."""

import structlog
from confluent_kafka import ThrottleEvent

from connectors.durations import format_duration
from sidecar.clock import Clock

TOLD_FOR_MS = 60_000
"""Quotas are counted over seconds, so that one which is used up delays one answer and not the next."""

log = structlog.get_logger("timewheel")


class Throttling:
    """What librdkafka has told the clients of one session (``throttle_cb``)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._delays: dict[int, tuple[float, float]] = {}
        """By broker: the last delay in s, and when it was told, by the monotonic clock."""
        self._is_told = False

    def throttled(self, event: ThrottleEvent) -> None:
        """A broker has delayed an answer, or no longer does; called from whatever thread serves a client."""
        if event.throttle_time > 0:
            self._delays[event.broker_id] = event.throttle_time, self._clock.monotonic_ms()

    @property
    def longest_s(self) -> float:
        """The longest delay of the last minute, of any broker's last; 0: there was none."""
        return max(self._recent.values(), default=0.0)

    @property
    def in_words(self) -> str:
        """Empty where no broker delays its answers."""
        recent = self._recent
        if not recent:
            return ""
        brokers = ", ".join(map(str, sorted(recent)))
        who = f"broker {brokers} delays its" if len(recent) == 1 else f"brokers {brokers} delay their"
        delay = format_duration(max(1, round(1000 * max(recent.values()))))
        return f"{who} answers by up to {delay}: a quota of this sidecar's user or client is used up"

    def tell(self) -> None:
        """Log when it begins and when it is over."""
        recent = self._recent
        if recent and not self._is_told:
            log.warning(
                "throttled by kafka",
                brokers=sorted(recent),
                delay_ms=round(1000 * max(recent.values())),
                operator_action="raise the quota of the sidecar's user or client.id (kafka-configs.sh --describe "
                "--entity-type users, or clients); until then messages may be late",
            )
        elif self._is_told and not recent:
            log.info("no longer throttled by kafka")
        self._is_told = bool(recent)

    @property
    def _recent(self) -> dict[int, float]:
        since_ms = self._clock.monotonic_ms() - TOLD_FOR_MS
        return {broker: delay_s for broker, (delay_s, told_ms) in list(self._delays.items()) if told_ms > since_ms}
