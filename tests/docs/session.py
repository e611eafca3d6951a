"""One reader with a terminal: a shell in which a page's commands run in order, and the programs left running beside it.

`localhost:9092`, the port 8080 and `/var/lib/timewheel` are what a page calls its Kafka, its sidecar and that one's
directory. Here they are a free port, another, and a temporary directory.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.error import HTTPError
from urllib.request import urlopen

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.docs.kafka_tool import TOOLS
from tests.docs.markdown import Block, Page, Use
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
ELLIPSIS = "…"
COMMAND_TIMEOUT_S = 60.0
TOOLCHAIN_TIMEOUT_S = 500.0
"""The first build fetches what it needs."""
OUTPUT_TIMEOUT_S = 40.0


@dataclass
class Running:
    """A program that is left running."""

    command: str
    process: subprocess.Popen[bytes]
    output: Path


class Session:
    """Runs the blocks of one page.

    Args:
        kafka_port, http_port: where the page's Kafka and sidecar are, or will be once the page has started them.
    """

    def __init__(self, page: Page, directory: Path, *, kafka_port: int, http_port: int) -> None:
        self._page = page
        self._directory = directory
        self._ports = {"9092": str(kafka_port), "8080": str(http_port)}
        self._home = directory / "page"
        self._home.mkdir()
        self._running: list[Running] = []
        self._printed = ""
        is_long = "toolchain" in page.needs
        self._timeout_s = TOOLCHAIN_TIMEOUT_S if is_long else COMMAND_TIMEOUT_S
        self._output_timeout_s = TOOLCHAIN_TIMEOUT_S if is_long else OUTPUT_TIMEOUT_S
        self._environment = self._make_environment()
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            cwd=self._home,
            env=self._environment,
            start_new_session=True,
        )

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for running in reversed(self._running):
            _end(running.process)
            if error is not None:
                print(f"--- {running.command} ---\n{running.output.read_text()[-4000:]}")
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        _end(self._shell)

    def do(self, block: Block) -> None:
        """What the block asks for; raises AssertionError with its line where it does not do what the page says."""
        where = f"{self._page.path.name}:{block.line}"
        text = self._here(block.text)
        match block.use:
            case Use.FILE:
                path = self._home / block.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            case Use.RUN:
                self._printed = self._run(where, block, text)
            case Use.EVENTUALLY:
                wait_until(lambda: self._succeeds(where, block, text), f"{where}: {text}", self._output_timeout_s, 0.2)
            case Use.LEAVE_RUNNING:
                self._leave_running(block, text)
            case Use.OUTPUT if self._is_of_running(block):
                self._expect_of(where, self._running[-1], text)
            case Use.OUTPUT:
                assert matches(text, self._printed), f"{where}: the command before it prints\n{self._printed}"
            case Use.OUTPUT_OF:
                (running,) = (running for running in self._running if block.name in running.command)
                self._expect_of(where, running, text)

    def finish(self) -> None:
        """Raises AssertionError where a program that is left running has ended by itself."""
        for running in self._running:
            code = running.process.poll()
            assert code is None, f"{running.command} has ended with {code}:\n{running.output.read_text()[-4000:]}"

    def _is_of_running(self, block: Block) -> bool:
        before = self._page.blocks[self._page.blocks.index(block) - 1]
        return before.use is Use.LEAVE_RUNNING

    def _here(self, text: str) -> str:
        text = re.sub(r"\b(9092|8080)\b", lambda match: self._ports[match[1]], text)
        return text.replace("/var/lib/timewheel", str(self._directory / "timewheel"))

    # --- commands -----------------------------------------------------------------------------------------------------

    def _run(self, where: str, block: Block, text: str) -> str:
        """What it prints on stdout; no command in it may fail."""
        script = self._script(block, text)
        output, errors = script.with_suffix(".out"), script.with_suffix(".err")
        failed, done = script.with_suffix(".failed"), script.with_suffix(".done")
        failed.unlink(missing_ok=True)
        done.unlink(missing_ok=True)
        command = f". {script}" if block.language == "sh" else f"python {script}"
        assert self._shell.stdin is not None
        self._shell.stdin.write(
            f"set -o errtrace -o pipefail; trap 'echo \"$BASH_COMMAND\" >> {failed}' ERR\n"
            f"{command} </dev/null >{output} 2>{errors}; touch {done}\n".encode()
        )
        self._shell.stdin.flush()

        def ended() -> bool:
            assert self._shell.poll() is None, f"{where}: the shell has ended in\n{text}\n{errors.read_text()[-4000:]}"
            return done.exists()

        wait_until(ended, f"{where} ends: {text}", self._timeout_s)
        if failed.exists():
            told = f"{output.read_text()[-4000:]}\n{errors.read_text()[-4000:]}"
            raise AssertionError(f"{where}: '{failed.read_text().strip()}' fails:\n{told}")
        return output.read_text()

    def _succeeds(self, where: str, block: Block, text: str) -> bool:
        """Whether it does, and prints what the block behind it expects; that one tells what it has printed instead."""
        try:
            self._printed = self._run(where, block, text)
        except AssertionError as error:
            self._printed = str(error)
            return False
        behind = self._page.blocks[self._page.blocks.index(block) + 1 :][:1]
        return all(matches(self._here(after.text), self._printed) for after in behind if after.use is Use.OUTPUT)

    def _leave_running(self, block: Block, text: str) -> None:
        script = self._script(block, text)
        output = script.with_suffix(".out")
        command = ["bash", "-e", str(script)] if block.language == "sh" else ["python", str(script)]
        with output.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=self._home,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        running = Running(text, process, output)
        self._running.append(running)
        # Where a reader sees that it is ready.
        if "timewheel kafka" in text:
            self._wait(running, self._kafka_answers)
        elif "timewheel run" in text:
            self._wait(running, self._sidecar_is_ready)

    def _script(self, block: Block, text: str) -> Path:
        path = self._directory / f"line-{block.line}{'.sh' if block.language == 'sh' else '.py'}"
        path.write_text(text)
        return path

    # --- programs that are left running -------------------------------------------------------------------------------

    def _expect_of(self, where: str, running: Running, text: str) -> None:
        self._wait(running, lambda: contains(text, running.output.read_text()), f"{where} is printed")

    def _wait(self, running: Running, condition: Callable[[], bool], what: str = "it is ready") -> None:
        def seen() -> bool:
            is_seen = condition()
            assert is_seen or running.process.poll() is None, (
                f"{running.command} has ended:\n{running.output.read_text()[-4000:]}"
            )
            return is_seen

        try:
            wait_until(seen, f"{running.command}: {what}", self._output_timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\nit has printed:\n{running.output.read_text()[-4000:]}") from None

    def _kafka_answers(self) -> bool:
        try:
            AdminClient({"bootstrap.servers": f"localhost:{self._ports['9092']}", "log_level": 0}).list_topics(
                timeout=1
            )
        except KafkaException:
            return False
        return True

    def _sidecar_is_ready(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self._ports['8080']}/readyz", timeout=2) as response:
                return bool(response.status == 200)
        except HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    # --- what a reader has installed ----------------------------------------------------------------------------------

    def _make_environment(self) -> dict[str, str]:
        """This Timewheel, this Python, and Kafka's tools by their names; of settings, where the page's things are."""
        programs = self._directory / "bin"
        programs.mkdir()
        commands = {"timewheel": "-m sidecar", "python": ""}
        commands |= {name: f"-m tests.docs.kafka_tool {name}" for name in TOOLS}
        for name, arguments in commands.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
            (programs / name).chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TIMEWHEEL_")}
        if cache := os.environ.get("TIMEWHEEL_CACHE_DIR"):
            kept["TIMEWHEEL_CACHE_DIR"] = cache
        return {
            **kept,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "160",
            "NO_COLOR": "1",
            "TIMEWHEEL_BOOTSTRAP_SERVERS": f"localhost:{self._ports['9092']}",
            "TIMEWHEEL_HTTP_ADDRESS": f"127.0.0.1:{self._ports['8080']}",
        }


def matches(expected: str, printed: str) -> bool:
    """Whether that and nothing else is printed; an ellipsis stands for anything, alone on its line for any lines.

    Colours count for nothing: Maven ends in one whatever it prints to.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    return re.fullmatch(_pattern(expected), plain.strip(), re.DOTALL) is not None


def contains(expected: str, printed: str) -> bool:
    """Whether those lines are printed one after the other."""
    return re.search(rf"(^|\n){_pattern(expected)}(\n|$)", printed, re.DOTALL) is not None


def _pattern(expected: str) -> str:
    lines = []
    for line in expected.strip().splitlines():
        inner = r"[^\n]*?".join(map(re.escape, line.rstrip().split(ELLIPSIS)))
        lines.append(r"(?:.*?)" if line.strip() == ELLIPSIS else rf"{inner}[ ]*")
    return "\n".join(lines)


def _end(process: subprocess.Popen[bytes], timeout_s: float = 10.0) -> None:
    """SIGTERM to its whole session, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            continue
    process.wait(timeout_s)
