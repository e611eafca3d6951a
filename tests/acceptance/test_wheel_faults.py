"""The wheel while what it stands on fails: the broker, the disk."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from connectors.embedded import EmbeddedKafka
from tests.support.kafka import Headers, Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.small_disk import FileSizeLimit, SmallDisk, mounted_disk
from tests.support.waiting import wait_until
from tests.support.wheel import cancel, is_drained, now_ms, timed

pytestmark = pytest.mark.kafka


@contextmanager
def readiness_watched(sidecar: SidecarProcess) -> Iterator[list[tuple[int, str]]]:
    """What ``/readyz`` answers while the body runs, asked all the time: status and body, as often as it changes."""
    answers: list[tuple[int, str]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            answer = sidecar.get("/readyz")
            if not answers or answer != answers[-1]:
                answers.append(answer)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield answers
    finally:
        over.set()
        watcher.join()


@pytest.mark.long
def test_a_broker_that_is_away_for_five_seconds_costs_nothing(prefix: str, sidecar: SidecarProcess) -> None:
    with EmbeddedKafka() as broker:
        kafka = Kafka(broker.bootstrap_servers)
        destination = kafka.create_topic(f"{prefix}orders", 3)
        sidecar.settings |= {"bootstrap_servers": broker.bootstrap_servers, "levels": "1s", "partitions": 2}
        sidecar.settings |= {"slots_total": 3_600, "roll_window": "4s", "batch_records": 500}
        sidecar.start()
        pid = sidecar.process.pid
        began_ms = now_ms()
        # Due before, while and after the broker is away; some roll meanwhile, some are cancelled before or after.
        names = [f"m{number}" for number in range(12_000)]
        kafka.produce(
            timed(prefix, destination, name, ("TIMER_DELIVER_MS", began_ms + 1_000 + 2 * number))
            for number, name in enumerate(names)
        )
        doomed = [f"doomed{number}" for number in range(200)]
        kafka.produce(timed(prefix, destination, name, ("TIMER_DELIVER_MS", began_ms + 40_000)) for name in doomed)
        kafka.produce(cancel(prefix, name) for name in doomed[:100])
        with readiness_watched(sidecar) as answers:
            wait_until(lambda: sidecar.metric("timewheel_delivered_records_total") > 500, "deliveries")
            broker.kill()
            away_ms = now_ms()
            wait_until(lambda: now_ms() - away_ms > 5_000, "five seconds without a broker")
            broker.restart()
            kafka.produce(cancel(prefix, name) for name in doomed[100:])
            delivered = kafka.read([destination], len(names), 60)
            wait_until(
                lambda: sidecar.metric("timewheel_cancels_total", outcome="cancelled") == len(doomed),
                "all cancelled",
                60,
            )
            wait_until(lambda: sidecar.pending() == 0, "nothing is pending", 60)
        judge(names, delivered).assert_exactly_once()
        judge(names, kafka.read([destination], len(names))).assert_exactly_once()
        assert {status for status, _ in answers} == {200}, answers
        assert sidecar.process.poll() is None
        assert sidecar.process.pid == pid


@pytest.fixture
def mounted(sidecar: SidecarProcess, tmp_path: Path) -> Iterator[SmallDisk]:
    """A small file system under the sidecar's directory; skipped where nobody may mount one, not in CI."""
    with mounted_disk(tmp_path / "mounted") as disk:
        if disk is None:
            message = "neither this user nor sudo may mount a file system"
            if os.environ.get("CI"):
                pytest.fail(f"{message}, and CI has to")
            pytest.skip(message)
        sidecar.settings["data_dir"] = tmp_path / "mounted" / "data"
        yield disk
        sidecar.__exit__(None, None, None)  # it has files open there


@pytest.fixture(params=["file size limit", "mounted"])
def small_disk(request: pytest.FixtureRequest, sidecar: SidecarProcess) -> SmallDisk:
    """A disk that can be filled: without any rights by a limit, and a real one."""
    if request.param == "file size limit":
        return FileSizeLimit(sidecar)
    disk: SmallDisk = request.getfixturevalue("mounted")
    return disk


@pytest.mark.slow
def test_a_full_disk_pauses_intake_and_nothing_else(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, small_disk: SmallDisk
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.settings |= {"levels": "1s", "slots_total": 3_600, "roll_window": "30m"}
    sidecar.start()

    def batch(name: str, count: int, when: tuple[str, int]) -> list[str]:
        names = [f"{name}{number}" for number in range(count)]
        kafka.produce(timed(prefix, destination, one, when, value=b"v" * 10_000) for one in names)
        return names

    # 1. Some are stored, a part of them cancelled, and the disk fills up.
    last_ms = now_ms() + 25_000
    stored = batch("stored", 500, ("TIMER_DELIVER_MS", now_ms() + 8_000))
    doomed = batch("doomed", 40, ("TIMER_DELIVER_MS", last_ms))
    kafka.produce(cancel(prefix, name) for name in doomed[:10])
    wait_until(lambda: sidecar.pending() == len(stored) + 30, "all are stored")
    small_disk.fill()
    # 2. Intake pauses, and says so.
    refused = batch("refused", 3_000, ("TIMER_DELIVER_MS", last_ms))
    at_once = batch("at once", 10, ("TIMER_DELAY_MS", 0))
    kafka.produce(cancel(prefix, name) for name in doomed[10:])
    paused = wait_until(
        lambda: [event for event in sidecar.events() if event["event"] == "wheel intake paused"], "intake pauses"
    )
    assert paused[0]["reason"] in (os.strerror(errno.ENOSPC), os.strerror(errno.EFBIG))
    wait_until(lambda: paused[0]["reason"] in sidecar.get("/readyz")[1], "the probe tells the reason")
    # 3. What is stored, and what needs no storing, goes out meanwhile.
    headers: Headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", b"level")]
    kafka.produce([(f"{prefix}SCHEDULE_TOPIC_XXXX-1", None, b"v", headers)])
    judge([*stored, "level"], kafka.read([destination], len(stored) + 1)).assert_exactly_once()
    assert sidecar.get("/healthz")[0] == 200
    # 4. There is room, and intake goes on by itself.
    small_disk.make_room()
    wait_until(lambda: sidecar.get("/readyz")[0] == 200, "the sidecar is ready again")
    names = [*stored, "level", *refused, *at_once]
    wait_until(lambda: is_drained(kafka, prefix, sidecar), "nothing is pending", 60, poll_s=0.5)
    judge(names, kafka.read([destination], len(names))).assert_exactly_once()
    assert sidecar.metric("timewheel_cancels_total", outcome="cancelled") == len(doomed)


@pytest.mark.long
def test_a_start_on_a_full_disk_does_what_needs_no_disk_and_the_rest_once_there_is_room(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess, mounted: SmallDisk
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.settings |= {"levels": "1s", "slots_total": 3_600, "roll_window": "30m"}
    sidecar.start()
    names = [f"m{number}" for number in range(500)]
    due_ms = now_ms() + 5_000
    kafka.produce(timed(prefix, destination, name, ("TIMER_DELIVER_MS", due_ms)) for name in names)
    wait_until(lambda: sidecar.pending() == len(names), "all are stored")
    assert sidecar.terminate()[0] == 0
    mounted.fill()
    sidecar.start(wait_ready=False)
    # The levels need no disk.
    headers: Headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", b"level")]
    kafka.produce([(f"{prefix}SCHEDULE_TOPIC_XXXX-1", None, b"v", headers)])
    wait_until(lambda: sidecar.metric("timewheel_delivered_records_total", queue="1") == 1, "the level delivers")
    wait_until(lambda: os.strerror(errno.ENOSPC) in sidecar.log_text(), "the log tells the reason")
    mounted.make_room()
    judge([*names, "level"], kafka.read([destination], len(names) + 1, 60)).assert_exactly_once()
    wait_until(lambda: sidecar.get("/readyz")[0] == 200, "the sidecar is ready")
