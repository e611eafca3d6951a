"""Looks after what no record tells of: whether Kafka answers an idle sidecar, and how the topics are configured.

In a thread of its own, with a client of its own, because the loop must not wait and a supervisor has no loop.
"""

import threading
from collections.abc import Callable
from types import TracebackType

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from sidecar.clients import admin_client
from sidecar.clock import Clock
from sidecar.errors import TimewheelError
from sidecar.health import Health
from sidecar.metrics import TopicMetrics, queue_label
from sidecar.settings import Settings
from sidecar.topic_plan import plan_topics
from sidecar.topics import Finding, check_topics

PING_EVERY_MS = 10_000
CHECK_TOPICS_EVERY_MS = 300_000
_TIMEOUT_S = 5.0
_STOP_TIMEOUT_S = 0.3

log = structlog.get_logger("timewheel.watch")


class ClusterWatch:
    """Asks from entering to leaving.

    Args:
        health: told whether Kafka answers; None: nobody wants to know.
        topics: told of the schedule topics' retention; None: somebody else looks after them.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        health: Health | None,
        topics: TopicMetrics | None,
        make_admin: Callable[[Settings], AdminClient] = admin_client,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._health = health
        self._topics = topics
        self._make_admin = make_admin
        self._findings: set[Finding] = set()
        self._checked_ms = -float(CHECK_TOPICS_EVERY_MS)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> "ClusterWatch":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        admin = self._make_admin(self._settings)
        while True:
            self.look(admin)
            if self._stop.wait(PING_EVERY_MS / 1000):
                return

    def look(self, admin: AdminClient) -> None:
        """Ask what is to be asked now."""
        if not self._answers(admin):
            return
        if self._topics is not None and self._clock.monotonic_ms() - self._checked_ms >= CHECK_TOPICS_EVERY_MS:
            try:
                self._check_topics(admin, self._topics)
            except (KafkaException, TimewheelError) as error:
                log.info("topics not checked", reason=str(error))
            else:
                self._checked_ms = self._clock.monotonic_ms()

    def _answers(self, admin: AdminClient) -> bool:
        began_ms, health = self._clock.monotonic_ms(), self._health
        topic = self._settings.topic_names.wheel
        try:
            # Describing a topic never makes a broker create it, as a metadata request may.
            admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)[topic].result()
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            if error.code() < 0:  # the client's own; what a broker says is an answer, too
                if health is not None:
                    health.broker_is_silent(error.str())
                return False
        # Others may have found it silent meanwhile: for them, too, it answers once they have not said so for long.
        if health is not None and began_ms - health.broker_error_ms >= PING_EVERY_MS:
            health.broker_answers()
        return True

    def _check_topics(self, admin: AdminClient, told: TopicMetrics) -> None:
        names = self._settings.topic_names
        schedule_topics = set(names.schedule_topics(self._settings.levels))
        plans = [plan for plan in plan_topics(self._settings) if plan.name in schedule_topics]
        resources = {plan.name: ConfigResource(ResourceType.TOPIC, plan.name) for plan in plans}
        answers = admin.describe_configs(list(resources.values()), request_timeout=_TIMEOUT_S)
        for plan in plans:
            try:
                retention_ms = int(answers[resources[plan.name]].result()["retention.ms"].value)
            except KafkaException:
                continue  # a finding says why
            queue = queue_label(names, plan.name)
            told.retention.labels(queue).set(retention_ms / 1000 if retention_ms >= 0 else float("inf"))
            told.retention_needed.labels(queue).set(int(plan.configs["retention.ms"]) / 1000)
        # What was wrong at the start has been told there.
        findings = set(check_topics(admin, self._settings))
        for finding in sorted(findings - self._findings) if self._checked_ms >= 0 else ():
            log.warning(
                "topic is not fit", topic=finding.topic, problem=finding.problem, operator_action=finding.remedy
            )
        self._findings = findings
