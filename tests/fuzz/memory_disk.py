"""A file system in memory that holds what a target says."""

import random
from collections.abc import Mapping
from pathlib import Path

from connectors.testing import InMemoryKafka, ManualClock, Process
from tests.simulation.disk import Disk, Inode, Mount

_PROCESS = Process(InMemoryKafka(), "fuzzed")


def memory_disk(files: Mapping[Path, bytes]) -> Mount:
    """Nothing goes wrong with it by itself."""
    disk = Disk(random.Random(0), 0, ManualClock())
    disk.files = {path: Inode(data, data) for path, data in files.items()}
    return disk.mount(_PROCESS)
