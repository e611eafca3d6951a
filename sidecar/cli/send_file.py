"""``timewheel send --file``: one JSON object a line in, one receipt a line out, without waiting for each.

The main thread reads lines and hands their records to the producer. Another serves Kafka's answers and prints, so that
a receipt is not held up by an input that pauses. It alone does: Ctrl-C is raised wherever the main thread is, and in a
delivery report it would take another line's answer along. Between them stands a window of lines in their order,
bounded, so that memory is, too.
"""

import codecs
import json
import os
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol

import typer
from confluent_kafka import KafkaError, KafkaException
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from connectors.producer import OnReceipt, ScheduledProducer, ScheduleError
from connectors.receipt import Receipt
from sidecar.cli.scheduling import not_taken, refused_as_too_far, stdin
from sidecar.errors import KafkaUnreachableError, TimewheelError, UsageError
from sidecar.schedule_request import ScheduleRequest, faults
from sidecar.settings import Settings

LINE_MAX_BYTES = 16 * 2**20
"""The longest line: more than any record that Kafka takes."""

WINDOW_LINES = 10_000
"""Lines that are read and not yet answered for."""

_POLL_S = 0.1
_FAULT_MAX_CHARACTERS = 500


def send_lines(settings: Settings, producer: ScheduledProducer, file: BinaryIO) -> None:
    """Schedule each line.

    Raises:
        TimewheelError: some lines have not been scheduled.
        KafkaUnreachableError: Kafka does not answer any more.
    """
    with _report(_size_bytes(file)) as report:
        answers = Answers(producer.poll, report)
        with answers:
            for number, line in numbered_lines(file):
                if answers.is_kafka_silent:
                    break
                begin(settings, producer, line, answers.expect(number, len(line)), answers.wait_for_turn)
    if answers.is_kafka_silent:
        raise KafkaUnreachableError(
            f"Kafka answers no more: whether the lines that are reported are scheduled is not known; "
            f"what follows line {answers.number} has not been read"
        )
    if report.bad:
        raise TimewheelError(f"not scheduled: {report.bad} of {report.bad + report.good} lines")


def numbered_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, with their numbers; of one that is too long, as much as shows that."""
    number = 0
    while line := file.readline(LINE_MAX_BYTES + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        rest = line
        while len(rest) > LINE_MAX_BYTES and not rest.endswith(b"\n"):
            rest = file.readline(LINE_MAX_BYTES + 1)
        if line.strip():
            yield number, line


class Line:
    """A line that has been read: Kafka's answer, or why Kafka was not asked."""

    __slots__ = ("answer", "is_begun", "number", "size_bytes")

    def __init__(self, number: int, size_bytes: int) -> None:
        self.number = number
        self.size_bytes = size_bytes
        self.is_begun = False
        """Whether its record is with the producer, which answers it."""
        self.answer: Receipt | KafkaError | str | None = None

    def set(self, answer: Receipt | KafkaError | str) -> None:
        self.answer = answer


def begin(
    settings: Settings, producer: ScheduledProducer, text: bytes, line: Line, wait_for_turn: Callable[[], None]
) -> None:
    """Hand a line's record to the producer, or note what is wrong with it.

    Args:
        wait_for_turn: waits until answers have been served, which makes room in the producer's queue.
    """
    if len(text) > LINE_MAX_BYTES:
        line.answer = f"is longer than {LINE_MAX_BYTES} bytes"
        return
    try:
        request = ScheduleRequest.model_validate_json(text)
        if told := refused_as_too_far(settings, deliver_at=request.deliver_at, delay_ms=request.delay_ms):
            line.answer = f"{'delay' if request.deliver_at is None else 'deliver_at'} {told}"
            return
        while not _is_taken(producer, request, line.set):
            wait_for_turn()
        line.is_begun = True
    except ValidationError as error:
        line.answer = "; ".join(faults(error))
    except ScheduleError as error:
        line.answer = str(error)
    except KafkaException as error:
        line.answer = error.args[0]


def _is_taken(producer: ScheduledProducer, request: ScheduleRequest, on_receipt: OnReceipt) -> bool:
    """Begin to schedule, if there is room."""
    try:
        producer.begin_send(
            request.topic,
            request.payload,
            on_receipt,
            deliver_at=request.deliver_at,
            delay_ms=request.delay_ms,
            level=request.level,
            key=request.key_bytes,
            headers=request.headers,
            wait_for_room=False,
        )
    except KafkaException as error:
        if error.args[0].code() == KafkaError._QUEUE_FULL:
            return False
        raise
    return True


class Report(Protocol):
    """Where the answers go."""

    def tell(self, lines: list[Line]) -> None:
        """Lines that have been answered, in order."""


class Answers:
    """The window of lines, and the thread that serves their answers, as a context manager.

    Leaving it waits for what is out, also on an interrupt: no record that Kafka has is left without a receipt. Where
    receipts can be printed no more, no further line is read, and how many are scheduled without one is told.
    """

    def __init__(self, poll: Callable[[float], int], report: Report) -> None:
        self._poll = poll
        self._report = report
        self._lines: deque[Line] = deque()
        self._last: Line | None = None
        self._room = threading.Semaphore(WINDOW_LINES)
        self._all_read = threading.Event()
        self._turn_ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="answers", daemon=True)
        self.number = 0
        """The number of the last line that was read."""
        self.is_kafka_silent = False
        self._untold: list[int] = []
        """Lines that are scheduled, and whose receipt could not be printed."""

    def __enter__(self) -> "Answers":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._answer_interrupted()
        self._all_read.set()
        self._thread.join()
        if isinstance(self._failure, OSError):
            raise TimewheelError(self._in_words(self._failure)) from self._failure
        if self._failure is not None:
            raise self._failure

    def _in_words(self, failure: OSError) -> str:
        if not self._untold:
            return f"receipts cannot be printed: {failure.strerror}; each that is scheduled has its own"
        many = f"{self._untold[0]} to {self._untold[-1]}" if len(self._untold) > 1 else f"{self._untold[0]}"
        return (
            f"receipts cannot be printed: {failure.strerror}; {len(self._untold)} of the lines {many} are scheduled "
            f"and may lack theirs, and what follows line {self.number} has not been read"
        )

    def expect(self, number: int, size_bytes: int) -> Line:
        """Take a line into the window; waits for room."""
        self._room.acquire()
        if self._failure is not None:
            raise self._failure
        self.number = number
        line = self._last = Line(number, size_bytes)
        self._lines.append(line)
        return line

    def wait_for_turn(self) -> None:
        """Wait until answers have been served, or none have come for a moment."""
        self._turn_ended.clear()
        if self._failure is None:
            self._turn_ended.wait()
        if self._failure is not None:
            raise self._failure

    def _answer_interrupted(self) -> None:
        """Of the last line it is not known how far it has come; where its answer comes nevertheless, that is told."""
        if self._last is not None and not self._last.is_begun and self._last.answer is None:
            self._last.answer = "interrupted: it is not known whether it is scheduled"

    def _work(self) -> None:
        try:
            while self._lines or not self._all_read.is_set():
                self._poll(_POLL_S)
                self._tell_answered()
                self._turn_ended.set()
        except BaseException as error:  # noqa: BLE001
            self._failure = error
            self._room.release(WINDOW_LINES)
            self._turn_ended.set()

    def _tell_answered(self) -> None:
        answered = []
        while self._lines and self._lines[0].answer is not None:
            line = self._lines.popleft()
            answered.append(line)
            if isinstance(line.answer, KafkaError) and line.answer.code() == KafkaError._MSG_TIMED_OUT:
                self.is_kafka_silent = True
        if answered:
            self._tell(answered)
            self._room.release(len(answered))

    def _tell(self, answered: list[Line]) -> None:
        try:
            if self._failure is None:
                self._report.tell(answered)
        except OSError as error:  # nothing more is read, and what is out is waited for
            self._failure = error
            self._room.release(WINDOW_LINES)
        if self._failure is not None:
            self._untold += [line.number for line in answered if isinstance(line.answer, Receipt)]


class LineReport:
    """Receipts on stdout, what is wrong on stderr, and how far it is on a terminal."""

    def __init__(self, progress: Progress, size_bytes: int | None) -> None:
        self.good = 0
        self.bad = 0
        self._progress = progress
        self._task = progress.add_task("", total=size_bytes, good=0)
        self._is_shared = not progress.disable and sys.stdout.isatty()

    def tell(self, lines: list[Line]) -> None:
        receipts = []
        for line in lines:
            if isinstance(line.answer, Receipt):
                receipts.append(json.dumps(line.answer.to_dict()))
            else:
                self.bad += 1
                self._complain(f"timewheel: line {line.number}: {_in_words(line.answer)}")
        self.good += len(receipts)
        if receipts:
            self._print("\n".join(receipts))
        self._progress.update(self._task, advance=sum(line.size_bytes for line in lines), good=self.good)

    def _print(self, text: str) -> None:
        if self._is_shared:  # above the bar, on the one terminal that both have
            self._progress.console.out(text, highlight=False)
        else:
            typer.echo(text)

    def _complain(self, text: str) -> None:
        self._progress.console.out(text, highlight=False)


def _in_words(answer: Receipt | KafkaError | str | None) -> str:
    if isinstance(answer, KafkaError):
        return not_taken(answer)
    return str(answer)[:_FAULT_MAX_CHARACTERS]


@contextmanager
def _report(size_bytes: int | None) -> Iterator[LineReport]:
    console = Console(stderr=True)
    progress = Progress(
        SpinnerColumn(),
        BarColumn(),
        TextColumn("{task.fields[good]:,} scheduled"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with progress:
        yield LineReport(progress, size_bytes)


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """A file's bytes; ``-`` is stdin.

    Raises:
        UsageError: it cannot be read.
    """
    if path == "-":
        yield stdin()
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"--file {path} cannot be read: {error.strerror}") from error
    with file:
        yield file


def _size_bytes(file: BinaryIO) -> int | None:
    """The size of a regular file; None for anything whose end is not known, such as a pipe."""
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None
