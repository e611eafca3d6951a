"""``timewheel run`` and ``timewheel config``."""

import json
from typing import Annotated

import structlog
import typer
import yaml

from sidecar.cli.options import with_settings
from sidecar.data_dir import left_over
from sidecar.observability.logs import configure_logging
from sidecar.settings import Settings, unknown_environment

log = structlog.get_logger("timewheel")


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example: timewheel run --bootstrap-servers localhost:9092 --data-dir /var/lib/timewheel",
    )(run)
    app.command(epilog="Example: timewheel config --config timewheel.yaml --json")(config)


@with_settings(logs=True)
def run(settings: Settings) -> None:
    """Run the sidecar until SIGTERM or Ctrl-C."""
    settings.check_listening()
    configure_logging(settings.log_format, settings.log_level, settings.secrets())
    for name, remedy in unknown_environment():
        log.warning(
            "environment variable names no setting",
            variable=name,
            operator_action=f"{remedy}; 'timewheel config' lists the settings",
        )
    if too_long := [level for level in settings.levels if settings.levels.delay_ms(level) > settings.max_delay]:
        log.warning(
            "levels longer than max_delay",
            levels=too_long,
            operator_action="raise max_delay or take these levels out; until then their records are rejected, and so "
            "are messages whose next retry would be on them",
        )
    if settings.disk_quota_bytes:
        from sidecar.store.timer_store import quota_bytes_min

        if settings.disk_quota_bytes < (least_bytes := quota_bytes_min(settings.slots_total)):
            log.warning(
                "disk_quota_bytes is too small",
                asked_bytes=settings.disk_quota_bytes,
                used_bytes=least_bytes,
                operator_action="make room for the larger figure, for each wheel partition: the wheel and two segments "
                "of each log; fewer slots_total take less",
            )
    for directory in left_over(settings.data_dir, settings.workers):
        log.info("directory not used", directory=str(directory), hint="of another number of workers; may be removed")
    # Imported by the process that needs it: the other commands start in half the time, and one process alone has no use
    # for 10 MB of supervisor.
    if settings.workers == 1:
        from sidecar.daemon import Daemon

        Daemon(settings).run()
    else:
        from sidecar.workers.supervisor import Supervisor

        Supervisor(settings).run()


@with_settings()
def config(settings: Settings, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print the resolved settings (flag > environment > file > default), secrets masked."""
    settings.check_listening()
    shown = settings.masked()
    typer.echo(json.dumps(shown, indent=2) if as_json else yaml.safe_dump(shown, sort_keys=False).rstrip())
