"""What comes from Kafka, on a terminal: without commands to it, and through a pager where it does not fit."""

import os
import pydoc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from io import StringIO

from rich.console import Console
from rich.text import Text

WIDTH_UNSEEN = 200
"""Columns where nobody looks: a file or another program, which wants whole lines."""

_CONTROL = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}


_IN_A_LINE = _CONTROL | {ord("\n"): "\\x0a", ord("\t"): "\\x09"}


def one_line(text: str) -> str:
    """What comes from Kafka, in a line that it cannot end; nothing in it is a command to the terminal."""
    return text.translate(_IN_A_LINE)


def plain(text: str) -> Text:
    """What comes from Kafka, as it is: no markup, and nothing that the terminal would take for a command."""
    return Text(text.translate(_CONTROL))


def moment(at_ms: int, zone: tzinfo | None = None) -> str:
    """A time in a zone, or in this machine's; as a number where no calendar has it: producers write what they like."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


@contextmanager
def paged() -> Iterator[Console]:
    """A console to print to; shown at the end, a page at a time where it is longer than the terminal is high.

    $PAGER is asked first, as git does; ``less`` leaves short lines and colours as they are.
    """
    if not sys.stdout.isatty():
        yield Console(width=WIDTH_UNSEEN, soft_wrap=False)
        return
    terminal = Console()
    text = StringIO()
    yield Console(file=text, force_terminal=True, width=terminal.width, color_system="auto")
    shown = text.getvalue()
    if shown.count("\n") < terminal.height:
        sys.stdout.write(shown)
        return
    os.environ.setdefault("LESS", "FRX")
    pydoc.pager(shown)
