"""Workers are started anew whatever ends them, and one that cannot be had ends no other."""

import asyncio

import pytest

from sidecar.settings import load_settings
from sidecar.workers import supervisor
from sidecar.workers.supervisor import Supervisor


class Starved:
    """A worker that cannot be started, twice; the third time it runs, and a stop is asked for."""

    number = 0

    def __init__(self, stop: asyncio.Event) -> None:
        self.tries = 0
        self._stop = stop

    async def run(self) -> int:
        self.tries += 1
        if self.tries < 3:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        self._stop.set()
        return 0


@pytest.mark.parametrize(("code", "words"), [(3, "exit code 3"), (-9, "SIGKILL"), (-35, "signal 35")])
def test_how_a_worker_ended_is_told(code: int, words: str) -> None:
    """Python has no name for most of the real-time signals."""
    assert supervisor._in_words(code) == words


def test_a_worker_that_cannot_be_had_is_tried_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "backoff_s", lambda _failures: 0.0)
    keeper = Supervisor(load_settings({"workers": "2"}))
    worker = Starved(keeper._stop)
    asyncio.run(keeper._keep(worker))  # type: ignore[arg-type]
    assert worker.tries == 3
