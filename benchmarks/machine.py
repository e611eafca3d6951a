"""Where the figures were taken: they mean nothing without it."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil

from connectors.embedded.jars import kafka_version


def describe() -> dict[str, Any]:
    """Hardware, system and versions; how busy the machine was before anything was measured."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "kafka": kafka_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def is_busy(described: Mapping[str, Any]) -> bool:
    """Whether something else was running: then a median is of little use, and a p99 of none."""
    return bool(described["load_before"] > 0.25 * described["cores"])


def unwritten_bytes() -> int:
    """What the kernel has not brought to the disk yet, of all files; 0 where it does not tell."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return 0
    return sum(int(line.split()[1]) for line in meminfo.read_text().splitlines() if line.startswith("Dirty:")) * 1024


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
