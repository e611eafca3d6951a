"""The end of an audit's command that is told to end: one line, the shell's exit code, and no Java that stays behind.

An exception would not do. It comes up in the midst of a conversation with Java, of which py4j then complains at length;
and while Java starts, it leaves a process that nobody knows and that does not end.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOOK_S = 0.02
_PATIENCE_S = 10.0
_SILENT_WITHIN_S = 1.0


def end_on_signals() -> None:
    """From here on SIGTERM and SIGINT end this process and its Java; to be called before Spark is started."""
    pid = os.getpid()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: _begin_to_end(number, frame, pid))


def _begin_to_end(number: int, frame: FrameType | None, pid: int) -> None:
    if os.getpid() != pid:  # about to become Java
        os._exit(128 + number)
    for again in (signal.SIGTERM, signal.SIGINT):  # a second one would leave Java behind
        signal.signal(again, signal.SIG_IGN)
    os.write(2, f"timewheel: ended by {signal.Signals(number).name} before it was done; run it again\n".encode())
    signal.signal(signal.SIGALRM, lambda _, frame: _end(number, frame))
    _end(number, frame)


def _end(number: int, frame: FrameType | None) -> None:
    """Within the handler, so that what was interrupted does not go on; but for the moment in which Java is begun."""
    loaded = sys.modules.get("pyspark.core.context")
    launching = _launching(frame)
    if launching is not None:
        java = launching.f_locals.get("proc")
        if java is None:
            signal.setitimer(signal.ITIMER_REAL, _LOOK_S)
            return
        shutil.rmtree(launching.f_locals["conn_info_dir"], ignore_errors=True)
        _end_java(java, java.kill)  # a JVM that has only begun complains of anything else
    elif loaded is not None:
        java = getattr(loaded.SparkContext._gateway, "proc", None)  # spark-submit's ends by itself
        if java is not None:
            _silence(loaded.SparkContext._active_spark_context)
            _end_java(java, java.stdin.close)  # by which it removes its temporary files, and ends
    os._exit(128 + number)


def _launching(frame: FrameType | None) -> FrameType | None:
    """Where pyspark starts Java, and has yet to tell of the process."""
    while frame is not None and frame.f_code.co_name != "launch_gateway":
        frame = frame.f_back
    return frame


def _end_java(java: "subprocess.Popen[bytes]", ask: Callable[[], None]) -> None:
    ask()
    try:
        java.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


def _silence(context: "SparkContext | None") -> None:
    """Spark would tell where in Java the queries were that end with it."""

    def ask() -> None:
        with suppress(Exception):  # it has not begun, or is gone
            if context is not None:
                context.setLogLevel("OFF")

    asking = threading.Thread(target=ask, daemon=True)  # what this thread was saying to Java is not finished
    asking.start()
    asking.join(_SILENT_WITHIN_S)
