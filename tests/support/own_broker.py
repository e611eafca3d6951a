"""A broker process with properties of a test's own, which `connectors.embedded` does not offer."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from connectors.embedded.jars import class_path
from connectors.embedded.java import find_java
from connectors.embedded.tools import run_tool


class OwnBroker:
    """Its directory is formatted at once; nothing runs before `start`. What it has stays between `kill` and `start`.

    Args:
        directory: empty.
        properties: of ``server.properties``; the directory of the logs is given.
        flags: of the Java runtime.
    """

    def __init__(
        self, directory: Path, cluster_id: str, properties: Mapping[str, str], flags: tuple[str, ...] = ()
    ) -> None:
        self.log_path = directory / "kafka.log"
        self._file = directory / "server.properties"
        self._properties = {**properties, "log.dirs": str(directory / "log")}
        self.change({})
        formatted = run_tool("kafka.tools.StorageTool", ["format", "-t", cluster_id, "-c", str(self._file)])
        assert formatted.returncode == 0, formatted.stdout
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        java = [str(find_java().path), "-Xmx512m", f"-Djava.io.tmpdir={directory}", quiet, *flags]
        self._command = [*java, "-cp", class_path(), "kafka.Kafka", str(self._file)]
        self._process: subprocess.Popen[bytes] | None = None

    def change(self, properties: Mapping[str, str]) -> None:
        """Other properties, from the next `start` on."""
        self._properties.update(properties)
        self._file.write_text("".join(f"{name}={value}\n" for name, value in self._properties.items()))

    def start(self) -> None:
        """Begin; whether it is up, `assert_runs` and a client tell."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def assert_runs(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.log_path.read_text()[-4000:]

    def kill(self) -> None:
        """SIGKILL, where it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None
