"""Copies that another group has rolled on the same wheel topic: each is a message to this one, which it says."""

from pathlib import Path

from sidecar.intake.copies import Copied, Copies
from tests.support.logged import logged
from tests.support.one_wheel import COPIES, NOW_MS, message, opened

LATER_MS = NOW_MS + 60_000


def test_copies_of_another_group_are_told_once_and_counted(tmp_path: Path) -> None:
    wheel = opened(tmp_path)
    another = Copies(b"another group's key")
    with logged() as logs:
        for offset in range(1, 7):
            copies = another if offset % 2 else COPIES
            copy = copies.headers(b"id", LATER_MS, Copied(0, 1))
            wheel.offer([message(offset, ("REAL_TOPIC", b"orders"), *copy)], NOW_MS)
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["copies of another group"]
    assert wheel.note.startswith("copies of another group come in (3 so far)")
