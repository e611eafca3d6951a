"""The broker's directory.

    server.properties   written at each start; its first line marks the directory as ours
    kafka.log           what broker and JVM say, appended
    controller.log      what the controller said when it fenced the broker of the last time
    kafka/              Kafka's `log.dirs`: formatted once, as a whole or not at all
    tmp/                Java's temporary files, emptied at each start
    lock                held by the owner and by the broker, so until both are gone

Formatting goes to `kafka.partial/`, which is renamed: a crash in between leaves nothing that looks formatted.
"""

import base64
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from connectors.clock import Deadline, SystemClock
from connectors.embedded import server_properties
from connectors.embedded.errors import BrokerFailedError, DataDirError
from connectors.embedded.tools import run_tool

_TAIL_LINES = 30  # of what the tool said, in the error
_META_VERSION = "1"  # of meta.properties, KRaft's; 0 is ZooKeeper's
_SAYS_NOTHING = {"lost+found", "lock"}  # of a mounted volume; of a start that went no further
_LOCK_TIMEOUT_S = 5.0  # the watchdog of an owner that was killed ends its broker well within this time
_LOCK_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class DataDir:
    """One such directory."""

    root: Path

    @property
    def properties_path(self) -> Path:
        return self.root / "server.properties"

    @property
    def log_path(self) -> Path:
        return self.root / "kafka.log"

    @property
    def controller_log_path(self) -> Path:
        return self.root / "controller.log"

    @property
    def fencing_properties_path(self) -> Path:
        return self.tmp_dir / "fencing.properties"

    @property
    def kafka_dir(self) -> Path:
        return self.root / "kafka"

    @property
    def tmp_dir(self) -> Path:
        return self.root / "tmp"

    @property
    def cluster_id(self) -> str:
        """Raises `KeyError` before the directory is formatted."""
        return self._meta()["cluster.id"]

    @property
    def has_served(self) -> bool:
        """Whether a broker has run on it."""
        return bool(self._meta())

    def adopt(self) -> None:
        """Make the directory, or check that an existing one is ours and this broker's. Raises `DataDirError`."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            names = {path.name for path in self.root.iterdir()} - _SAYS_NOTHING
            marked = "server.properties" in names and self._first_line() == server_properties.HEADER
        except OSError as error:
            raise DataDirError(f"cannot use {self.root} as a data directory: {error}") from error
        if names and not marked:
            raise DataDirError(
                f"{self.root} is not empty and was not made by the embedded Kafka broker. "
                "Operator action: name an empty or a new directory"
            )
        meta = self._meta()
        if meta and (meta.get("version"), meta.get("node.id")) != (_META_VERSION, str(server_properties.NODE_ID)):
            raise DataDirError(
                f"{self.kafka_dir} was formatted for another kind of broker (meta.properties: {meta}). "
                "Operator action: name another directory"
            )

    def lock(self) -> int:
        """Lock the directory against other brokers; the file descriptor that holds the lock.

        Raises `DataDirError` when another broker does not let go of it, or it cannot be locked.
        """
        deadline = Deadline(SystemClock(), _LOCK_TIMEOUT_S)
        try:
            descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DataDirError(
                f"{self.root} cannot be locked: {error.strerror}. Operator action: name a directory of yours"
            ) from error
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if deadline.is_over:
                    os.close(descriptor)
                    raise DataDirError(
                        f"another broker uses {self.root}. Operator action: stop it, or name another directory"
                    ) from None
                time.sleep(_LOCK_POLL_S)
            else:
                return descriptor

    def prepare(self, *, port: int, controller_port: int, overrides: Mapping[str, str] | None) -> None:
        """Write the properties' files, empty `tmp/`, format when it has not been done.

        Raises `EmbeddedKafkaError` for properties that cannot be written, `BrokerFailedError` for what Kafka refuses.
        """
        text = server_properties.render(
            port=port, controller_port=controller_port, log_dir=self.kafka_dir, overrides=overrides
        )
        self.properties_path.write_text(text, encoding="utf-8")
        shutil.rmtree(self.tmp_dir, ignore_errors=True)
        self.tmp_dir.mkdir(exist_ok=True)
        text = server_properties.render_fencing(
            controller_port=controller_port, log_dir=self.kafka_dir, overrides=overrides
        )
        self.fencing_properties_path.write_text(text, encoding="utf-8")
        if not self._meta():
            self._format(port=port, controller_port=controller_port, overrides=overrides)

    def _format(self, *, port: int, controller_port: int, overrides: Mapping[str, str] | None) -> None:
        partial = self.root / "kafka.partial"
        shutil.rmtree(partial, ignore_errors=True)
        properties = self.tmp_dir / "format.properties"
        properties.write_text(
            server_properties.render(port=port, controller_port=controller_port, log_dir=partial, overrides=overrides),
            encoding="utf-8",
        )
        done = run_tool("kafka.tools.StorageTool", ["format", "-t", new_cluster_id(), "-c", str(properties)])
        if done.returncode != 0:
            said = (done.stdout + done.stderr).decode(errors="replace")
            with self.log_path.open("a", encoding="utf-8") as log:
                log.write(said)
            tail = "\n".join(said.splitlines()[-_TAIL_LINES:])
            what = "Kafka does not format its storage with these server properties"
            raise BrokerFailedError(what, self.log_path, tail)
        partial.replace(self.kafka_dir)

    def _first_line(self) -> str:
        with self.properties_path.open(encoding="utf-8", errors="replace") as file:
            return file.readline().rstrip("\n")

    def _meta(self) -> dict[str, str]:
        """`meta.properties`, empty when there is none."""
        try:
            lines = (self.kafka_dir / "meta.properties").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return {}
        pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
        return {name.strip(): value.strip() for name, _, value in pairs}


def new_cluster_id() -> str:
    """A random id as Kafka writes them: 22 characters of URL-safe base64, none of them leading with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
