"""What an operator is told of a partition that cannot be had."""

import errno
import os
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.intake.progress import NoLeaderError
from sidecar.intake.reopening import remedy
from sidecar.store.errors import CorruptFile, SlotConflict


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NoLeaderError(), "bring the broker back"),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), "check the brokers"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), "check the disk under data_dir"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES)), "let this user write to all that is under data_dir"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS)), "let this user write to all that is under data_dir"),
        (CorruptFile(Path("timerlog"), "torn"), "check the disk under data_dir"),
        (SlotConflict("held by another lap"), "set slots_total and precision_ms to what they were"),
    ],
)
def test_each_failure_has_its_own_remedy(error: Exception, told: str) -> None:
    assert told in remedy(error)
