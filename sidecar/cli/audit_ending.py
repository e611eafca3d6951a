"""The end of an audit's command that is told to end: one line, and the shell's exit code.

An exception would not do: it comes up in the midst of a conversation with Java, of which py4j then complains at length.
"""

import os
import signal
from types import FrameType


def end_on_signals() -> None:
    """From here on SIGTERM and SIGINT end this process, and with its standard input its Java."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    os.write(2, f"timewheel: ended by {signal.Signals(number).name} before it was done; run it again\n".encode())
    os._exit(128 + number)
