"""A few lines of shell that ends the broker when the process that started it is gone.

It reads a pipe whose other end only that process holds. The broker announces its process id over the same pipe before
it becomes Java, so there is no moment at which it runs unwatched. End of file means that the owner has closed the pipe
or has died, by SIGKILL included; then the watchdog kills the broker last announced, waits until it is gone, and removes
the directory it was given, if any. (Linux's parent death signal would follow the *thread* that started the broker, and
macOS has none.)

A child that the owner forks without exec (multiprocessing's `fork`) holds the pipe too: the broker then ends with the
last of them. Broker and watchdog have sessions of their own, so that a terminal's Ctrl-C reaches the owner only.
"""

import contextlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_WATCH = """
broker=none
while read -r line; do broker=$line; done
if [ "$broker" != none ]; then
    kill -KILL "$broker"
    tries=0
    while kill -0 "$broker" && [ $tries -lt 100 ]; do tries=$((tries + 1)); sleep 0.02; done
fi
[ -z "$1" ] || rm -rf "$1" || { sleep 0.2; rm -rf "$1"; }
"""
# stdout is the watchdog's pipe and stderr the log; Java gets the log for both.
_ANNOUNCE_AND_BECOME = 'echo "$$"; exec "$@" >&2'
_CLOSE_TIMEOUT_S = 30.0  # the removal of a large directory on a slow disk


class Watchdog:
    """Guards one broker after another, and one directory, for the life of its owner."""

    def __init__(self, doomed_dir: Path | None) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "timewheel-watchdog", str(doomed_dir or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def spawn(
        self, command: Sequence[str], *, env: Mapping[str, str], log: IO[bytes], cwd: Path, lock_descriptor: int
    ) -> "subprocess.Popen[bytes]":
        """Start a guarded process; stdout and stderr go to the log, the lock is held as long as it lives."""
        return subprocess.Popen(
            ["/bin/sh", "-c", _ANNOUNCE_AND_BECOME, "timewheel-broker", *command],
            stdin=subprocess.DEVNULL,
            stdout=self._pipe,
            stderr=log,
            env=env,
            cwd=cwd,
            pass_fds=[lock_descriptor],
            start_new_session=True,
        )

    def forget(self) -> None:
        """The guarded process has ended: its id may soon be another's."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.write(b"none\n")
            self._pipe.flush()

    def close(self) -> None:
        """Let go: what is still guarded is killed, the directory removed. Returns when both are done."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.close()
        try:
            self._process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def _pipe(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin
