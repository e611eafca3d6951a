"""``timewheel run``: everything around the loop. Start, sessions with Kafka, signals, stop."""

import asyncio
import gc
import math
import signal
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

import structlog
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential

from connectors.extras import how_to_install
from connectors.receipt import Receipt
from sidecar.cancel_outcomes import CancelOutcomes
from sidecar.clock import HighWaterClock, SystemClock
from sidecar.data_dir import DataDir, allow_open_files
from sidecar.dispatch.batch_limit import BatchLimit
from sidecar.dispatch.wheel.time_counts import TimeCounts, Window
from sidecar.errors import ClientsLostError, FencedError, KafkaUnreachableError, StoppedWaitingError, UsageError
from sidecar.front.process import FrontProcess
from sidecar.garbage import IdleCollector, tame_collector
from sidecar.kafka.clients import connect
from sidecar.kafka.probe import Probe
from sidecar.kafka.topic_watch import TopicWatch
from sidecar.kafka.topics import prepare_topics
from sidecar.loop import Loop
from sidecar.observability.health import Health
from sidecar.observability.history import History
from sidecar.observability.metrics import Metrics, TopicMetrics
from sidecar.observer import Observer
from sidecar.pending import PendingAnswer, PendingMessage, PendingQuery, Questions
from sidecar.settings import Settings
from sidecar.status import Reporter
from sidecar.stop import Stop
from sidecar.switches import Switches
from sidecar.told import Told
from sidecar.version import installed_version
from sidecar.web.listening import address_of, listen
from sidecar.web.server import WebServer

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from sidecar.tracing import DeliverySpans

SHORT_SESSION_MS = 10_000
"""A session lost sooner than this is a failed attempt, and the next one waits longer."""

log = structlog.get_logger("timewheel")


class Daemon:
    """The sidecar from start to stop; or one of its workers.

    Args:
        listener: where a worker's supervisor asks it. The supervisor has prepared the topics, too.
    """

    def __init__(self, settings: Settings, listener: socket.socket | None = None) -> None:
        self._settings = settings
        self._listener = listener
        self._clock = HighWaterClock(SystemClock())
        self._metrics = Metrics(installed_version())
        self._collector = IdleCollector(self._clock)
        self._stop = Stop()
        self._has_told_stop = False
        self._questions = Questions()
        self._outcomes = CancelOutcomes(settings.topic_names.wheel)
        self._switches = Switches(settings.stop_enqueue, settings.stop_dequeue)
        self._batch_limit = BatchLimit(settings.batch_bytes)
        self._health = Health(self._clock, self._switches, identity=settings.identity)
        self._told = Told()
        self._metrics.enqueue_stopped.set_function(lambda: self._switches.stop_enqueue)
        self._metrics.dequeue_stopped.set_function(lambda: self._switches.stop_dequeue)
        self._metrics.observe_health(self._health)
        self._metrics.observe_disk(settings.data_dir)
        self._metrics.tell_config(settings.told_in_metrics())
        self._spans: DeliverySpans | None = None
        self._loop: Loop | None = None

    def stop(self) -> None:
        """Ask for a stop; `run` returns after the transaction in hand."""
        self._health.stopping = True
        self._stop.set()

    def run(self) -> None:
        """Run until `stop` is called, or SIGTERM or SIGINT arrives.

        Raises:
            UsageError, KafkaUnreachableError, TopicsError, DataDirectoryError: see their exit codes.
        """
        settings = self._settings
        self._handle_signals()
        tame_collector()
        allow_open_files()
        # 1. HTTP before all that takes time, so that probes see "starting" instead of a closed port; its process while
        #    there is nothing yet for it to inherit.
        try:
            listener, address, front = self._listen()
        except UsageError:
            with DataDir(settings.data_dir):  # the same sidecar started twice: then this is what is wrong
                raise
        # 2. The directory: two sidecars on one would share an identity.
        with DataDir(settings.data_dir):
            history = History(self._metrics, SystemClock())  # not the loop's clock, which counts its own steps
            observer = Observer(SystemClock(), self._health, history, lambda: Probe(settings))
            with (
                WebServer(lambda: self._make_app(history), listener) as server,
                front,
                closing(server),  # the two end together
                observer,
                self._tracing(),
            ):
                log.info(
                    "starting",
                    version=installed_version(),
                    bootstrap_servers=settings.bootstrap_servers,
                    group_id=settings.group_id,
                    identity=settings.identity,
                    http_address=address,
                )
                # 3. Topics: created or checked once; what is wrong with them is told before anything depends on it.
                if self._listener is None:
                    with suppress(StoppedWaitingError):
                        prepare_topics(settings, self._is_stopping)
                # 4. Sessions, one after another, until told to stop; beside them, somebody who looks after the topics.
                if not self._is_told_to_stop():
                    with self._topic_watch():
                        self._run_sessions()
        log.info("stopped")

    def _listen(self) -> tuple[socket.socket, str, AbstractContextManager[object]]:
        """Where we answer, the address that the world asks, and who answers that: our supervisor or a child of ours."""
        if self._listener is not None:
            return self._listener, address_of(self._listener), nullcontext()
        public, own = listen(self._settings.http_host, self._settings.http_port), listen("127.0.0.1", 0)
        front = FrontProcess(self._settings, public, own, self._stop.is_set)
        front.start()
        return own, address_of(public), front

    def _topic_watch(self) -> AbstractContextManager[object]:
        """A worker's supervisor does it."""
        if self._listener is not None:
            return nullcontext()
        return TopicWatch(self._settings, TopicMetrics(self._metrics.registry))

    @contextmanager
    def _tracing(self) -> Iterator[None]:
        """Spans of deliveries, where they are wanted.

        Raises:
            UsageError: they cannot be had.
        """
        if not self._settings.otel:
            yield
            return
        try:
            from sidecar.tracing import DeliverySpans, make_provider
        except ImportError as error:
            raise UsageError(
                f"otel: {error.name} is not installed; {how_to_install('otel')}, or set otel to false"
            ) from error
        provider = make_provider(self._settings.identity, installed_version())
        self._spans = DeliverySpans(provider, self._settings.topic_names, self._metrics.spans_dropped.inc)
        try:
            yield
        finally:
            self._spans.close()

    def _run_sessions(self) -> None:
        """Make clients and loop; when they are lost, make new ones and read the committed progress again."""

        def tell(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            log.warning(
                "no session with kafka",
                reason=str(error),
                attempt=state.attempt_number,
                operator_action=self._advice(
                    "check bootstrap_servers, the brokers, and the sidecar's rights; it is tried again"
                ),
            )

        def wait(delay_s: float) -> None:
            gc.collect()  # clients that were lost have threads and connections
            self._health.turned()
            self._stop.wait(delay_s)

        while not self._is_told_to_stop():
            for attempt in Retrying(
                retry=retry_if_exception_type((ClientsLostError, KafkaUnreachableError)),
                wait=wait_exponential(multiplier=0.05, max=5),
                sleep=wait,
                before_sleep=tell,
                reraise=True,
            ):
                with attempt:
                    if not self._stop.is_set():
                        self._run_session()
                        gc.collect()  # as in wait

    def _run_session(self) -> None:
        """One set of clients, from the first to the last turn.

        Raises:
            ClientsLostError, KafkaUnreachableError: lost at once; after a longer session the loss is logged, and the
                next may begin.
        """
        began_ms = self._clock.monotonic_ms()
        try:
            self._health.phase = "connects to Kafka; what an earlier life left open is settled first"
            clients = connect(self._settings, self._clock, self._is_stopping, self._health.broker_is_silent)
            self._health.phase = "waits for the group to assign its partitions"
            try:
                self._loop = Loop(
                    self._settings,
                    clients,
                    self._clock,
                    self._health,
                    self._metrics,
                    questions=self._questions,
                    outcomes=self._outcomes,
                    switches=self._switches,
                    spans=self._spans,
                    told=self._told,
                    batch_limit=self._batch_limit,
                )
                self._loop.run(self._is_told_to_stop)
            finally:
                self._loop = None
                self._health.session_ended()
                clients.close()
        except StoppedWaitingError as error:
            log.warning(
                "stopped while kafka does not answer",
                reason=str(error),
                operator_action="nothing: the next start settles the transaction that is open",
            )
        except (ClientsLostError, KafkaUnreachableError) as error:
            self._metrics.client_restarts.inc()
            self._health.broker_is_silent(str(error))
            self._batch_limit.failed()
            if isinstance(error, FencedError):
                self._health.was_fenced()
            if self._clock.monotonic_ms() - began_ms < SHORT_SESSION_MS:
                raise
            log.warning(
                "kafka clients lost",
                reason=str(error),
                operator_action=self._advice(
                    "nothing, if rare: new ones begin at the committed progress; else check the brokers"
                ),
            )

    def _advice(self, otherwise: str) -> str:
        """What an operator should do about clients that were lost."""
        rival = self._health.rival
        return otherwise if rival is None else f"{rival.words}: {rival.remedy}"

    async def _ask(self, query: PendingQuery) -> dict[str, Any]:
        """What is pending, as the API tells it; topics go by either of their names."""
        if query.topic is not None:
            query = query._replace(topic=self._settings.topic_names.physical(query.topic))

        def question() -> Generator[None, None, tuple[PendingAnswer, list[int]]]:
            return (yield from self._loop.pending(query)) if self._loop is not None else (PendingAnswer(0, []), [])

        answer, partitions = await asyncio.wrap_future(self._questions.ask(question))
        messages = [
            {**message._asdict(), "id": message.shown_id, "receipt": self._receipt(message)}
            for message in answer.messages
        ]
        following = None if answer.next is None else str(answer.next)
        return {"total": answer.total, "messages": messages, "partitions": partitions, "next": following}

    def _receipt(self, message: PendingMessage) -> str | None:
        """None: the id is no text, and one that looks like it may be another message's."""
        if not message.has_text_id:
            return None
        return Receipt(
            schedule_topic=self._outcomes.topic,
            partition=message.partition,
            offset=message.offset,
            id=message.id,
            topic=message.topic,
            deliver_ms=message.deliver_ms,
        ).encode()

    async def _ask_wheel(self, window: Window) -> tuple[TimeCounts, list[int]]:
        """What waits when."""

        def question() -> Generator[None, None, tuple[TimeCounts, list[int]]]:
            if self._loop is None:
                return TimeCounts(0, 0, [0] * window.buckets), []
            return (yield from self._loop.count_by_time(window))

        return await asyncio.wrap_future(self._questions.ask(question))

    def _make_app(self, history: History) -> "ASGIApp":
        """What answers the process that serves HTTP, or the supervisor."""
        from sidecar.web.app import make_app
        from sidecar.web.guard import Guard
        from sidecar.web.live import OneProcess

        settings, version = self._settings, installed_version()
        token = settings.http_token.get_secret_value() if settings.http_token else None
        reporter = Reporter(
            version, settings.group_id, self._health, self._metrics, self._switches, self._told, history
        )
        live = OneProcess(settings, SystemClock(), reporter, history, self._ask_wheel)
        app = make_app(self._health, self._metrics, version, self._switches, self._outcomes, self._ask, live)
        return Guard(app, token)

    def _is_stopping(self) -> bool:
        """Asked while a call to Kafka waits: the loop is alive, and may be told to stop."""
        self._health.waits()
        self._collector.collect_when_idle(math.inf)  # an outage may be long, and the loop does not turn meanwhile
        return self._is_told_to_stop()

    def _is_told_to_stop(self) -> bool:
        if not self._stop.is_set():
            return False
        if self._stop.signal is not None and not self._has_told_stop:
            self._has_told_stop = True
            log.info("stopping", signal=self._stop.signal.name)
        return True

    def _handle_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return

        def on_signal(number: int, _frame: FrameType | None) -> None:
            # Logged by whoever sees it: the line that this has interrupted may hold the log's locks.
            self._stop.signal = signal.Signals(number)
            self.stop()

        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)
