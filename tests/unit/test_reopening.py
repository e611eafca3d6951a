"""What an operator is told of a partition that cannot be had."""

import errno
import os
import weakref
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.testing import ManualClock
from sidecar.intake.progress import NoLeaderError
from sidecar.intake.reopening import Reopening, remedy
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


def test_what_a_partition_failed_of_holds_nothing_of_it() -> None:
    class Store:
        """Of ten million records, with an index of 60 MB."""

    def fail(_store: Store) -> None:
        raise CorruptFile(Path("timerlog"), "torn") from OSError(errno.EIO, "first")

    store = Store()
    held, reopening = weakref.ref(store), Reopening(ManualClock())
    try:
        fail(store)
    except CorruptFile as error:
        reopening.failed(("wheel", 0), error)
    reopening.opened(("wheel", 0))
    del store
    assert held() is None
    assert str(reopening.last_error(("wheel", 0))) == "timerlog: torn"
