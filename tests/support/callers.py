"""`CallThread` without a thread: when a transaction's calls are run."""

from collections.abc import Callable

from sidecar.dispatch.call_thread import Call


class InlineCaller:
    """Runs each call at once, in the caller's thread: a simulation is its own Kafka."""

    def __init__(self) -> None:
        self._failure: BaseException | None = None

    def submit(self, call: Call) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001
            self._failure = error

    def result(self, give_up: Callable[[], bool]) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        pass


class LateCaller:
    """Runs each call when its result is asked for: as late as the thread that does it in the field may."""

    def __init__(self) -> None:
        self._call: Call | None = None

    def submit(self, call: Call) -> None:
        self._call = call

    def result(self, give_up: Callable[[], bool]) -> None:
        call, self._call = self._call, None
        assert call is not None
        call()

    def close(self) -> None:
        pass
