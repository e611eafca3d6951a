"""Looks after what no record tells of: whether Kafka keeps what is scheduled for as long as it has to wait, and whether
somebody still writes to a level that is gone.

Every five minutes, in a thread of its own, with a client of its own, because the loop must not wait and a supervisor
has no loop. One process of a sidecar does so. Whether Kafka answers at all is for `sidecar.observer`.
"""

from collections.abc import Callable

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from sidecar.kafka.clients import admin_client
from sidecar.kafka.topic_plan import plan_topics
from sidecar.kafka.topics import Finding, all_findings
from sidecar.observability.metrics import TopicMetrics, queue_label
from sidecar.settings import Settings
from sidecar.watch_thread import WatchThread

CHECK_EVERY_S = 300.0
AGAIN_AFTER_S = 30.0
"""What could not be asked is asked again."""
_TIMEOUT_S = 5.0
_STOP_TIMEOUT_S = 0.3

log = structlog.get_logger("timewheel.watch")


class TopicWatch(WatchThread):
    """What the schedule topics are like, every five minutes.

    Args:
        told: of the schedule topics' retention.
    """

    def __init__(
        self, settings: Settings, told: TopicMetrics, make_admin: Callable[[Settings], AdminClient] = admin_client
    ) -> None:
        super().__init__("watch", _STOP_TIMEOUT_S)
        self._settings = settings
        self._told = told
        self._make_admin = make_admin
        self._findings: set[Finding] | None = None

    def _run(self) -> None:
        # A client each time: none that is not polled may wait for brokers that are away.
        while not self._left.wait(self.look()):
            pass

    def look(self) -> float:
        """Look once; after how many seconds to look again."""
        try:
            admin = self._make_admin(self._settings)
            self._tell_retention(admin)
            findings = set(all_findings(admin, self._settings))
        except Exception as error:  # noqa: BLE001  # what merely watches must not end, whatever it meets
            log.info("topics not checked", reason=str(error))
            return AGAIN_AFTER_S
        # What was wrong at the start has been told there.
        new = findings - self._findings if self._findings is not None else set()
        for finding in sorted(new):
            log.warning(
                "topic is not fit", topic=finding.topic, problem=finding.problem, operator_action=finding.remedy
            )
        self._findings = findings
        for is_fatal in (False, True):
            unfit = {each.topic for each in findings if each.fatal is is_fatal and not each.is_short_of_downtime}
            self._told.unfit.labels(str(is_fatal).lower()).set(len(unfit))
        return CHECK_EVERY_S

    def _tell_retention(self, admin: AdminClient) -> None:
        names = self._settings.topic_names
        schedule_topics = set(names.schedule_topics(self._settings.levels))
        plans = [plan for plan in plan_topics(self._settings) if plan.name in schedule_topics]
        resources = {plan.name: ConfigResource(ResourceType.TOPIC, plan.name) for plan in plans}
        answers = admin.describe_configs(list(resources.values()), request_timeout=_TIMEOUT_S)
        for plan in plans:
            try:
                retention_ms = int(answers[resources[plan.name]].result()["retention.ms"].value)
            except KafkaException as exception:
                if exception.args[0].code() < 0:  # the client's own: nobody answers
                    raise
                continue  # a finding says why
            queue = queue_label(names, plan.name)
            self._told.retention.labels(queue).set(retention_ms / 1000 if retention_ms >= 0 else float("inf"))
            self._told.retention_needed.labels(queue).set(int(plan.configs["retention.ms"]) / 1000)
