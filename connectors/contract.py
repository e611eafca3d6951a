"""The wire contract: the topics, headers and delay levels that producers, the sidecar, consumers and Spark share.

Names are RocketMQ's. Kafka forbids ``%`` in topic names, so each of RocketMQ's logical names has a physical one:

    logical (RocketMQ)             Kafka topic                   written by               read by
    SCHEDULE_TOPIC_XXXX queue n-1  SCHEDULE_TOPIC_XXXX-<n>       producers, the sidecar   sidecar, Spark
    rmq_sys_wheel_timer            SCHEDULE_TOPIC_XXXX-wheel     producers, the sidecar   sidecar, Spark
    CONSUMER_SEND_MSG_BACK         SCHEDULE_TOPIC_XXXX-sendback  consumers that failed    sidecar, Spark
    %RETRY%<group>                 RETRY-<group>                 sidecar                  the group, Spark
    %DLQ%<group>                   DLQ-<group>                   sidecar                  people, redrive, Spark

Two more belong to redriving dead letters: ``SCHEDULE_TOPIC_XXXX-redriven`` is the ledger of what has been redriven, and
``DLQ-<group>.parked`` takes what has been redriven too often. ``SCHEDULE_TOPIC_XXXX-idempotency`` is the HTTP API's
ledger of the Idempotency-Keys that have come. They are made when they are first needed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from connectors.durations import DurationError, parse_duration_ms

# RocketMQ's names, without a Kafka topic's restrictions.
LOGICAL_SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LOGICAL_WHEEL = "rmq_sys_wheel_timer"
LOGICAL_SEND_BACK = "CONSUMER_SEND_MSG_BACK"
LOGICAL_RETRY_PREFIX = "%RETRY%"
LOGICAL_DEAD_LETTER_PREFIX = "%DLQ%"

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

MAX_TOPIC_NAME_LENGTH = 249

Place = tuple[str, int]
"""A partition: its topic and its number there."""

Headers = list[tuple[str, bytes | None]]
"""Of a record, in order; names may repeat, values may be null."""

DEFAULT_MAX_RECONSUME_TIMES = 16
"""How often a message is retried where its consumer does not say."""

FIRST_RETRY_LEVEL = 3
"""The delay level of the first retry; each later one is a level further."""


class Header(StrEnum):
    """Record headers, UTF-8 text (RocketMQ's ``MessageConst``)."""

    REAL_TOPIC = "REAL_TOPIC"
    REAL_QID = "REAL_QID"
    DELAY = "DELAY"
    TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
    UNIQ_KEY = "UNIQ_KEY"
    TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
    TIMER_REPLACE_UNIQKEY = "TIMER_REPLACE_UNIQKEY"
    TAGS = "TAGS"
    KEYS = "KEYS"

    TIMER_OUT_MS = "TIMER_OUT_MS"
    TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
    TIMER_ORIGIN_OFFSET = "TIMER_ORIGIN_OFFSET"
    TIMER_ROLL_PROOF = "TIMER_ROLL_PROOF"
    TIMER_NOT_BEFORE_MS = "TIMER_NOT_BEFORE_MS"
    TIMER_ROLL_AFTER_MS = "TIMER_ROLL_AFTER_MS"
    TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"

    CONSUMER_GROUP = "CONSUMER_GROUP"
    RETRY_TOPIC = "RETRY_TOPIC"
    RECONSUME_TIME = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
    REDRIVE_COUNT = "REDRIVE_COUNT"

    ERROR_CODE = "ERROR_CODE"
    ERROR_MESSAGE = "ERROR_MESSAGE"
    ERROR_TOPIC = "ERROR_TOPIC"
    ERROR_PARTITION = "ERROR_PARTITION"
    ERROR_OFFSET = "ERROR_OFFSET"
    ERROR_OMITTED = "ERROR_OMITTED"


CONTROL_HEADERS = frozenset(
    map(
        str,
        (
            Header.REAL_TOPIC,
            Header.REAL_QID,
            Header.DELAY,
            Header.TIMER_DELAY_SEC,
            Header.TIMER_DELAY_MS,
            Header.TIMER_DELIVER_MS,
        ),
    )
)
"""Instructions to the sidecar; a delivered record does not carry them."""

CANCEL_HEADERS = frozenset(map(str, (Header.TIMER_DEL_UNIQKEY, Header.TIMER_REPLACE_UNIQKEY)))
"""Each names the pending message that its record takes back."""

GENERATED_HEADERS = frozenset(
    map(
        str,
        (
            Header.TIMER_OUT_MS,
            Header.TIMER_ROLL_TIMES,
            Header.TIMER_ORIGIN_OFFSET,
            Header.TIMER_ROLL_PROOF,
            Header.TIMER_NOT_BEFORE_MS,
            Header.TIMER_ROLL_AFTER_MS,
            Header.TIMER_ENQUEUE_MS,
            Header.TIMER_DEQUEUE_MS,
        ),
    )
)
"""Written by the sidecar alone; from other writers they are dropped."""

ERROR_HEADERS = frozenset(
    map(
        str,
        (
            Header.ERROR_CODE,
            Header.ERROR_MESSAGE,
            Header.ERROR_TOPIC,
            Header.ERROR_PARTITION,
            Header.ERROR_OFFSET,
            Header.ERROR_OMITTED,
        ),
    )
)
"""Why a record became a dead letter, and where it came from."""


class ErrorCode(StrEnum):
    """``ERROR_CODE`` of a rejected record: what was wrong with it."""

    UNREADABLE_HEADERS = "UNREADABLE_HEADERS"
    MISSING_REAL_TOPIC = "MISSING_REAL_TOPIC"
    ILLEGAL_REAL_TOPIC = "ILLEGAL_REAL_TOPIC"
    ILLEGAL_REAL_QID = "ILLEGAL_REAL_QID"
    NO_DELIVERY_TIME = "NO_DELIVERY_TIME"
    ILLEGAL_DELIVERY_TIME = "ILLEGAL_DELIVERY_TIME"
    DELAY_TOO_LONG = "DELAY_TOO_LONG"
    MISSING_UNIQ_KEY = "MISSING_UNIQ_KEY"
    NOT_CANCELLABLE = "NOT_CANCELLABLE"
    MISSING_CONSUMER_GROUP = "MISSING_CONSUMER_GROUP"
    ILLEGAL_CONSUMER_GROUP = "ILLEGAL_CONSUMER_GROUP"
    MISSING_RETRY_TOPIC = "MISSING_RETRY_TOPIC"
    ILLEGAL_RETRY_TOPIC = "ILLEGAL_RETRY_TOPIC"
    ILLEGAL_RECONSUME_TIMES = "ILLEGAL_RECONSUME_TIMES"
    TOO_MANY_GROUP_TOPICS = "TOO_MANY_GROUP_TOPICS"
    DESTINATION_NOT_ALLOWED = "DESTINATION_NOT_ALLOWED"
    UNKNOWN_DESTINATION = "UNKNOWN_DESTINATION"
    DESTINATION_REFUSED = "DESTINATION_REFUSED"
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"


# --- delay levels -----------------------------------------------------------------------------------------------------


class LevelsError(ValueError):
    """The delay levels cannot be parsed."""


@dataclass(frozen=True)
class DelayLevels:
    """The table of delay levels, counted from 1 (RocketMQ ``messageDelayLevel``).

    >>> levels = DelayLevels.parse("1s 5s 3h")
    >>> levels.delay_ms(3), levels.clamp(99)
    (10800000, 3)
    """

    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "DelayLevels":
        """Read blank-separated durations (RocketMQ ``ScheduleMessageService.parseDelayLevel``).

        Raises:
            LevelsError: names the token that is not a duration above zero.
        """
        delays_ms = []
        for number, token in enumerate(text.split(), start=1):
            try:
                delay_ms = parse_duration_ms(token)
            except DurationError:
                raise LevelsError(
                    f"level {number} is '{token}', which is not a duration; "
                    "write whole numbers with s, m, h or d between blanks, such as '1s 5s 3h'"
                ) from None
            if delay_ms == 0:
                raise LevelsError(f"level {number} is '{token}', which is not a delay; the shortest level is 1ms")
            delays_ms.append(delay_ms)
        if not delays_ms:
            raise LevelsError("there is no level; write at least one duration, such as '1s 5s 3h'")
        return cls(tuple(delays_ms))

    def __len__(self) -> int:
        return len(self.delays_ms)

    def __iter__(self) -> Iterator[int]:
        """Level numbers, 1 to the last."""
        return iter(range(1, len(self.delays_ms) + 1))

    def clamp(self, level: int) -> int:
        """The level itself, or the last one when it is beyond the table."""
        return min(level, len(self.delays_ms))

    def delay_ms(self, level: int) -> int:
        """The delay of a level (≥ 1), clamped to the last level."""
        if level < 1:
            raise LevelsError(f"level {level} does not exist; levels are counted from 1")
        return self.delays_ms[self.clamp(level) - 1]


def retry_level(reconsume_times: int, max_reconsume_times: int, delay_level: int, levels: DelayLevels) -> int | None:
    """The delay level on which a failed message waits for its next attempt; None: it is dead.

    RocketMQ's ``AbstractSendMessageProcessor.consumerSendMsgBack``.

    Args:
        reconsume_times: how often it has been retried so far.
        delay_level: the consumer's wish; 0: each retry a level further, below 0: no more attempts.
    """
    if delay_level < 0 or reconsume_times >= max_reconsume_times:
        return None
    return levels.clamp(delay_level or FIRST_RETRY_LEVEL + reconsume_times)


# --- topic names ------------------------------------------------------------------------------------------------------

_PARTITION_MAX = 2**31 - 1
_PARTITION_DIGITS_MAX = 10
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PLAIN_GROUP = re.compile(r"[a-zA-Z0-9._-]+")
_NUMBER = re.compile(r"[0-9]+")
_ENCODED_GROUP = "enc--"
_PARKED = ".parked"


def is_internal_topic(topic: str) -> bool:
    """Whether it is one of Kafka's own, such as ``__consumer_offsets``."""
    return topic.startswith("__")


def is_legal_topic_name(name: str) -> bool:
    """Whether Kafka could ever hold a topic of that name (``org.apache.kafka.common.internals.Topic``)."""
    return _LEGAL_TOPIC.fullmatch(name) is not None and name not in (".", "..")


def partition_named(qid: bytes | None) -> int | None:
    """The partition that a ``REAL_QID`` names; None where it is not the number of any."""
    if qid is None or not qid.isdigit() or len(qid) > _PARTITION_DIGITS_MAX or int(qid) > _PARTITION_MAX:
        return None
    return int(qid)


def encode_group(group: str) -> str:
    """A consumer group's id as a part of a topic name; `decode_group` gives it back.

    Ids that are legal in a topic name stand as they are. Others, and those that look encoded, become ``enc--`` and
    their text with every other byte as ``.HH``.

        >>> encode_group("orders"), encode_group("orders/eu")
        ('orders', 'enc--orders.2Feu')
    """
    if _PLAIN_GROUP.fullmatch(group) and not group.startswith(_ENCODED_GROUP):
        return group
    kept = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
    return _ENCODED_GROUP + "".join(chr(byte) if byte in kept else f".{byte:02X}" for byte in group.encode())


def decode_group(encoded: str) -> str:
    """The consumer group that `encode_group` wrote; a text that it never writes stands for itself."""
    if not encoded.startswith(_ENCODED_GROUP):
        return encoded
    try:
        raw = re.sub(
            rb"\.([0-9A-F]{2})",
            lambda match: bytes([int(match[1], 16)]),
            encoded.removeprefix(_ENCODED_GROUP).encode(),
        )
        group = raw.decode()
    except UnicodeDecodeError:
        return encoded
    return group if encode_group(group) == encoded else encoded


class TopicKind(StrEnum):
    """What a topic is to the sidecar."""

    LEVEL = "level"
    WHEEL = "wheel"
    SEND_BACK = "sendback"
    RETRY = "retry"
    DEAD_LETTER = "dead-letter"
    REDRIVEN = "redriven"
    IDEMPOTENCY = "idempotency"
    OTHER = "other"


SCHEDULE_KINDS = (TopicKind.LEVEL, TopicKind.WHEEL, TopicKind.SEND_BACK)
"""Those that the sidecar reads."""


@dataclass(frozen=True)
class TopicNames:
    """Logical names to physical ones and back, for one prefix and set of templates.

    >>> names = TopicNames()
    >>> names.level(3), names.physical("%RETRY%billing"), names.logical("DLQ-billing")
    ('SCHEDULE_TOPIC_XXXX-3', 'RETRY-billing', '%DLQ%billing')
    """

    prefix: str = ""
    """The setting ``topic_prefix``."""
    schedule_template: str = "SCHEDULE_TOPIC_XXXX-{queue}"
    """``schedule_topic_template``; the queue is a level's number, ``wheel`` or ``sendback``."""
    retry_template: str = "RETRY-{group}"
    """``retry_topic_template``."""
    dead_letter_template: str = "DLQ-{group}"
    """``dead_letter_topic_template``."""
    _schedule: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _retry: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _dead_letter: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, setting, template, slot in (
            ("_schedule", "schedule_topic_template", self.schedule_template, "{queue}"),
            ("_retry", "retry_topic_template", self.retry_template, "{group}"),
            ("_dead_letter", "dead_letter_topic_template", self.dead_letter_template, "{group}"),
        ):
            if template.count(slot) != 1:
                raise ValueError(f"{setting} is '{template}', which has to contain {slot} once")
            if not is_legal_topic_name(self.prefix + template.replace(slot, "x")):
                raise ValueError(
                    f"topic_prefix '{self.prefix}' and {setting} '{template}' make no legal Kafka topic name "
                    "(at most 249 letters, digits, '.', '_' and '-')"
                )
            head, tail = (self.prefix + template).split(slot)
            object.__setattr__(self, name, re.compile(f"{re.escape(head)}(.+){re.escape(tail)}"))
        self._check_told_apart()

    def _check_told_apart(self) -> None:
        """Raises ValueError when one topic name could be of two kinds."""
        for setting, template, pattern in (
            ("retry_topic_template", self.retry_template, self._retry),
            ("dead_letter_topic_template", self.dead_letter_template, self._dead_letter),
        ):
            if any(
                map(pattern.fullmatch, (self.level(1), self.wheel, self.send_back, self.redriven, self.idempotency))
            ):
                raise ValueError(
                    f"{setting} '{template}' and schedule_topic_template '{self.schedule_template}' make equal names"
                )
        retry, dead_letter = self.retry_template.split("{group}"), self.dead_letter_template.split("{group}")
        heads_overlap = retry[0].startswith(dead_letter[0]) or dead_letter[0].startswith(retry[0])
        tails_overlap = retry[1].endswith(dead_letter[1]) or dead_letter[1].endswith(retry[1])
        if heads_overlap and tails_overlap:
            raise ValueError(
                f"retry_topic_template '{self.retry_template}' and dead_letter_topic_template "
                f"'{self.dead_letter_template}' make equal names"
            )

    def level(self, level: int) -> str:
        """The topic whose records wait for this level's delay."""
        return self.prefix + self.schedule_template.replace("{queue}", str(level))

    @property
    def wheel(self) -> str:
        """The topic for any time."""
        return self.prefix + self.schedule_template.replace("{queue}", "wheel")

    @property
    def send_back(self) -> str:
        """The topic to which consumers send what has failed."""
        return self.prefix + self.schedule_template.replace("{queue}", "sendback")

    @property
    def redriven(self) -> str:
        """The ledger of redriven dead letters; see `connectors.dead_letters`."""
        return self.prefix + self.schedule_template.replace("{queue}", "redriven")

    @property
    def idempotency(self) -> str:
        """The ledger of Idempotency-Keys; see `sidecar.front.key_ledger`."""
        return self.prefix + self.schedule_template.replace("{queue}", "idempotency")

    def retry(self, group: str) -> str:
        """The topic to which a group's failed messages come back."""
        return self.prefix + self.retry_template.replace("{group}", encode_group(group))

    def dead_letter(self, group: str) -> str:
        """The topic of a group's dead letters."""
        return self.prefix + self.dead_letter_template.replace("{group}", encode_group(group))

    @staticmethod
    def parked_group(group: str) -> str:
        """The group whose dead letters are those that a group has had redriven too often."""
        return group + _PARKED

    @staticmethod
    def is_parked_group(group: str) -> bool:
        return group.endswith(_PARKED)

    def schedule_topics(self, levels: DelayLevels) -> list[str]:
        """Every topic the sidecar reads."""
        return [*map(self.level, levels), self.wheel, self.send_back]

    def kind(self, topic: str) -> TopicKind:
        """What a physical topic name is to the sidecar."""
        if match := self._schedule.fullmatch(topic):
            if match[1] == "wheel":
                return TopicKind.WHEEL
            if match[1] == "sendback":
                return TopicKind.SEND_BACK
            if match[1] == "redriven":
                return TopicKind.REDRIVEN
            if match[1] == "idempotency":
                return TopicKind.IDEMPOTENCY
            if _NUMBER.fullmatch(match[1]):
                return TopicKind.LEVEL
        if self._retry.fullmatch(topic):
            return TopicKind.RETRY
        if self._dead_letter.fullmatch(topic):
            return TopicKind.DEAD_LETTER
        return TopicKind.OTHER

    def is_group_topic(self, topic: str) -> bool:
        """Whether it is a retry or dead-letter topic."""
        return self.kind(topic) in (TopicKind.RETRY, TopicKind.DEAD_LETTER)

    def is_destination(self, topic: str) -> bool:
        """Whether messages can be scheduled for it: one of the application's, or a group's retries or dead letters."""
        is_own = self.kind(topic) is not TopicKind.OTHER and not self.is_group_topic(topic)
        return not (is_own or topic == LOGICAL_SCHEDULE or is_internal_topic(topic))

    def is_reserved(self, topic: str) -> bool:
        """Whether no message belongs there: one of our ledgers, or of Kafka's internal topics."""
        return is_internal_topic(topic) or self.kind(topic) in (TopicKind.REDRIVEN, TopicKind.IDEMPOTENCY)

    def group_of(self, topic: str) -> str | None:
        """The consumer group of a retry or dead-letter topic."""
        match = self._retry.fullmatch(topic) or self._dead_letter.fullmatch(topic)
        return decode_group(match[1]) if match else None

    def level_of(self, topic: str) -> int | None:
        """The level number of a level topic."""
        match = self._schedule.fullmatch(topic)
        return int(match[1]) if match and _NUMBER.fullmatch(match[1]) else None

    def physical(self, name: str) -> str:
        """The Kafka topic for a logical or a physical name. A prefix without a group names none, and stays as it is."""
        for prefix, of_group in ((LOGICAL_RETRY_PREFIX, self.retry), (LOGICAL_DEAD_LETTER_PREFIX, self.dead_letter)):
            if name.startswith(prefix) and name != prefix:
                return of_group(name.removeprefix(prefix))
        if name == LOGICAL_WHEEL:
            return self.wheel
        if name == LOGICAL_SEND_BACK:
            return self.send_back
        return name

    def physical_glob(self, glob: str) -> str:
        """A glob over physical names for one that may begin as RocketMQ's names do."""
        for prefix, template in (
            (LOGICAL_RETRY_PREFIX, self.retry_template),
            (LOGICAL_DEAD_LETTER_PREFIX, self.dead_letter_template),
        ):
            if glob.startswith(prefix):
                group = glob.removeprefix(prefix)
                named = group if re.search(r"[*?[]", group) else encode_group(group)
                return self.prefix + template.replace("{group}", named)
        return glob

    def logical(self, topic: str) -> str:
        """RocketMQ's name for a physical topic; level topics share one, by queue."""
        match self.kind(topic):
            case TopicKind.LEVEL:
                return LOGICAL_SCHEDULE
            case TopicKind.WHEEL:
                return LOGICAL_WHEEL
            case TopicKind.SEND_BACK:
                return LOGICAL_SEND_BACK
            case TopicKind.RETRY:
                return f"{LOGICAL_RETRY_PREFIX}{self.group_of(topic)}"
            case TopicKind.DEAD_LETTER:
                return f"{LOGICAL_DEAD_LETTER_PREFIX}{self.group_of(topic)}"
            case TopicKind.REDRIVEN | TopicKind.IDEMPOTENCY | TopicKind.OTHER:
                return topic
