"""Intake and delivery stopped and started while the sidecar runs."""

import json
import signal
import time

import pytest

from tests.acceptance.test_levels import ids, scheduled
from tests.acceptance.test_wheel import cancel, timed
from tests.support.command import timewheel, told
from tests.support.kafka import Headers, Kafka, judge
from tests.support.sidecar import SidecarProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


def switch(sidecar: SidecarProcess, *options: str) -> dict[str, bool]:
    answer: dict[str, bool] = told("switch", "--http-address", str(sidecar.http_address), "--json", *options)
    return answer


def committed(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> int:
    """The committed offset of the wheel."""
    options = ["--bootstrap-servers", kafka.bootstrap_servers, "--group-id", str(sidecar.settings["group_id"])]
    shown = told("progress", "show", *options, "--topic-prefix", prefix, "--levels", "1s 2s 3s", "--json")
    return next(row["committed"] or 0 for row in shown["partitions"] if row["topic"].endswith("-wheel"))


@pytest.mark.long
def test_while_delivery_is_stopped_messages_are_taken_in_and_cancelled_and_none_goes_out(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.start()
    kafka.produce([timed(prefix, destination, "before", ("TIMER_DELAY_MS", 1))])
    kafka.read([destination], 1)
    assert switch(sidecar, "--stop-dequeue") == {"stop_enqueue": False, "stop_dequeue": True}
    assert json.loads(sidecar.get("/readyz")[1])["stop_dequeue"] is True
    assert sidecar.metric("timewheel_dequeue_stopped") == 1
    names = [f"w{number}" for number in range(300)]
    kafka.produce([timed(prefix, destination, name, ("TIMER_DELAY_MS", 2_000 + 5 * n)) for n, name in enumerate(names)])
    kafka.produce(scheduled(prefix, destination, 300))
    wait_until(lambda: sidecar.metric("timewheel_behind_seconds") > 2, "everything is overdue")
    # What fell due is stored, so that the committed offset moves on, and cancels that come now come in time.
    wait_until(lambda: committed(kafka, prefix, sidecar) >= 301, "what was taken in is committed")
    kafka.produce([cancel(prefix, name) for name in names[:100]])
    wait_until(lambda: sidecar.metric("timewheel_cancels_total", outcome="cancelled") == 100, "they are cancelled")
    assert sidecar.metric("timewheel_delivered_records_total") == 1
    assert len(kafka.read([destination], 1, committed=False)) == 1
    switch(sidecar, "--start-dequeue")
    delivered = kafka.read([destination], 501)
    judge(["before", *names[100:], *ids(300)], delivered).assert_exactly_once()
    wait_until(lambda: sidecar.metric("timewheel_behind_seconds") == 0, "nothing is overdue")


@pytest.mark.slow
def test_delivery_that_is_stopped_survives_kill_and_restart(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    sidecar.settings["stop_dequeue"] = True
    sidecar.start()
    names = [str(number) for number in range(200)]
    # Some were due before they were written, and a replacement and a rejected record can only go out.
    past_ms = time.time_ns() // 1_000_000 - 60_000
    when = [("TIMER_DELIVER_MS", past_ms), ("TIMER_DELAY_MS", 1)]
    batch = [timed(prefix, destination, name, when[n % 2]) for n, name in enumerate(names)]
    batch.append((f"{prefix}SCHEDULE_TOPIC_XXXX-wheel", b"k", b"bad", [("REAL_TOPIC", b"orders")]))
    replaced = timed(prefix, destination, "0", ("TIMER_DELAY_MS", 2))
    batch.append((*replaced[:2], b"new", [*replaced[3], ("TIMER_REPLACE_UNIQKEY", b"0")]))
    level: Headers = [("REAL_TOPIC", destination.encode()), ("UNIQ_KEY", b"level")]
    batch.append((f"{prefix}SCHEDULE_TOPIC_XXXX-1", None, b"v", level))
    kafka.produce(batch)
    for code in (-signal.SIGKILL, 0):
        wait_until(lambda: sidecar.metric("timewheel_ingested_records_total", queue="wheel") == 202, "all are read")
        wait_until(lambda: sidecar.metric("timewheel_behind_seconds") > 1, "they are overdue")
        assert sidecar.metric("timewheel_dequeue_stopped") == 1
        if code:
            sidecar.kill()
        else:
            sidecar.terminate()
        assert sidecar.process.returncode == code
        sidecar.start()
    wait_until(lambda: sidecar.metric("timewheel_behind_seconds") > 1, "they are overdue still")
    assert len(kafka.read([destination], 0, committed=False)) == 0
    sidecar.terminate()
    sidecar.settings["stop_dequeue"] = False
    sidecar.start()
    delivered = kafka.read([destination], 201)
    judge([*names, "level"], delivered).assert_exactly_once()
    assert [record.value for record in delivered if record.text("UNIQ_KEY") == "0"] == [b"new"]
    assert kafka.read([f"{prefix}DLQ-{sidecar.settings['group_id']}"], 1)[0].value == b"bad"


@pytest.mark.slow
def test_while_intake_is_stopped_nothing_is_read_and_what_was_read_is_delivered(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders", 3)
    # A member that does not poll for 6 s loses its partitions.
    sidecar.settings |= {"session_timeout": "6s", "kafka": "max.poll.interval.ms=6000"}
    sidecar.start()
    kafka.produce([timed(prefix, destination, "taken", ("TIMER_DELAY_MS", 3_000))])
    wait_until(lambda: sidecar.metric("timewheel_ingested_records_total", queue="wheel") == 1, "it is taken in")
    switch(sidecar, "--stop-enqueue")
    assert sidecar.metric("timewheel_enqueue_stopped") == 1
    assert [record.text("UNIQ_KEY") for record in kafka.read([destination], 1)] == ["taken"]
    kafka.produce([timed(prefix, destination, str(n), ("TIMER_DELAY_MS", 1)) for n in range(300, 600)])
    kafka.produce(scheduled(prefix, destination, 300))
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > 8, "longer than a member may be silent", 20, poll_s=0.5)
    assert sidecar.metric("timewheel_ingested_records_total") == 1
    assert sidecar.metric("timewheel_delivered_records_total") == 1
    assert sidecar.get("/readyz")[0] == 200
    assert [event for event in sidecar.events() if event["event"] in ("partitions lost", "partitions revoked")] == []
    assert switch(sidecar, "--start-enqueue") == {"stop_enqueue": False, "stop_dequeue": False}
    delivered = kafka.read([destination], 601)
    judge(["taken", *map(str, range(600))], delivered).assert_exactly_once()


@pytest.mark.long
def test_a_wheel_is_rebuilt_and_delivers_while_intake_is_stopped(
    kafka: Kafka, prefix: str, sidecar: SidecarProcess
) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.start()
    kafka.produce([timed(prefix, destination, str(n), ("TIMER_DELAY_MS", 4_000)) for n in range(100)])
    wait_until(lambda: committed(kafka, prefix, sidecar) >= 100, "they are committed")
    sidecar.kill()
    sidecar.settings["stop_enqueue"] = True
    sidecar.start()
    judge(map(str, range(100)), kafka.read([destination], 100)).assert_exactly_once()


@pytest.mark.long
def test_status_tells_in_words_and_as_json(kafka: Kafka, prefix: str, sidecar: SidecarProcess) -> None:
    destination = kafka.create_topic(f"{prefix}orders")
    sidecar.settings["partitions"] = 2
    sidecar.start()
    kafka.produce([timed(prefix, destination, str(n), ("TIMER_DELAY_SEC", 3_600)) for n in range(5)])
    kafka.produce([cancel(prefix, "0"), cancel(prefix, "nobody")])
    address = ["--http-address", str(sidecar.http_address)]
    wait_until(lambda: sidecar.metric("timewheel_cancels_total") == 2, "the cancels are decided")
    status = told("status", *address, "--json")
    assert (status["ready"], status["reasons"], status["stop_enqueue"]) == (True, [], False)
    assert status["cancels"] == {"cancelled": 1, "too_late": 0, "unknown": 1}
    assert status["pending"] == {"total": 4, "partitions": [0, 1]}
    assert status["partitions"] == {"assigned": 10, "stopped": 0}
    words = timewheel("status", *address).stdout
    assert words.splitlines()[0] == "ready"
    assert "pending:    4 on wheel partitions 0, 1" in words
    assert "cancels:    1 cancelled, 0 too_late, 1 unknown" in words
    switch(sidecar, "--stop-dequeue", "--stop-enqueue")
    words = timewheel("status", *address).stdout
    assert "intake:     stopped (stop_enqueue)" in words
    assert "delivery:   stopped (stop_dequeue)" in words
    kafka.produce(scheduled(prefix, destination, 3))
    switch(sidecar, "--start-enqueue")
    wait_until(lambda: told("status", *address, "--json")["waiting"]["1"] == 1, "what waits on level 1 is told")
