"""Messages of a real sidecar, and faults planted behind its back: what an audit has to find, and nothing else."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.support.command import timewheel, told
from tests.support.kafka import Headers, Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until
from tests.support.wheel import cancel, now_ms, timed

LEVELS = "1s 2s 3s"
HOUR_MS = 3_600_000


@dataclass
class Planted:
    """What was done, and what has to come of it."""

    kafka: Kafka
    prefix: str
    destination: str
    verdicts: Counter[str] = field(default_factory=Counter)
    faulty: dict[str, str] = field(default_factory=dict)
    """Id to verdict."""
    as_of: str = ""

    @property
    def arguments(self) -> list[str]:
        """Of every audit of it."""
        return ["--bootstrap-servers", self.kafka.bootstrap_servers, "--topic-prefix", self.prefix, "--levels", LEVELS]

    @property
    def rules(self) -> list[str]:
        return ["--as-of", self.as_of, "--grace", "2s", "--late-after", "20s", "--json"]

    def assert_found(self, report: dict[str, Any]) -> None:
        """The audit names exactly these."""
        assert {one["id"]: one["verdict"] for one in report["faulty"]} == self.faulty
        assert len(report["faulty"]) == len(self.faulty)
        assert {name: count for name, count in report["verdicts"].items() if count} == dict(self.verdicts)

    def expect(self, verdict: str, *names: str, count: int | None = None) -> None:
        self.verdicts[verdict] += len(names) if count is None else count
        if verdict in ("missing", "duplicate", "early", "cancel_ignored", "late"):
            self.faulty.update(dict.fromkeys(names, verdict))


@contextmanager
def planted_faults(kafka: Kafka, prefix: str, directory: Path) -> Iterator[Planted]:
    """A sidecar at work, a fault of every kind beside it; the sidecar is stopped when all is done."""
    planted = Planted(kafka, prefix, kafka.create_topic(f"{prefix}orders", 2))
    group = f"{prefix}timewheel"
    common = ["--bootstrap-servers", kafka.bootstrap_servers, "--topic-prefix", prefix, "--levels", LEVELS]
    assert timewheel("topics", "create", *common).returncode == 0
    _lose_and_delay(planted, [*common, "--group-id", group])
    settings = {"topic_prefix": prefix, "group_id": group, "levels": LEVELS, "roll_window": "3s"}
    with SidecarProcess(kafka.bootstrap_servers, directory, **settings) as sidecar:
        good = _schedule_good_ones(planted)
        _cancel_one_and_keep_one(planted)
        _write_odd_ones(planted)
        _fail_and_bury(planted)
        wait_until(lambda: _has_come(planted, good), "everything that is due has been delivered", 60)
        wait_until(lambda: kafka.lag(group, f"{prefix}SCHEDULE_TOPIC_XXXX-wheel") == 0, "the wheel topic is read", 30)
        _redrive(planted, common)
        _plant(planted)
        wait_until(lambda: sidecar.pending() == 3, "what is due in an hour waits, and nothing else", 30)
    planted.as_of = _iso(now_ms() + 60_000)
    yield planted


def _lose_and_delay(planted: Planted, common: list[str]) -> None:
    """Progress is put past two records before the sidecar ever sees them; one arrives by our own hand, too late."""
    level = f"{planted.prefix}SCHEDULE_TOPIC_XXXX-3"
    records: list[tuple[str, bytes | None, bytes | None, Headers]] = [
        (level, None, b"v", [("REAL_TOPIC", planted.destination.encode()), ("UNIQ_KEY", name)])
        for name in (b"lost", b"late")
    ]
    planted.kafka.produce(records)
    # A group that has committed somewhere has to have committed everywhere.
    goes_on = {"1": "beginning", "2": "beginning", "3": "end", "wheel": "beginning", "sendback": "beginning"}
    for queue, place in goes_on.items():
        where = ["--topic", f"{planted.prefix}SCHEDULE_TOPIC_XXXX-{queue}", "--partition", "0", "--to", place]
        ended = timewheel("progress", "set", *common, *where)
        assert ended.returncode == 0, ended.stderr
    _deliver(planted, "late", None, now_ms() + 33_000)
    planted.expect("missing", "lost")
    planted.expect("late", "late")


def _schedule_good_ones(planted: Planted) -> int:
    """Wheel and level records, one that rolls, one for each partition; how many arrive at the destination."""
    prefix, destination = planted.prefix, planted.destination
    names = [f"wheel-{number}" for number in range(40)]
    records = [timed(prefix, destination, name, ("TIMER_DELAY_MS", 300)) for name in names]
    records += [timed(prefix, destination, name, ("TIMER_DELAY_MS", 300)) for name in ("copied", "raced", "aborted")]
    records.append(timed(prefix, destination, "rolled", ("TIMER_DELAY_MS", 8_000)))
    level = f"{prefix}SCHEDULE_TOPIC_XXXX-1"
    real: tuple[str, bytes | None] = ("REAL_TOPIC", destination.encode())
    records += [(level, b"k", b"v", [real, ("UNIQ_KEY", b"level-%d" % number)]) for number in range(20)]
    planted.kafka.produce(records)
    planted.expect("on_time", *names, "aborted", "rolled", count=62)
    planted.expect("duplicate", "copied")
    planted.expect("cancelled_too_late", "raced")
    return 64


def _cancel_one_and_keep_one(planted: Planted) -> None:
    prefix, destination = planted.prefix, planted.destination
    hour = ("TIMER_DELAY_MS", HOUR_MS)
    names = ("cancelled", "pending", "early", "far")
    planted.kafka.produce([timed(prefix, destination, name, hour) for name in names])
    planted.kafka.produce([timed(prefix, destination, "ignored", ("TIMER_DELAY_MS", 20_000))])
    planted.kafka.produce([cancel(prefix, "cancelled"), cancel(prefix, "ignored")])
    planted.expect("cancelled", "cancelled")
    planted.expect("pending", "pending", "far")
    planted.expect("early", "early")
    planted.expect("cancel_ignored", "ignored")


def _write_odd_ones(planted: Planted) -> None:
    """Null, repeated and undecodable headers: the first three arrive, the others are rejected."""
    wheel = f"{planted.prefix}SCHEDULE_TOPIC_XXXX-wheel"
    real: tuple[str, bytes | None] = ("REAL_TOPIC", planted.destination.encode())
    soon: tuple[str, bytes | None] = ("TIMER_DELAY_MS", b"200")
    odd: list[Headers] = [
        [real, soon, ("UNIQ_KEY", None), ("TAGS", None), ("TAGS", b"\xff")],
        [("REAL_TOPIC", b"nowhere"), real, ("TIMER_DELAY_MS", b"never"), soon, ("UNIQ_KEY", b"1"), ("UNIQ_KEY", b"2")],
        [real, soon, ("UNIQ_KEY", b"\xc3\xff")],
        [soon, ("UNIQ_KEY", b"nowhere to go")],
        [real, ("UNIQ_KEY", b"never"), ("TIMER_DELAY_MS", None)],
        [("REAL_TOPIC", b"\xff"), soon],
        [("REAL_TOPIC", b"__consumer_offsets"), soon, ("UNIQ_KEY", b"Kafka's own")],
        [("REAL_TOPIC", f"{planted.prefix}no-such-topic".encode()), soon, ("UNIQ_KEY", b"unknown destination")],
    ]
    planted.kafka.produce((wheel, b"k", b"v", headers) for headers in odd)
    planted.expect("on_time", count=3)
    planted.expect("rejected", count=5)


def _fail_and_bury(planted: Planted) -> None:
    """A consumer fails one message, which comes again, and gives up another, which dies."""
    send_back = f"{planted.prefix}SCHEDULE_TOPIC_XXXX-sendback"
    common: Headers = [("CONSUMER_GROUP", b"billing"), ("RETRY_TOPIC", planted.destination.encode())]
    planted.kafka.produce(
        [
            (send_back, b"k", b"v", [*common, ("UNIQ_KEY", b"wheel-0"), ("DELAY", b"1")]),
            (send_back, b"k", b"v", [*common, ("UNIQ_KEY", b"wheel-1"), ("DELAY", b"-1")]),
        ]
    )
    planted.expect("on_time", count=2)


def _redrive(planted: Planted, common: list[str]) -> None:
    report = told("dlq", "redrive", "billing", *common[:4], "--json")
    assert report["redriven"] == 1


def _plant(planted: Planted) -> None:
    kafka, prefix = planted.kafka, planted.prefix
    kafka.produce([cancel(prefix, "raced")])
    copied = next(one for one in kafka.read([planted.destination], 60) if one.header("UNIQ_KEY") == b"copied")
    kafka.produce([(planted.destination, copied.key, copied.value, copied.headers)])
    _deliver(planted, "early", now_ms() + HOUR_MS, now_ms())
    _deliver(planted, "ignored", None, now_ms() + 30_000)
    producer = kafka.producer(transactional_id=f"{prefix}aborting")
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(planted.destination, b"v", headers=[("UNIQ_KEY", b"aborted")])
    producer.flush(10)
    producer.abort_transaction(10)


def _deliver(planted: Planted, name: str, due_ms: int | None, at_ms: int) -> None:
    """Write to the destination what a sidecar might have written at that time."""
    headers: Headers = [("UNIQ_KEY", name.encode())]
    if due_ms is not None:
        headers.append(("TIMER_OUT_MS", b"%d" % due_ms))
    producer: Producer = planted.kafka.producer()
    producer.produce(planted.destination, b"v", headers=headers, timestamp=at_ms)
    assert producer.flush(10) == 0


def _has_come(planted: Planted, good: int) -> bool:
    expected = good + 3 + 1  # the odd ones; the late one, which we have written ourselves
    kafka, prefix = planted.kafka, planted.prefix
    topics = kafka.topics()
    wanted = {f"{prefix}{name}" for name in ("RETRY-billing", "DLQ-billing", f"DLQ-{prefix}timewheel")}
    if not wanted <= topics:
        return False
    read = Counter(record.topic for record in kafka.read([planted.destination, *wanted], 0))
    arrived = read[planted.destination] >= expected
    return (
        arrived
        and read[f"{prefix}RETRY-billing"] == 1
        and read[f"{prefix}DLQ-billing"] == 1
        and (read[f"{prefix}DLQ-{prefix}timewheel"] == 5)
    )


def _iso(at_ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def parsed(text: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(text)
    return report
