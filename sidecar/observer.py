"""Looks at the sidecar once a second, from a thread of its own: health and history go on while the loop waits."""

import threading
from collections.abc import Callable
from types import TracebackType

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sidecar.health import Health
from sidecar.history import History

EVERY_S = 1.0
PROBE_TIMEOUT_S = 1.0

log = structlog.get_logger("timewheel.observer")


class Observer:
    """A running thread, as a context manager.

    Args:
        make_admin: a client to ask with whether any broker answers; made when one comes into doubt.
    """

    def __init__(self, health: Health, history: History, make_admin: Callable[[], AdminClient]) -> None:
        self._health = health
        self._history = history
        self._make_admin = make_admin
        self._admin: AdminClient | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def __enter__(self) -> "Observer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(PROBE_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                self._look()
            except Exception:  # what merely watches must not end, whatever it meets
                log.error(
                    "observer failed",
                    operator_action="report it with this traceback; it goes on, and delivery too",
                    exc_info=True,
                )

    def _look(self) -> None:
        self._health.observe()
        self._history.tick(self._health.behind_ms)
        if self._health.is_broker_in_doubt:
            self._health.probed(self._probe())
        else:
            self._admin = None

    def _probe(self) -> str | None:
        """What is wrong with the brokers; None: one of them answers."""
        if self._admin is None:
            self._admin = self._make_admin()
        try:
            self._admin.list_topics(timeout=PROBE_TIMEOUT_S)
        except KafkaException as error:
            return str(error.args[0].str())
        return None
