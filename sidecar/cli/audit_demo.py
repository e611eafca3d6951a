"""``timewheel audit demo``: messages that arrive, three faults planted behind its back, and an audit of it all."""

import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from connectors.contract import Header
from connectors.durations import format_duration
from connectors.embedded import EmbeddedKafka, EmbeddedKafkaError
from connectors.producer import ScheduledProducer
from sidecar.cli.demo import LEVELS, running_sidecar
from sidecar.errors import TimewheelError
from spark.report import REPORT_HTML

DESTINATION = "orders"
MESSAGES = 300
DEADLINE_S = 60.0
AS_OF_LATER = timedelta(minutes=1)


def register(group: typer.Typer) -> None:
    group.command(epilog="Example: timewheel audit demo")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Where facts, verdicts and report are written.")] = Path("audit-demo"),
) -> None:
    """Start a real Kafka and the sidecar, plant three faults among what it delivers, and let the audit find them."""
    console = Console(highlight=False)
    try:
        with EmbeddedKafka() as broker, tempfile.TemporaryDirectory(prefix="timewheel-demo-") as directory:
            console.print(f"[green]✓[/] Kafka is ready at [bold]{broker.bootstrap_servers}[/]")
            with running_sidecar(broker.bootstrap_servers, Path(directory)):
                console.print("[green]✓[/] the sidecar is ready")
                _schedule(broker.bootstrap_servers)
                console.print(f"[green]✓[/] {MESSAGES} messages scheduled and delivered")
                _plant(broker.bootstrap_servers)
                console.print("[yellow]![/] planted: order-7 a second time, order-early long before it is due")
            _schedule_nobody_listening(broker.bootstrap_servers)
            console.print("[yellow]![/] planted: order-lost, scheduled when the sidecar had gone\n")
            _audit(broker.bootstrap_servers, out)
    except EmbeddedKafkaError as error:
        raise TimewheelError(str(error)) from error
    console.print(f"\nThe report: [bold]{(out / REPORT_HTML).resolve()}[/]")


def _schedule(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(DESTINATION, 3, 1)])[DESTINATION].result()
    producer = _producer(bootstrap_servers)
    for number in range(MESSAGES):
        name = f"order-{number}"
        if number % 3 == 0:
            producer.begin_send(DESTINATION, f"{name} is unpaid", level=1, key=name, headers=[(Header.UNIQ_KEY, name)])
        else:
            delay_ms = 500 + 10 * number
            producer.begin_send(
                DESTINATION, f"{name} is unpaid", delay_ms=delay_ms, key=name, headers=[(Header.UNIQ_KEY, name)]
            )
    producer.flush()
    _wait_for_arrivals(bootstrap_servers)


def _wait_for_arrivals(bootstrap_servers: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "audit-demo",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([DESTINATION])
    arrived = 0
    deadline = time.monotonic() + DEADLINE_S
    while arrived < MESSAGES and time.monotonic() < deadline:
        arrived += sum(message.error() is None for message in consumer.consume(500, 0.2))
    consumer.close()
    if arrived < MESSAGES:
        raise TimewheelError(f"{arrived} of {MESSAGES} messages have arrived within {DEADLINE_S:.0f} s")


def _plant(bootstrap_servers: str) -> None:
    """What no sidecar would write: a copy, and a message that is due in an hour."""
    producer = _producer(bootstrap_servers)
    producer.send(DESTINATION, "order-early is unpaid", delay="1h", headers=[(Header.UNIQ_KEY, "order-early")])
    bare = Producer({"bootstrap.servers": bootstrap_servers})
    for name in ("order-7", "order-early"):
        bare.produce(DESTINATION, f"{name} is unpaid", headers=[(Header.UNIQ_KEY.value, name)])
    bare.flush(DEADLINE_S)


def _schedule_nobody_listening(bootstrap_servers: str) -> None:
    producer = _producer(bootstrap_servers)
    producer.send(DESTINATION, "order-lost is unpaid", delay="1s", headers=[(Header.UNIQ_KEY, "order-lost")])


def _producer(bootstrap_servers: str) -> ScheduledProducer:
    return ScheduledProducer({"bootstrap.servers": bootstrap_servers}, levels=LEVELS)


def _audit(bootstrap_servers: str, out: Path) -> None:
    """As users run it; it ends with 1, for promises are broken."""
    as_of = (datetime.now(UTC) + AS_OF_LATER).isoformat(timespec="seconds")
    levels = " ".join(map(format_duration, LEVELS.delays_ms))
    arguments = ["--bootstrap-servers", bootstrap_servers, "--levels", levels, "--as-of", as_of, "--out", str(out)]
    print("timewheel audit batch", *arguments, file=sys.stderr, flush=True)
    ended = subprocess.run([sys.executable, "-m", "sidecar", "audit", "batch", *arguments], check=False)
    if ended.returncode != 1:
        raise TimewheelError(f"the audit has ended with {ended.returncode}, and three faults were planted")
