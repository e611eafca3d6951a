"""The broker as an object: start, stop, kill, restart, suspend."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from connectors.clock import Deadline, SystemClock
from connectors.embedded import fencing, ports
from connectors.embedded.class_archive import ClassArchive
from connectors.embedded.data_dir import DataDir
from connectors.embedded.errors import BrokerFailedError, EmbeddedKafkaError, PortTakenError
from connectors.embedded.internal_topics import internal_topics
from connectors.embedded.jars import class_path
from connectors.embedded.java import find_java
from connectors.embedded.readiness import Readiness
from connectors.embedded.server_properties import with_defaults
from connectors.embedded.watchdog import Watchdog

_JVM_FLAGS = (
    # As Kafka's own start script sets them.
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    # No memory-mapped counters in /tmp: they are left behind by a SIGKILL.
    "-XX:-UsePerfData",
)
_LOG_FLAGS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    # Every property at each start: at `info`, hundreds of lines that hide the others.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
    # Warns at each stop of a client that it has closed before.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.NetworkClient=error",
)
_PORT_ATTEMPTS = 5
_SAME_PORT_TIMEOUT_S = 5.0
_RECORDING_STOP_TIMEOUT_S = 60.0
_TAIL_BYTES = 64 * 1024
_TAIL_LINES_IN_ERRORS = 30


class EmbeddedKafka:
    """A real Apache Kafka broker, KRaft, one node, on 127.0.0.1, as a child process of this one.

    `port`, `controller_port`: 0 takes any free one at each start.
    `data_dir`: kept, and used again by the next start; None takes a temporary directory that `stop` throws away.
    `server_properties`: on top of the defaults (which see: `connectors/embedded/server_properties.py`).
    `heap`: the JVM's largest heap, as Java writes it. `log_level`: `warn`, or `info` to see the broker at work.
    `start_timeout_s`, `stop_timeout_s`: after the first a start has failed, after the second a stop becomes a kill.

    A context manager. One thread at a time. The broker ends with this process, however that ends.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        data_dir: Path | None = None,
        server_properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        controller_port: int = 0,
        log_level: str = "warn",
        start_timeout_s: float = 60.0,
        stop_timeout_s: float = 20.0,
    ) -> None:
        self._asked_ports = (port, controller_port)
        self._asked_data_dir = data_dir
        self._server_properties = dict(server_properties or {})
        self._heap = heap
        self._log_level = log_level
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._ports: tuple[int, int] | None = None
        self._data: DataDir | None = None
        self._watchdog: Watchdog | None = None
        self._lock_descriptor: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_path: Path | None = None
        self._archive: ClassArchive | None = None
        self._recorded_archive: Path | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:<port>`. Raises `EmbeddedKafkaError` before the start and after the stop."""
        if self._ports is None:
            raise EmbeddedKafkaError("the embedded Kafka broker has not been started")
        return f"{ports.HOST}:{self._ports[0]}"

    @property
    def log_path(self) -> Path:
        """The broker's log; with a temporary directory it goes with `stop`, but outlives a start that failed."""
        if self._log_path is None:
            raise EmbeddedKafkaError("the embedded Kafka broker has not been started")
        return self._log_path

    @property
    def is_running(self) -> bool:
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        self._forget_pid()
        return False

    @property
    def pid(self) -> int | None:
        """The process id of the running broker's JVM."""
        return self._process.pid if self._process is not None and self.is_running else None

    def start(self) -> Self:
        """Fetch what is missing, format, start, and return when a client can use the broker.

        Raises `PortTakenError`, `DataDirError`, `JavaNotFoundError`, `MissingExtraError`, `JarFetchError`, or
        `BrokerFailedError` with the end of the log; nothing is left running then.
        """
        if self._process is not None:
            raise EmbeddedKafkaError("the embedded Kafka broker has been started already; stop() it first")
        find_java()
        class_path()
        try:
            self._open_data_dir()
            for attempt in range(1, _PORT_ATTEMPTS + 1):
                self._ports = self._choose_ports()
                try:
                    self._launch()
                    break
                except PortTakenError:
                    # Somebody was quicker to take the port that was free a moment ago.
                    if all(self._asked_ports) or attempt == _PORT_ATTEMPTS:
                        raise
        except BaseException as error:
            self._give_up(error)
            raise
        return self

    def stop(self) -> None:
        """End the broker cleanly (SIGTERM, then SIGKILL) and remove a temporary directory. Twice does no harm."""
        self._end_process()
        if self._watchdog is not None:
            self._watchdog.close()
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
        self._watchdog = self._lock_descriptor = self._data = self._ports = None

    def kill(self) -> None:
        """SIGKILL at once: no clean shutdown. Ports and data stay for `restart`."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def restart(self) -> None:
        """Stop cleanly, if running, and start again on the same ports and data. Raises what `start` does."""
        if self._data is None or self._ports is None:
            raise EmbeddedKafkaError("the embedded Kafka broker has not been started")
        self._end_process()
        try:
            _wait_until_free(self._ports)
            self._launch()
        except BaseException as error:
            self._give_up(error)
            raise

    def suspend(self) -> None:
        """SIGSTOP: the broker keeps its connections and answers nobody, as in a long pause of its machine."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: undo `suspend`."""
        self._signal(signal.SIGCONT)

    def wait(self, timeout_s: float | None = None) -> int:
        """Block until the broker's process ends; its exit code, negative for a signal. Raises `TimeoutError`."""
        if self._process is None:
            raise EmbeddedKafkaError("the embedded Kafka broker is not running")
        try:
            exit_code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the embedded Kafka broker still runs after {timeout_s} s") from None
        self._forget_pid()
        return exit_code

    def log_tail(self, lines: int = _TAIL_LINES_IN_ERRORS) -> str:
        """The last lines of the log."""
        return _tail(self.log_path, lines)

    def _open_data_dir(self) -> None:
        temporary = self._asked_data_dir is None
        root = Path(tempfile.mkdtemp(prefix="timewheel-kafka-")) if temporary else self._asked_data_dir
        assert root is not None
        # The watchdog comes first: from here on a temporary directory is not left behind, whatever happens.
        self._watchdog = Watchdog(root if temporary else None)
        self._data = DataDir(root.absolute())
        self._log_path = self._data.log_path
        self._data.adopt()
        self._lock_descriptor = self._data.lock()

    def _choose_ports(self) -> tuple[int, int]:
        for port in self._asked_ports:
            if port and not ports.is_free(port):
                raise PortTakenError(port)
        port = self._asked_ports[0] or ports.any_free(but=self._asked_ports[1])
        return port, self._asked_ports[1] or ports.any_free(but=port)

    def _launch(self) -> None:
        """Start the process on the chosen ports and wait until it is ready."""
        assert self._data is not None
        assert self._ports is not None
        port, controller_port = self._ports
        deadline = Deadline(SystemClock(), self._start_timeout_s)
        has_served = self._data.has_served
        self._data.prepare(port=port, controller_port=controller_port, overrides=self._server_properties)
        if has_served:
            self._fence(self._data, deadline)
        log_start = self._spawn(self._broker_command(self._data), self._data.log_path)
        readiness = Readiness(port, self._data.cluster_id, internal_topics(with_defaults(self._server_properties)))
        if readiness.wait(is_alive=lambda: self.is_running, deadline=deadline):
            return
        exit_code = self._exit_code()
        self.kill()
        raise self._failure(exit_code, log_start)

    def _fence(self, data: DataDir, deadline: Deadline) -> None:
        """Let the controller alone fence the broker of the last time; see `fencing`."""
        data.controller_log_path.unlink(missing_ok=True)
        self._spawn(self._controller_command(data), data.controller_log_path)
        is_fenced = fencing.wait_until_fenced(
            data.controller_log_path, is_alive=lambda: self.is_running, deadline=deadline
        )
        exit_code = self._exit_code()
        self.kill()  # what it has committed stays
        if not is_fenced:
            with data.log_path.open("ab") as log, data.controller_log_path.open("rb") as said:
                log_start = log.tell()
                shutil.copyfileobj(said, log)
            raise self._failure(exit_code, log_start)

    def _spawn(self, command: list[str], log_path: Path) -> int:
        """Start the process; where its part of the log begins."""
        assert self._data is not None
        assert self._watchdog is not None
        assert self._lock_descriptor is not None
        with log_path.open("ab") as log:
            log_start = log.tell()
            self._process = self._watchdog.spawn(
                command,
                env=os.environ | {"CLASSPATH": class_path()},
                log=log,
                cwd=self._data.root,
                lock_descriptor=self._lock_descriptor,
            )
        return log_start

    def _broker_command(self, data: DataDir) -> list[str]:
        java, jars = find_java(), class_path()
        self._archive = ClassArchive.of(java, jars)
        archive_flags = self._archive.flags_to_use()
        if not archive_flags:
            self._recorded_archive = data.tmp_dir / "classes.jsa"
            archive_flags = self._archive.flags_to_record(self._recorded_archive)
        flags = [*_JVM_FLAGS, *archive_flags, *_LOG_FLAGS, *self._own_flags(data)]
        return [str(java.path), *flags, "kafka.Kafka", str(data.properties_path)]

    def _controller_command(self, data: DataDir) -> list[str]:
        java = find_java()
        archive_flags = ClassArchive.of(java, class_path()).flags_to_use()
        flags = [*fencing.JVM_FLAGS, *archive_flags, *_LOG_FLAGS, fencing.LOG_FLAG, *self._own_flags(data)]
        return [str(java.path), *flags, "kafka.Kafka", str(data.fencing_properties_path)]

    def _own_flags(self, data: DataDir) -> list[str]:
        return [
            f"-Xmx{self._heap}",
            f"-Djava.io.tmpdir={data.tmp_dir}",
            f"-XX:ErrorFile={data.root}/hs_err_%p.log",
            f"-Dorg.slf4j.simpleLogger.defaultLogLevel={self._log_level}",
        ]

    def _exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def _failure(self, exit_code: int | None, log_start: int) -> EmbeddedKafkaError:
        assert self._ports is not None
        said = _tail(self.log_path, _TAIL_LINES_IN_ERRORS, start=log_start)
        if "Address already in use" in said:
            return PortTakenError(next((port for port in self._ports if not ports.is_free(port)), self._ports[0]))
        if exit_code is None:
            what = f"the embedded Kafka broker was not ready after {self._start_timeout_s:g} s"
        else:
            what = f"the embedded Kafka broker ended with code {exit_code} while it started"
        return BrokerFailedError(what, self.log_path, said)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or not self.is_running:
            raise EmbeddedKafkaError("the embedded Kafka broker is not running")
        self._process.send_signal(number)

    def _end_process(self) -> None:
        if self._process is None:
            return
        if self.is_running:
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)  # a suspended process takes SIGTERM only when it runs again
            # Recording the class archive, once, is part of the exit and takes seconds.
            timeout_s = _RECORDING_STOP_TIMEOUT_S if self._recorded_archive else self._stop_timeout_s
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
            else:
                if self._archive is not None and self._recorded_archive is not None:
                    self._archive.keep(self._recorded_archive)
        self._reap()

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._forget_pid()
        self._process = self._recorded_archive = None

    def _forget_pid(self) -> None:
        """The process has been waited for: its id is free for others, and must not be killed by the watchdog."""
        if self._watchdog is not None:
            self._watchdog.forget()

    def _give_up(self, error: BaseException) -> None:
        """After a start that failed: nothing keeps running, a temporary directory goes, the log of a failure stays."""
        self.kill()
        if isinstance(error, BrokerFailedError) and self._asked_data_dir is None:
            with tempfile.NamedTemporaryFile(prefix="timewheel-kafka-", suffix=".log", delete=False) as kept:
                kept.write(self.log_path.read_bytes())
            self._log_path = error.log_path = Path(kept.name)
        self.stop()


def _wait_until_free(needed: tuple[int, int]) -> None:
    deadline = Deadline(SystemClock(), _SAME_PORT_TIMEOUT_S)
    for port in needed:
        if not ports.wait_until_free(port, deadline):
            raise PortTakenError(port)


def _tail(path: Path, lines: int, start: int = 0) -> str:
    """The last lines of what stands in the file after the byte `start`."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start, size - _TAIL_BYTES))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""
