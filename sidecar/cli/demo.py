"""``timewheel demo``: a real Kafka, a sidecar, and records coming back on time before your eyes."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import typer
from confluent_kafka import Consumer, Message
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from connectors.contract import DelayLevels, Header, Headers, TopicNames
from connectors.durations import format_duration
from connectors.embedded import EmbeddedKafka, EmbeddedKafkaError
from connectors.embedded.ports import any_free
from connectors.producer import ScheduledProducer
from connectors.receipt import Receipt
from sidecar.errors import TimewheelError
from sidecar.settings import ENV_PREFIX

LEVELS = DelayLevels.parse("1s 3s 5s")
DESTINATION = "orders"
DEADLINE_S = 120.0
"""For a start, and for what is due within 5 s: a machine may have other things to do."""


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: timewheel demo")(demo)


def demo() -> None:
    """Start a real Kafka and the sidecar, schedule a few records, cancel one, and watch the others arrive on time."""
    console = Console(highlight=False)
    try:
        with tempfile.TemporaryDirectory(prefix="timewheel-demo-") as directory, EmbeddedKafka() as broker:
            console.print(f"[green]✓[/] Kafka is ready at [bold]{broker.bootstrap_servers}[/]")
            with running_sidecar(broker.bootstrap_servers, Path(directory)) as log_path:
                console.print("[green]✓[/] the sidecar is ready\n")
                _show(console, broker.bootstrap_servers, log_path)
    except EmbeddedKafkaError as error:
        raise TimewheelError(str(error)) from error


@contextmanager
def running_sidecar(bootstrap_servers: str, directory: Path) -> Iterator[Path]:
    """A sidecar of its own process, as users run it; the path of its log."""
    log_path = directory / "sidecar.log"
    http_port = any_free()
    command = [sys.executable, "-m", "sidecar", "run", "--bootstrap-servers", bootstrap_servers]
    command += ["--data-dir", str(directory / "data"), "--http-address", f"127.0.0.1:{http_port}"]
    command += ["--levels", " ".join(map(format_duration, LEVELS.delays_ms)), "--log-format", "json"]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log, env=_environment())
        try:
            _wait_until_ready(process, http_port, log_path)
            yield log_path
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:  # its stores are gone with the directory
                process.kill()
                process.wait()


def _environment() -> dict[str, str]:
    """Without the settings of another sidecar: what is shown here goes by the default names."""
    kept = "TIMEWHEEL_CACHE_DIR"
    return {name: value for name, value in os.environ.items() if name == kept or not name.startswith(ENV_PREFIX)}


def _wait_until_ready(process: subprocess.Popen[bytes], http_port: int, log_path: Path) -> None:
    def give_up(_: RetryCallState) -> None:
        raise TimewheelError(f"the sidecar was not ready within {DEADLINE_S:.0f} s; its log:\n{log_path.read_text()}")

    for attempt in Retrying(
        retry=retry_if_exception_type(httpx.HTTPError),
        wait=wait_fixed(0.05),
        stop=stop_after_delay(DEADLINE_S),
        retry_error_callback=give_up,
    ):
        with attempt:
            if process.poll() is not None:
                raise TimewheelError(f"the sidecar ended at once:\n{log_path.read_text()}")
            httpx.get(f"http://127.0.0.1:{http_port}/readyz", timeout=10, trust_env=False).raise_for_status()


def _show(console: Console, bootstrap_servers: str, log_path: Path) -> None:
    """Schedule, and print each record as it comes back."""
    names = TopicNames()
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(DESTINATION, 3, 1)])[DESTINATION].result()
    producer = ScheduledProducer({"bootstrap.servers": bootstrap_servers}, names=names, levels=LEVELS)
    console.print("[bold]Scheduling[/]")
    waiting, cancelled = _schedule(console, producer)
    console.print("\n[bold]Arriving[/]  (read_committed)")
    lateness_ms: list[int] = []
    rejected = 0
    for message, headers in _arrivals(bootstrap_servers, [DESTINATION, names.dead_letter("timewheel")]):
        uniq_key, name = headers[Header.UNIQ_KEY], (message.key() or b"").decode()
        if uniq_key == cancelled.id:
            raise TimewheelError(f"{name} was cancelled and delivered all the same")
        receipt = waiting.pop(uniq_key)
        if message.topic() == DESTINATION:
            arrived_ms = message.timestamp()[1]
            late_ms = arrived_ms - int(headers[Header.TIMER_OUT_MS])
            lateness_ms.append(late_ms)
            console.print(
                f"  [green]✓[/] {name} → {message.topic()}-{message.partition()}, "
                f"due {_clock(receipt.deliver_ms)}, arrived {_clock(arrived_ms)}, [bold]{late_ms} ms late[/]"
            )
        else:
            rejected += 1
            code, why = headers[Header.ERROR_CODE], headers[Header.ERROR_MESSAGE]
            console.print(f"  [yellow]![/] {name} → {message.topic()}: {code}, {why}")
        if not waiting:  # the last of them is due after the one that was cancelled
            break
    else:
        raise TimewheelError(
            f"{len(waiting)} records have not come back in time; the sidecar's log:\n{log_path.read_text()}"
        )
    early = sum(late_ms < 0 for late_ms in lateness_ms)
    console.print(
        f"\n{len(lateness_ms)} delivered, once each: {early} early, the latest {max(lateness_ms)} ms late. "
        f"1 was cancelled and did not come. {rejected} could not be delivered and was put aside with its reason. "
        "Nothing was lost."
    )


def _schedule(console: Console, producer: ScheduledProducer) -> tuple[dict[str, Receipt], Receipt]:
    """Schedule one record of each kind; the receipts of those that will come, by id, and of the cancelled one."""
    waiting: dict[str, Receipt] = {}

    def send(name: str, how: str, topic: str = DESTINATION, **when: Any) -> Receipt:
        receipt = producer.send(topic, f"{name} is unpaid", key=name, **when)
        waiting[receipt.id] = receipt
        console.print(f"  {name} → {topic}, {how}, due at {_clock(receipt.deliver_ms)}")
        return receipt

    for level in LEVELS:
        send(f"order-{level}", f"delay level {level} ({format_duration(LEVELS.delay_ms(level))})", level=level)
    send("order-4", "in 2s500ms", delay="2s500ms")
    send("order-5", "at a time", deliver_at=datetime.now(UTC) + timedelta(seconds=4.5))
    paid = send("order-6", "in 4s", delay="4s")
    send("stray", "delay level 1 (1s)", "no-such-topic", level=1)
    producer.cancel(paid)
    console.print("  order-6 is paid: cancelled")
    return waiting, waiting.pop(paid.id)


def _arrivals(bootstrap_servers: str, topics: list[str]) -> Iterator[tuple[Message, dict[str, str]]]:
    """What comes to these topics, with its headers, until the deadline."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "demo",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(topics)
    try:
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                yield message, _texts(message)
    finally:
        consumer.close()


def _texts(message: Message) -> dict[str, str]:
    headers: Headers = message.headers() or []  # type: ignore[assignment]
    return {name: (text or b"").decode() for name, text in headers}


def _clock(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%H:%M:%S.%f")[:-3]
