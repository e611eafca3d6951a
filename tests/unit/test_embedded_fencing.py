"""The controller that runs alone: when it has fenced the broker that was killed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from connectors.clock import Deadline, SystemClock
from connectors.embedded.fencing import wait_until_fenced

COMMITTED = b"DEBUG QuorumController - [QuorumController id=1] Processed writeNoOpRecord(724381770) in 30973 us\n"
OTHER = b"DEBUG QuorumController - [QuorumController id=1] Processed maybeFenceStaleBroker(2031895651) in 283 us\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "controller.log"
    path.touch()
    return path


def alive_while(pieces: list[bytes], log: Path) -> Callable[[], bool]:
    """A controller that writes one piece of its log each time it is looked at, and dies after the last."""
    left = iter(pieces)

    def look() -> bool:
        piece = next(left, None)
        if piece is None:
            return False
        with log.open("ab") as file:
            file.write(piece)
        return True

    return look


def wait(log: Path, pieces: list[bytes], within_s: float = 20.0) -> bool:
    return wait_until_fenced(log, is_alive=alive_while(pieces, log), deadline=Deadline(SystemClock(), within_s))


def test_it_is_fenced_with_the_second_record_that_is_committed_after_the_sessions_end(log: Path) -> None:
    assert wait(log, [OTHER, COMMITTED, OTHER, COMMITTED])


def test_one_such_record_is_not_enough(log: Path) -> None:
    assert not wait(log, [OTHER, COMMITTED, OTHER])


def test_a_line_that_is_read_in_two_pieces_counts_once(log: Path) -> None:
    for cut in range(1, len(COMMITTED)):
        log.write_bytes(b"")
        assert not wait(log, [COMMITTED[:cut], COMMITTED[cut:]])
    assert wait(log, [COMMITTED[:70], COMMITTED[70:] + COMMITTED[:90], COMMITTED[90:]])


def test_a_controller_that_died_before_is_told_even_if_it_had_said_more(log: Path) -> None:
    log.write_bytes(OTHER + COMMITTED)
    assert not wait(log, [])
    log.write_bytes(OTHER + COMMITTED + COMMITTED)
    assert wait(log, [])


def test_the_deadline_ends_the_wait(log: Path) -> None:
    assert not wait_until_fenced(log, is_alive=lambda: True, deadline=Deadline(SystemClock(), 0.05))
