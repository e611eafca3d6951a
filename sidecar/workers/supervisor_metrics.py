"""What the supervisor itself tells Prometheus, beside its workers' metrics."""

from prometheus_client import CollectorRegistry, Counter, GCCollector, ProcessCollector

from sidecar.observability.metrics import TopicMetrics


class SupervisorMetrics:
    """In a registry of its own; its samples have no ``worker``, but where they are about one."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.restarts = Counter(
            "timewheel_worker_restarts", "Workers that ended and were restarted.", ["worker"], registry=registry
        )
        self.topics = TopicMetrics(registry)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
