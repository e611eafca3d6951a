"""A command on a terminal of its own, as a person sees it."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from types import TracebackType

_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]|\r")

_HOME = b"\x1b[H"


class Terminal:
    """``timewheel ARGUMENTS`` with a terminal for its input and output, until the end of the ``with``."""

    def __init__(self, *arguments: str, rows: int = 30, columns: int = 100) -> None:
        self._arguments = arguments
        self._size = rows, columns
        self._shown = bytearray()

    def __enter__(self) -> "Terminal":
        self._master, slave = pty.openpty()
        self.resize(*self._size)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sidecar", *self._arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C reaches it as from a keyboard
            env={**os.environ, "TERM": "xterm-256color"},
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self._reader.join(5)
        os.close(self._master)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        """As from the keyboard; ``\\x03`` is Ctrl-C."""
        os.write(self._master, text.encode())

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        self.type("\x03")
        try:
            return self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            raise

    def forget(self) -> None:
        """What was shown so far is of no more interest."""
        self._shown.clear()

    @property
    def text(self) -> str:
        """All that has been shown since, one screen after the other, without colours and cursor movements."""
        return _plain(bytes(self._shown))

    @property
    def screens(self) -> list[str]:
        """The same, drawing by drawing: each begins with the cursor at home. The first and the last may be parts."""
        return [_plain(drawing) for drawing in bytes(self._shown).split(_HOME)]

    def _read(self) -> None:
        while True:
            try:
                read = os.read(self._master, 65_536)
            except OSError:  # the process has closed its end
                return
            if not read:
                return
            self._shown += read


def _plain(shown: bytes) -> str:
    return _CONTROL.sub(b"", shown).decode(errors="replace")
