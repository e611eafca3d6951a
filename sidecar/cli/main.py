"""The ``timewheel`` command. Exit codes: 0 done, 1 failed, 2 usage, 3 cannot reach Kafka, 4 data directory in use."""

import sys
from typing import Annotated

import typer

from sidecar.cli import ask, audit, cancel, demo, dlq, kafka, progress, roundtrip, run, send, store, topics
from sidecar.errors import TimewheelError
from sidecar.version import installed_version

app = typer.Typer(
    name="timewheel",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Delay levels, delivery at any time, retries and dead letters for Kafka, exactly once.",
    epilog="Try it: [bold]timewheel demo[/bold]",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"timewheel {installed_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


run.register(app)
demo.register(app)
kafka.register(app)
topics.register(app)
send.register(app)
cancel.register(app)
ask.register(app)
roundtrip.register(app)
progress.register(app)
dlq.register(app)
store.register(app)
audit.register(app)


def main() -> None:
    """Entry point: errors of ours become one sentence and their exit code."""
    try:
        app()
    except TimewheelError as error:
        for line in str(error).splitlines():
            typer.secho(f"timewheel: {line}", err=True, fg="red" if sys.stderr.isatty() else None)
        sys.exit(error.exit_code)
