"""``timewheel run`` and ``timewheel config``."""

import json
from typing import Annotated

import typer
import yaml

from sidecar.cli.options import with_settings
from sidecar.daemon import Daemon
from sidecar.logs import configure_logging
from sidecar.settings import Settings


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example: timewheel run --bootstrap-servers localhost:9092 --data-dir /var/lib/timewheel",
    )(run)
    app.command(epilog="Example: timewheel config --config timewheel.yaml --json")(config)


@with_settings()
def run(settings: Settings) -> None:
    """Run the sidecar until SIGTERM or Ctrl-C."""
    configure_logging(settings.log_format, settings.log_level)
    Daemon(settings).run()


@with_settings()
def config(settings: Settings, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print the resolved settings (flag > environment > file > default), secrets masked."""
    shown = settings.masked()
    typer.echo(json.dumps(shown, indent=2) if as_json else yaml.safe_dump(shown, sort_keys=False).rstrip())
