"""Records for the wheel topic, as producers write them. Their key is their id, so that a cancel finds its partition."""

import time

from tests.support.kafka import Headers, Kafka
from tests.support.sidecar import SidecarProcess

Produced = tuple[str, bytes | None, bytes | None, Headers]
"""Topic, key, value, headers."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def wheel_topic(prefix: str) -> str:
    return f"{prefix}SCHEDULE_TOPIC_XXXX-wheel"


def timed(prefix: str, destination: str, name: str, *when: tuple[str, int], value: bytes = b"v" * 100) -> Produced:
    """A record for ``destination`` with an id, and when it is due (``("TIMER_DELAY_MS", 500)``)."""
    headers: Headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", name.encode())]
    headers += [(header, b"%d" % number) for header, number in when]
    return wheel_topic(prefix), name.encode(), value, headers


def cancel(prefix: str, name: str, *more: tuple[str, bytes]) -> Produced:
    """A record that cancels the pending message of that id; ``more`` is a hint or a destination."""
    return wheel_topic(prefix), name.encode(), None, [("TIMER_DEL_UNIQKEY", name.encode()), *more]


def replacement(prefix: str, destination: str, name: str, *when: tuple[str, int], value: bytes) -> Produced:
    """A record that takes the place of the pending message of the same id."""
    topic, key, value_, headers = timed(prefix, destination, name, *when, value=value)
    return topic, key, value_, [*headers, ("TIMER_REPLACE_UNIQKEY", name.encode())]


def is_drained(kafka: Kafka, prefix: str, *sidecars: SidecarProcess) -> bool:
    """Everything on the wheel topic is read and committed by the sidecars' group, and nothing waits in them."""
    lag = kafka.lag(str(sidecars[0].settings["group_id"]), wheel_topic(prefix))
    return lag == 0 and all(sidecar.pending() == 0 for sidecar in sidecars)
