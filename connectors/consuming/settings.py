"""The settings of a `RetryingConsumer`, checked. Defaults are RocketMQ's."""

from dataclasses import dataclass
from datetime import timedelta

from connectors.consuming.message import MessageModel
from connectors.contract import TopicNames
from connectors.durations import DurationError, parse_duration_ms

MAX_RECONSUME_TIMES = 16
SUSPEND_MIN_MS, SUSPEND_MAX_MS = 10, 30_000
LOCAL_RETRY_MS = 5_000
"""After which a record that could not be sent back is handed to the listener again."""
COMMIT_EVERY_MS = 1_000
MAX_IN_FLIGHT = 1_000
"""Records of a partition that may be read and not done (``pullThresholdForQueue``); then it is paused."""
MAX_IN_FLIGHT_BYTES = 100 * 2**20
"""As `MAX_IN_FLIGHT`, for their size (``pullThresholdSizeForQueue``)."""

ENDLESS = 2**31 - 1
MOST_RECONSUME_TIMES = ENDLESS - 1
"""The sidecar rejects a record that says more; whoever means "always" may write ``Integer.MAX_VALUE``, or more."""


@dataclass(frozen=True)
class ConsumerSettings:
    """What does not go to librdkafka."""

    group: str
    topics: tuple[str, ...]
    names: TopicNames
    model: MessageModel
    is_orderly: bool
    concurrency: int
    max_reconsume_times: int
    consume_timeout_ms: int
    suspend_ms: int
    stop_timeout_ms: int
    max_in_flight: int
    max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES

    @property
    def retry_topic(self) -> str:
        return self.names.retry(self.group)

    @property
    def subscription(self) -> list[str]:
        """A broadcast record has nowhere to come back from."""
        is_retried = self.model is MessageModel.CLUSTERING
        return list(dict.fromkeys([*self.topics, self.retry_topic] if is_retried else self.topics))


def reconsume_limit(given: int | None, *, is_orderly: bool) -> int:
    """RocketMQ's defaults: 16, and in orderly mode for ever, because giving up breaks the order."""
    if given is None:
        return ENDLESS if is_orderly else MAX_RECONSUME_TIMES
    if given < 0:
        raise ValueError(f"max_reconsume_times is {given}; it is 0 or more, or None for the default")
    return min(given, MOST_RECONSUME_TIMES)


def duration_ms(name: str, given: timedelta | str) -> int:
    """Whole ms of a timedelta or of a text such as ``90s``."""
    if isinstance(given, timedelta):
        return max(0, given // timedelta(milliseconds=1))
    if not isinstance(given, str):
        raise ValueError(f"{name} is {given!r}; give a timedelta, or a text such as '90s' or '1h30m'")  # noqa: TRY004
    try:
        return parse_duration_ms(given)
    except DurationError as error:
        raise ValueError(f"{name}: {error}") from None


def within_suspend_limits(suspend_ms: int) -> int:
    """RocketMQ's limits of ``suspendCurrentQueueTimeMillis``."""
    return min(max(suspend_ms, SUSPEND_MIN_MS), SUSPEND_MAX_MS)
