"""Fetching, from a Maven repository that is a local folder: nothing goes over a network."""

import hashlib
from pathlib import Path

import pytest

from connectors.embedded import JarFetchError, fetch
from connectors.embedded.jars import Jar

pytest.importorskip("jgo")

CONTENT = {"one": b"first jar", "two": b"second jar"}
JARS = [Jar("org.example", name, "1", hashlib.sha256(content).hexdigest()) for name, content in CONTENT.items()]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's local Maven repository with both jars in it; no remote ones; no waiting between attempts."""
    root = tmp_path / "m2"
    for jar in JARS:
        path = root / "org" / "example" / jar.artifact / "1" / f"{jar.artifact}-1.jar"
        path.parent.mkdir(parents=True)
        path.write_bytes(CONTENT[jar.artifact])
    monkeypatch.setenv("M2_REPO", str(root))
    monkeypatch.setenv("JGO_CONFIG_FILE", str(tmp_path / "none.conf"))
    monkeypatch.setattr(fetch.repositories, "in_order", lambda *_: {})
    monkeypatch.setattr(fetch.tenacity.nap.time, "sleep", lambda _: None)
    return root


def test_jars_of_the_local_maven_repository_are_taken_and_left_there(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "kafka"
    fetch.fetch_jars("Kafka", folder, JARS)
    assert {path.read_bytes() for path in folder.iterdir()} == set(CONTENT.values())
    assert len(list(repository.rglob("*.jar"))) == len(JARS)
    assert not folder.with_name("kafka.partial").exists()


def test_what_came_before_a_failure_is_kept_and_the_next_run_goes_on(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "kafka"
    second = next(repository.rglob("two-1.jar"))
    second.unlink()
    with pytest.raises(JarFetchError, match=r"org\.example:two:1.*Operator action: check the network"):
        fetch.fetch_jars("Kafka", folder, JARS)
    second.write_bytes(CONTENT["two"])
    fetch.fetch_jars("Kafka", folder, JARS)
    assert {path.name for path in folder.iterdir()} == {jar.file_name for jar in JARS}


def test_half_a_file_in_staging_is_not_taken_for_a_jar(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "kafka"
    half = folder.with_name("kafka.partial") / "org" / "example" / "one" / "1" / "one-1.jar"
    half.parent.mkdir(parents=True)
    half.write_bytes(CONTENT["one"][:4])
    fetch.fetch_jars("Kafka", folder, JARS)
    assert (folder / JARS[0].file_name).read_bytes() == CONTENT["one"]


def test_bytes_that_are_not_the_pinned_ones_never_reach_the_cache(repository: Path, tmp_path: Path) -> None:
    next(repository.rglob("one-1.jar")).write_bytes(b"something else")
    with pytest.raises(JarFetchError, match=r"org\.example:one:1"):
        fetch.fetch_jars("Kafka", tmp_path / "cache" / "kafka", JARS)
    assert not (tmp_path / "cache" / "kafka" / JARS[0].file_name).exists()


def test_a_place_that_cannot_be_written_is_named(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JarFetchError, match="TIMEWHEEL_CACHE_DIR"):
        fetch.fetch_jars("Kafka", tmp_path / "file" / "kafka", JARS)
