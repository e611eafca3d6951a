"""``timewheel kafka``: the embedded real Kafka alone."""

import json
import signal
from pathlib import Path
from typing import Annotated

import typer

from connectors.embedded import EmbeddedKafka, EmbeddedKafkaError
from connectors.embedded.errors import DataDirError
from sidecar.errors import DataDirectoryError, TimewheelError
from sidecar.stop import Stop


def register(app: typer.Typer) -> None:
    app.command(name="kafka", epilog="Example: timewheel kafka --port 9092 --data-dir ./kafka-data")(kafka)


def kafka(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port to listen on; 0: any free one.")] = 9092,
    data_dir: Annotated[
        Path | None, typer.Option(help="Keep the data here; without it, it is thrown away at the end.", readable=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Run a real Kafka (KRaft, one node) on this machine until Ctrl-C; prints its bootstrap address when ready."""
    stop = Stop()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with EmbeddedKafka(port=port, data_dir=data_dir) as broker:
            address = broker.bootstrap_servers
            typer.echo(json.dumps({"bootstrap_servers": address}) if as_json else address)
            while not stop.wait(0.2):
                if not broker.is_running:
                    raise TimewheelError(f"Kafka ended by itself; its log: {broker.log_path}\n{broker.log_tail(20)}")
    except DataDirError as error:
        raise DataDirectoryError(str(error)) from error
    except EmbeddedKafkaError as error:
        raise TimewheelError(str(error)) from error
