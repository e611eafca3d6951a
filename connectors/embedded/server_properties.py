"""The broker's `server.properties`: one node, broker and controller in one process, quick to start and to stop."""

from collections.abc import Mapping
from pathlib import Path

from connectors.embedded import fencing
from connectors.embedded.errors import EmbeddedKafkaError

HEADER = "# Written by timewheel's embedded Kafka at each start; changes are lost."
NODE_ID = 1
OFFSETS_PARTITIONS = "offsets.topic.num.partitions"
TRANSACTIONS_PARTITIONS = "transaction.state.log.num.partitions"

_DEFAULTS: Mapping[str, str] = {
    # A topic made by a typing error is worse than an error.
    "auto.create.topics.enable": "false",
    # To fence the only broker helps nobody and can leave a transaction hanging (see `fencing`), and a pause, as by
    # `suspend`, may well be longer than the default of 9 s. Nothing waits for it: what was killed is fenced at once.
    "broker.session.timeout.ms": "30000",
    # A broker that stops would first give up all that it leads, to nobody: what is committed then is left hanging, too.
    "controlled.shutdown.enable": "false",
    # Tests and demos start one consumer at a time: nothing to wait for.
    "group.initial.rebalance.delay.ms": "0",
    # One node holds one replica; few partitions start faster than the 50 of a real cluster.
    OFFSETS_PARTITIONS: "1",
    TRANSACTIONS_PARTITIONS: "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # 16 MiB instead of 128: it is allocated at the start, out of a small heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
}


def with_defaults(overrides: Mapping[str, str]) -> dict[str, str]:
    """The properties that are open to choice: the defaults, and the overrides, which win."""
    return {**_DEFAULTS, **overrides}


def render(*, port: int, controller_port: int, log_dir: Path, overrides: Mapping[str, str] | None = None) -> str:
    """The file's text. `overrides` win over the defaults.

    Raises `EmbeddedKafkaError` for an override of what the arguments decide (addresses, node, directory), and for a
    name or value that would break out of its line.
    """
    decided = _decided(controller_port, log_dir) | {
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }
    overrides = overrides or {}
    if taken := sorted(decided.keys() & overrides.keys()):
        raise EmbeddedKafkaError(
            f"server property {taken[0]} is decided by the embedded broker itself. "
            "Operator action: leave it out; ports and the data directory are arguments"
        )
    for name, value in overrides.items():
        if not name or any(character in name for character in " =:#!\\\n\r") or "\n" in value or "\r" in value:
            raise EmbeddedKafkaError(f"server property {name!r} = {value!r}: not one name and one line")
    return _text(decided | with_defaults(overrides))


def render_fencing(*, controller_port: int, log_dir: Path, overrides: Mapping[str, str] | None = None) -> str:
    """The same node on the same data, as the controller alone that fences the broker; of overrides that `render` took.

    What the fencing needs wins over them.
    """
    decided = _decided(controller_port, log_dir) | {
        "process.roles": "controller",
        "listeners": f"CONTROLLER://127.0.0.1:{controller_port}",
    }
    return _text({**decided, **with_defaults(overrides or {}), **fencing.PROPERTIES})


def _decided(controller_port: int, log_dir: Path) -> dict[str, str]:
    return {
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(log_dir),
    }


def _text(properties: Mapping[str, str]) -> str:
    return "\n".join([HEADER, *(f"{name}={_escape(value)}" for name, value in properties.items())]) + "\n"


def _escape(value: str) -> str:
    """As java.util.Properties reads it: a backslash is doubled, a leading space kept."""
    escaped = value.replace("\\", "\\\\")
    return "\\" + escaped if escaped.startswith(" ") else escaped
