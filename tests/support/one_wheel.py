"""One wheel partition by itself, on a real file system: records in, transactions out, no Kafka."""

from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import Message

from connectors.contract import TopicNames
from sidecar.dispatch.outages import Outages
from sidecar.dispatch.wheel.partition import WheelPartition, WheelSettings
from sidecar.intake.copies import Copies
from sidecar.intake.parse import Parser
from sidecar.intake.parse_wheel import WheelParser
from sidecar.intake.progress import Start
from sidecar.plan import Plan
from sidecar.records import Outgoing
from sidecar.store.files import RealFileSystem
from sidecar.store.recovery import Owner
from tests.support.outages import no_outages

WHEEL = "SCHEDULE_TOPIC_XXXX-wheel"
NOW_MS = 1_700_000_000_000
PLAN = Plan(roll_window_ms=100_000_000, precision_ms=1_000, max_delay_ms=10**10, levels="1s 5s")
AT_HAND_BYTES = 32 * 2**20
COPIES = Copies(b"key")
REAL_TOPIC = ("REAL_TOPIC", b"orders")


def opened(
    directory: Path,
    offset: int = 0,
    metadata: str = "",
    end: int = 0,
    *,
    now_ms: int = NOW_MS,
    plan: Plan = PLAN,
    slots: int = 200_000,
    outages: Outages | None = None,
    tell_outcomes: Callable[[Mapping[int, str], int], None] = lambda _outcomes, _committed: None,
    quota_bytes: int | None = None,
    monotonic_ms: Callable[[], float] | None = None,
    topic_id: str = "topic",
) -> WheelPartition:
    """From the committed offset and metadata, with the log's end."""
    return WheelPartition(
        WHEEL,
        0,
        start=Start(offset, metadata, end),
        settings=WheelSettings(plan, slots, quota_bytes, 50_000, AT_HAND_BYTES, directory),
        parser=WheelParser(Parser(TopicNames()), WHEEL, 0, COPIES),
        copies=COPIES,
        outages=no_outages() if outages is None else outages,
        owner=Owner("cluster", topic_id, "group", 0, f"{slots} of {plan.precision_ms} ms"),
        fs=RealFileSystem(),
        now_ms=now_ms,
        tell_outcomes=tell_outcomes,
        monotonic_ms=monotonic_ms,
    )


def message(
    offset: int, *headers: tuple[str, bytes | None], timestamp_ms: int = NOW_MS, value: bytes = b"v"
) -> Message:
    """A record of the wheel topic."""
    return Message(
        topic=WHEEL,
        partition=0,
        offset=offset,
        key=b"k",
        value=value,
        headers=list(headers),  # type: ignore[arg-type]
        timestamp=(2, timestamp_ms),
    )


def due(
    offset: int, due_ms: int, *, timestamp_ms: int = NOW_MS, value: bytes = b"v", uniq_key: bytes | None = None
) -> Message:
    """One for ``orders``."""
    headers = [REAL_TOPIC, ("TIMER_DELIVER_MS", b"%d" % due_ms)]
    if uniq_key is not None:
        headers.append(("UNIQ_KEY", uniq_key))
    return message(offset, *headers, timestamp_ms=timestamp_ms, value=value)


def sent(wheel: WheelPartition, now_ms: int, most: int = 5_000) -> tuple[list[Outgoing], tuple[int, str]]:
    """One transaction: what it holds, and the progress that is committed with it."""
    records = wheel.take(now_ms, most, 16 * 2**20)
    progress = wheel.progress
    wheel.confirm()
    return records, progress


def replaced_while_it_rolls(directory: Path) -> tuple[list[Message], tuple[int, str]]:
    """A process has read a replacement (b) of a message (a) whose roll copy is on its way, and ends.

    The log, which is the message, the replacement and the copy; and the progress that it has committed.
    """
    wheel = opened(directory)
    rolling = due(0, NOW_MS + PLAN.roll_window_ms, timestamp_ms=NOW_MS - PLAN.roll_window_ms, uniq_key=b"a")
    names = ("UNIQ_KEY", b"b"), ("TIMER_REPLACE_UNIQKEY", b"a"), ("TIMER_DELAY_MS", b"5000")
    replacing = message(1, REAL_TOPIC, *names)
    wheel.offer([rolling], NOW_MS)
    (copy,), _ = sent(wheel, NOW_MS)
    wheel.offer([replacing], NOW_MS)
    _, progress = sent(wheel, NOW_MS)
    return [rolling, replacing, message(2, *copy[4])], progress


def ticks(wheel: WheelPartition, now_ms: int) -> None:
    """So many that the whole wheel has been looked at: a tick looks at a part of it."""
    for _ in range(20):
        wheel.tick(now_ms)
