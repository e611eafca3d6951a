"""The data directory and its lock."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.data_dir import DataDir, left_over, stores
from sidecar.errors import DataDirectoryError


def refused(path: Path) -> str:
    with pytest.raises(DataDirectoryError) as caught, DataDir(path):
        pass
    assert caught.value.exit_code == 4
    return str(caught.value)


def test_a_directory_is_made_where_there_is_none(tmp_path: Path) -> None:
    with DataDir(tmp_path / "deep" / "er") as directory:
        assert directory.path.is_dir()


def test_a_second_sidecar_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with DataDir(tmp_path):
        assert "is in use by another sidecar" in refused(tmp_path)
        assert "is in use by another sidecar" in refused(tmp_path / ".." / tmp_path.name)


def test_a_file_system_without_locks_is_not_taken_for_a_second_sidecar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert refused(tmp_path).endswith("cannot be locked: No locks available; name a directory on a local disk")


def test_a_directory_is_free_again_after_a_stop_or_a_failure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), DataDir(tmp_path):
        raise RuntimeError
    with DataDir(tmp_path):
        pass
    with DataDir(tmp_path):
        pass


def test_a_refused_sidecar_leaves_the_lock_with_its_holder(tmp_path: Path) -> None:
    with DataDir(tmp_path):
        refused(tmp_path)
        refused(tmp_path)


def test_two_directories_do_not_hinder_each_other(tmp_path: Path) -> None:
    with DataDir(tmp_path / "a"), DataDir(tmp_path / "b"):
        pass


def test_a_lock_that_a_kill_left_behind_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with DataDir(tmp_path):
        pass


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "deeper"):
        sentence = refused(path)
        assert str(path) in sentence
        assert "name a directory that this user may write" in sentence
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("call", ["mkdir", "open"])
def test_a_directory_that_may_not_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, call, denied)
    sentence = refused(tmp_path)
    assert f"data_dir {tmp_path} cannot be used: Permission denied" in sentence
    assert f"let user {os.geteuid()} write to all that is in it" in sentence


def test_a_directory_in_the_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    assert "cannot be used: Is a directory" in refused(tmp_path)


@pytest.mark.parametrize(
    ("workers", "others"),
    [
        (1, ["worker-1", "worker-2", "worker-10"]),
        (2, ["wheel-0", "wheel-10", "worker-10"]),
        (9, ["wheel-0", "wheel-10", "worker-10"]),
        (10, ["wheel-0", "wheel-10"]),
    ],
)
def test_what_another_number_of_workers_has_left_is_found(tmp_path: Path, workers: int, others: list[str]) -> None:
    for name in ("wheel-0", "wheel-10", "worker-1/wheel-0", "worker-2/wheel-3", "worker-10"):
        (tmp_path / name).mkdir(parents=True)
    assert {path.name for path in left_over(tmp_path, workers)} == set(others)
    assert left_over(tmp_path / "absent", workers) == []
    (tmp_path / "wheel-0.bak").mkdir()
    assert [str(store.relative_to(tmp_path)) for store in stores(tmp_path)] == [
        "wheel-0",
        "wheel-10",
        "worker-1/wheel-0",
        "worker-2/wheel-3",
    ]


FEW_FILES = """
import resource
from sidecar.data_dir import allow_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1_000))
allow_open_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_as_many_files_may_be_open_as_the_system_allows() -> None:
    told = subprocess.run([sys.executable, "-c", FEW_FILES], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["1000", "1000"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_directory_that_cannot_be_looked_at_ends_with_4(tmp_path: Path, workers: int) -> None:
    """As one that this user may not enter; root may enter all."""
    with pytest.raises(DataDirectoryError, match="cannot be used: File name too long; name a directory") as raised:
        left_over(tmp_path / ("a" * 300), workers)
    assert raised.value.exit_code == 4
