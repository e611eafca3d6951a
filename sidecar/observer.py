"""Looks at the sidecar and at its brokers, from a thread of its own: health and history go on while the loop waits.

Once a second; the brokers only where they are in doubt, and every 10 s because a sidecar with nothing to do would not
notice that they are away. What the schedule topics are like is for `sidecar.kafka.topic_watch`.
"""

from collections.abc import Callable

import structlog

from connectors.contract import Place
from sidecar.clock import Clock
from sidecar.kafka.probe import Probe
from sidecar.observability.health import CLOSED, GONE, Cause, Health
from sidecar.observability.history import History
from sidecar.watch_thread import WatchThread

EVERY_S = 1.0
PROBE_TIMEOUT_S = 1.0
PING_EVERY_MS = 10_000

log = structlog.get_logger("timewheel.observer")


class Observer(WatchThread):
    """How the sidecar and its brokers are, every second."""

    def __init__(self, clock: Clock, health: Health, history: History, make_probe: Callable[[], Probe]) -> None:
        super().__init__("observer", PROBE_TIMEOUT_S)
        self._clock = clock
        self._health = health
        self._history = history
        self._make_probe = make_probe
        self._probe: Probe | None = None
        self._pinged_ms = -float(PING_EVERY_MS)
        self._told: Cause | None = None
        self._leaderless: frozenset[Place] = frozenset()
        self._topic_ids: dict[str, str] = {}

    def _run(self) -> None:
        while not self._left.wait(EVERY_S):
            try:
                self.look()
            except Exception:  # what merely watches must not end, whatever it meets
                log.error(
                    "observer failed",
                    operator_action="report it with this traceback; it goes on, and delivery too",
                    exc_info=True,
                )

    def look(self) -> None:
        """Look once."""
        health = self._health
        health.observe()
        self._history.tick(health.behind_ms)
        if self._probe is None:
            self._probe = self._make_probe()
        if health.is_broker_in_doubt:
            cause = self._probe.ask(PROBE_TIMEOUT_S)
            health.probed(cause)
            self._tell(cause)
        elif self._clock.monotonic_ms() - self._pinged_ms >= PING_EVERY_MS:
            self._pinged_ms = self._clock.monotonic_ms()
            if (cause := self._probe.ping(PROBE_TIMEOUT_S)) is not None:
                health.broker_is_silent(cause.words)
            else:
                self._tell_leaderless(self._probe.leaderless)
                self._tell_made_anew(self._probe.topic_ids)
                self._tell_unreadable(self._probe.missing, self._probe.closed)

    def _tell(self, cause: Cause | None) -> None:
        """The log, when it begins, when something else is in the way, and when it is over."""
        told, self._told = self._told, cause
        if cause is not None and (told is None or told.remedy != cause.remedy):
            log.warning("no broker answers", reason=cause.words, operator_action=cause.remedy)
        elif cause is None and told is not None:
            log.info("a broker answers again")

    def _tell_leaderless(self, leaderless: frozenset[Place]) -> None:
        """The log, of each partition that is read here when it begins; status, until it is over."""
        self._health.leaderless = leaderless
        before, self._leaderless = self._leaderless, leaderless & self._health.places
        for topic, partition in sorted(self._leaderless - before):
            log.warning(
                "partition without a leader",
                partition=f"{topic}-{partition}",
                operator_action="bring the broker back that holds it; until then nothing more is read of it",
            )

    def _tell_made_anew(self, ids: dict[str, str]) -> None:
        """The log, of each topic that is another one by now; the loop, which knows positions in the old one only."""
        before = {**self._health.topic_ids, **self._topic_ids}
        anew = [topic for topic, topic_id in ids.items() if before.get(topic, topic_id) != topic_id]
        self._topic_ids = {**before, **ids}
        for topic in sorted(anew):
            log.error(
                "topic made anew",
                topic=topic,
                operator_action="nothing, if what is in it comes out: it is read from its beginning, as Kafka has "
                "forgotten the progress. Partitions whose progress was committed once more meanwhile stop, which "
                "is told; stop all sidecars before you delete a topic",
            )
        if anew:
            self._health.topics_made_anew += 1

    def _tell_unreadable(self, missing: frozenset[str], closed: frozenset[str]) -> None:
        """The log, of each topic that was there, when it begins; status, until it is over."""
        unreadable = dict.fromkeys(missing & self._topic_ids.keys(), GONE) | dict.fromkeys(closed, CLOSED)
        before, self._health.unreadable = self._health.unreadable, unreadable
        for topic, cause in sorted(unreadable.items()):
            if before.get(topic) != cause:
                log.error("topic not readable", topic=topic, reason=cause.words, operator_action=cause.remedy)
