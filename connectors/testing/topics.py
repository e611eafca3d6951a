"""Topics: names, configuration, logs."""

import re
from collections.abc import Mapping

from confluent_kafka import Uuid

from connectors.testing.log import PartitionLog

DEFAULT_CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""A topic's configuration where nobody has set anything; retention happens only where a test says so."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")

CREATE_TIME = 1
LOG_APPEND_TIME = 2


def is_legal_name(name: str) -> bool:
    return _LEGAL_NAME.match(name) is not None and name not in (".", "..")


class Topic:
    """A topic that exists."""

    def __init__(self, name: str, partitions: int, configs: Mapping[str, str], number: int) -> None:
        self.name = name
        self.id = Uuid(1, number)
        self.overrides = dict(configs)
        self.logs = [PartitionLog(name, partition) for partition in range(partitions)]
        merged = {**DEFAULT_CONFIGS, **configs}
        self.max_message_bytes = int(merged["max.message.bytes"])
        self.timestamp_type = LOG_APPEND_TIME if merged["message.timestamp.type"] == "LogAppendTime" else CREATE_TIME
        self.timestamp_after_max_ms = int(merged["message.timestamp.after.max.ms"])

    @property
    def configs(self) -> dict[str, str]:
        return {**DEFAULT_CONFIGS, **self.overrides}
