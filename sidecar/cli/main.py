"""The ``timewheel`` command. Exit codes: 0 done, 1 failed, 2 usage, 3 cannot reach Kafka, 4 data directory in use."""

import codecs
import json
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from types import FrameType
from typing import Annotated, NoReturn

import typer

from sidecar.cli.help_page import with_full_names
from sidecar.errors import TimewheelError, UsageError
from sidecar.version import installed_version

MODULE_OF = {
    "run": "run",
    "config": "run",
    "demo": "demo",
    "kafka": "kafka",
    "topics": "topics",
    "send": "send",
    "cancel": "cancel",
    "reschedule": "cancel",
    "pending": "ask",
    "status": "ask",
    "switch": "ask",
    "roundtrip": "roundtrip",
    "progress": "progress",
    "dlq": "dlq",
    "store": "store",
    "audit": "audit",
}
"""The commands, each with its module in `sidecar.cli`: the one that is called is imported, not all of them."""


def make_app(command: str | None = None) -> typer.Typer:
    """The command line.

    Args:
        command: the one that is going to be called; anything but a command: all of them.
    """
    app = typer.Typer(
        name="timewheel",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Delay levels, delivery at any time, retries and dead letters for Kafka, exactly once.",
        epilog="Try it: timewheel demo",
    )
    app.callback()(_root)
    modules = [MODULE_OF[command]] if command in MODULE_OF else dict.fromkeys(MODULE_OF.values())
    for module in modules:
        import_module(f"sidecar.cli.{module}").register(app)
    with_full_names(app)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"timewheel {installed_version()}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


def _end_before_it_began(number: int, _frame: FrameType | None) -> None:
    os.write(sys.stderr.fileno(), f"timewheel: {signal.Signals(number).name} before anything was begun\n".encode())
    os._exit(0)


def _end_in_order(number: int, _frame: FrameType | None) -> NoReturn:
    """By default a SIGTERM ends Python at once: what a command has begun would stay, such as the demo's processes."""
    sys.exit(128 + number)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """What the terminal's encoding has not, as JSON escapes it: what is printed as JSON stays that."""
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _print_whatever_there_is(stdout: object) -> None:
    """Keys, values and headers may hold any character, and not every terminal or pipe is for UTF-8."""
    if isinstance(stdout, TextIOWrapper) and codecs.lookup(stdout.encoding).name != "utf-8":
        codecs.register_error("timewheel-escaped", _escaped)
        stdout.reconfigure(errors="timewheel-escaped")


def main() -> None:
    """Entry point: errors of ours become one sentence and their exit code."""
    command = sys.argv[1] if len(sys.argv) > 1 else None
    _print_whatever_there_is(sys.stdout)
    signal.signal(signal.SIGTERM, _end_in_order)
    if command == "run":
        # Until the sidecar has handlers of its own. The first process of a container would not even notice a SIGTERM.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end_before_it_began)
    if sys.stdout is None and command != "run":
        _fail(UsageError("stdout is closed; let it go to a file, or to /dev/null"))
    try:
        make_app(command)()
    except TimewheelError as error:
        _fail(error)
    except OSError as error:
        if command == "run":
            raise
        _fail(TimewheelError(str(error)))
    except UnicodeEncodeError:
        if all(map(_is_text, sys.argv)):
            raise
        _fail(UsageError("an argument is not UTF-8 text; only values, keys and ids may be something else"))
    except Exception as error:
        from confluent_kafka import KafkaException  # not by commands that have no use for it

        from sidecar.kafka.failure import failure_of

        if command == "run" or not isinstance(error, KafkaException):  # the loop answers for its own
            raise
        _fail(failure_of(error))


def _fail(error: TimewheelError) -> NoReturn:
    with suppress(OSError, AttributeError):  # a full disk, or closed: the code tells
        for line in str(error).splitlines():
            typer.secho(f"timewheel: {line}", err=True, fg="red" if sys.stderr.isatty() else None)
    try:
        sys.stdout.flush()
    except (OSError, AttributeError):  # what cannot be written would be tried once more at the end, and spoil the code
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(error.exit_code)


def _is_text(argument: str) -> bool:
    """Whether it is not among those that Python could only read byte by byte."""
    return not any("\udc80" <= character <= "\udcff" for character in argument)
