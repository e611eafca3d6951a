"""``timewheel run --workers N``: the process that starts the workers, keeps them running, and answers for them."""

import asyncio
import signal
from contextlib import closing, suppress
from typing import Any

import structlog

from sidecar.clock import SystemClock
from sidecar.data_dir import DataDir
from sidecar.errors import DataDirectoryError, StoppedWaitingError, TimewheelError, UsageError
from sidecar.front.app import make_front
from sidecar.front.kafka import FrontKafka
from sidecar.front.redrives import Jobs
from sidecar.kafka.backlog import Backlog
from sidecar.kafka.topic_watch import TopicWatch
from sidecar.kafka.topics import prepare_topics
from sidecar.settings import Settings
from sidecar.version import installed_version
from sidecar.web.events import Events
from sidecar.web.listening import listen
from sidecar.web.server import NICENESS, WebServer
from sidecar.workers.live import SeveralProcesses
from sidecar.workers.process import WorkerProcess
from sidecar.workers.relay import make_relay
from sidecar.workers.supervisor_metrics import SupervisorMetrics

FINAL_CODES = frozenset({UsageError.exit_code, DataDirectoryError.exit_code})
"""Exit codes of a worker that another start would not mend."""

LONG_LIFE_MS = 10_000
"""A worker that ended sooner than this has failed to start, and the next attempt waits longer."""

BACKOFF_MIN_S = 0.1
BACKOFF_MAX_S = 10.0

log = structlog.get_logger("timewheel")


class WorkerFailedError(TimewheelError):
    """A worker cannot go on, and another start would not mend it."""

    def __init__(self, number: int, exit_code: int) -> None:
        super().__init__(f"worker {number} cannot go on; its last line in the log says why")
        self.exit_code = exit_code


class Supervisor:
    """A sidecar of several processes, from start to stop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._switched: dict[str, Any] = {}
        self._workers = [
            WorkerProcess(number, settings.of_worker(number), self._switched)
            for number in range(1, settings.workers + 1)
        ]
        self._metrics = SupervisorMetrics()
        self._stop = asyncio.Event()
        self._failure: WorkerFailedError | None = None
        self._have_begun = False
        """Whether the workers have been started."""

    def run(self) -> None:
        """Run until SIGTERM or SIGINT arrives, or a worker cannot go on.

        Raises:
            UsageError, KafkaUnreachableError, TopicsError, DataDirectoryError, WorkerFailedError: see their exit codes.
        """
        settings = self._settings
        # 1. The directory first: the workers' directories stand in it, and their identities hang on it.
        with DataDir(settings.data_dir):
            # 2. HTTP before Kafka, so that probes see "starting" instead of a closed port.
            relay = make_relay(self._workers, self._metrics.registry, self._switched, lambda: self._have_begun)
            kafka = FrontKafka(settings)
            kafka.settle_earlier_life()
            live = SeveralProcesses(settings, self._workers, self._clock, Backlog(settings, self._clock))
            events, redrives = Events(live.status), Jobs()
            front = make_front(settings, relay, kafka, live, events, redrives)
            listener = listen(settings.http_host, settings.http_port)
            with WebServer(lambda: front, listener, NICENESS) as server, closing(events), closing(redrives):
                asyncio.run(self._supervise(server.address))
        if self._failure is not None:
            raise self._failure
        log.info("stopped")

    async def _supervise(self, http_address: str) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        log.info(
            "starting",
            version=installed_version(),
            bootstrap_servers=self._settings.bootstrap_servers,
            group_id=self._settings.group_id,
            identity=self._settings.identity,
            http_address=http_address,
            workers=self._settings.workers,
        )
        # 3. Topics: created or checked once, by nobody but us.
        with suppress(StoppedWaitingError):
            await asyncio.to_thread(prepare_topics, self._settings, self._stop.is_set)
        if self._stop.is_set():
            return
        self._have_begun = True
        # 4. The workers, each started anew as often as it ends, until told to stop; beside them, somebody who looks
        #    after the topics.
        with TopicWatch(self._settings, self._metrics.topics):
            async with asyncio.TaskGroup() as tasks:
                for worker in self._workers:
                    tasks.create_task(self._keep(worker))

    async def _keep(self, worker: WorkerProcess) -> None:
        """Start a worker, and again when it ends, until a stop is asked for or there is no sense in it."""
        failures = 0
        while not self._stop.is_set():
            began_ms = self._clock.monotonic_ms()
            code: int | None = None
            try:
                code = await worker.run()
                end = _in_words(code)
            except OSError as error:  # no memory, or as many processes or files as there may be: the others go on
                end = f"not started: {error}"
            if self._stop.is_set():
                return
            if code is not None and code in FINAL_CODES:
                self._failure = self._failure or WorkerFailedError(worker.number, code)
                self._stop_all()
                return
            lived_long = self._clock.monotonic_ms() - began_ms > LONG_LIFE_MS
            failures = 0 if lived_long else failures + 1
            delay_s = backoff_s(failures)
            self._metrics.restarts.labels(str(worker.number)).inc()
            log.warning(
                "worker ended",
                worker=worker.number,
                end=end,
                delay_s=delay_s,
                operator_action="nothing, if rare: it is started anew; else see its last lines, or the host's log",
            )
            await self._pause(delay_s)

    async def _pause(self, delay_s: float) -> None:
        """Wait, but for a stop no longer."""
        try:
            await asyncio.wait_for(self._stop.wait(), delay_s)
        except TimeoutError:
            return

    def _on_signal(self, number: signal.Signals) -> None:
        log.info("stopping", signal=number.name)
        self._stop_all()

    def _stop_all(self) -> None:
        self._stop.set()
        for worker in self._workers:
            worker.stop()


def backoff_s(failures: int) -> float:
    """How long to wait after so many attempts in a row that came to nothing."""
    return min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2.0 ** min(failures, 10))  # no float is as large as 2.0**1024


def _in_words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # Python has no names for real-time signals but the first and the last
        return f"signal {-code}"
