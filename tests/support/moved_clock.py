"""A process's wall clock to be moved while it runs; its monotonic clock goes on, as on a host whose clock is set.

By a small library of our own: libfaketime (0.9.10) lets the waits of librdkafka (`cnd_timedwait`) pass by, and its
threads spin as soon as the clock is behind.
"""

import mmap
import struct
import subprocess
from pathlib import Path

from tests.support.wheel import now_ms

_SOURCE = Path(__file__).with_suffix(".c")
_AHEAD_NS = struct.Struct("=q")


class MovedClock:
    """The clock of the processes that are started with `env`; at first it shows the right time.

    Args:
        cc: the C compiler.
        directory: for the library, and for a file that says by how much the clock is moved.
    """

    def __init__(self, cc: str, directory: Path) -> None:
        library, file = directory / "moved_clock.so", directory / "clock"
        subprocess.run([cc, "-shared", "-fPIC", "-O2", "-Wall", "-o", library, _SOURCE, "-ldl"], check=True)
        file.write_bytes(_AHEAD_NS.pack(0))
        with file.open("r+b") as opened:
            self._ahead = mmap.mmap(opened.fileno(), _AHEAD_NS.size)
        self._moves: list[tuple[int, int, int]] = []
        """Real ms just before and just after each move, and by how many ms it is ahead since."""
        self.move(0)
        self.env = {"LD_PRELOAD": str(library), "MOVED_CLOCK": str(file)}

    def move(self, ahead_s: int) -> None:
        """By so much more than the real time it shows from now on; a negative number puts it back."""
        before_ms = now_ms()
        self._ahead[:] = _AHEAD_NS.pack(ahead_s * 1_000_000_000)
        self._moves.append((before_ms, now_ms(), ahead_s * 1_000))

    def highest_ms(self, real_ms: int) -> int:
        """The highest time that it has shown until then."""
        ends_ms = [after_ms for _, after_ms, _ in self._moves[1:]] + [real_ms]
        shown = zip(self._moves, ends_ms, strict=True)
        return max(min(end_ms, real_ms) + ahead_ms for (from_ms, _, ahead_ms), end_ms in shown if from_ms <= real_ms)
