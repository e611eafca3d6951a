"""The pinned jars: the list, the cache, and what is said when they cannot be fetched."""

import sys
from pathlib import Path

import pytest

from connectors.embedded import EmbeddedKafkaError, MissingExtraError
from connectors.embedded.cache import cache_dir
from connectors.embedded.fetch import fetch_jars
from connectors.embedded.jars import Jar, kafka_version, missing_jars, parse_jar_list, pinned_jars

SHA = "0" * 63 + "a"


def test_a_line_is_a_coordinate_and_a_checksum() -> None:
    text = f"# why\n\norg.apache.kafka:kafka_2.13:4.3.1 {SHA}  # the broker\n"
    assert parse_jar_list(text) == (Jar("org.apache.kafka", "kafka_2.13", "4.3.1", SHA),)


@pytest.mark.parametrize(
    "line",
    [
        "org.apache.kafka:kafka_2.13:4.3.1",
        f"org.apache.kafka:kafka_2.13 {SHA}",
        f"org.apache.kafka:kafka_2.13:4.3.1 {SHA[1:]}",
        f"../etc:passwd:/1 {SHA}",
    ],
)
def test_anything_else_is_refused_with_its_line_number(line: str) -> None:
    with pytest.raises(EmbeddedKafkaError, match="line 2"):
        parse_jar_list(f"# first\n{line}\n")


def test_two_versions_of_one_artifact_are_refused() -> None:
    with pytest.raises(EmbeddedKafkaError, match=r"line 2: a:b is there twice"):
        parse_jar_list(f"a:b:1 {SHA}\na:b:2 {SHA}\n")


def test_the_pinned_list_holds_broker_tools_and_a_log_binding() -> None:
    artifacts = {jar.artifact for jar in pinned_jars()}
    assert {"kafka_2.13", "kafka-server", "kafka-tools", "slf4j-simple", "jopt-simple", "argparse4j"} <= artifacts
    assert kafka_version() == "4.3.1"


def test_no_two_jars_share_a_file_name() -> None:
    assert len({jar.file_name for jar in pinned_jars()}) == len(pinned_jars())


def test_an_empty_file_is_missing_like_one_that_is_not_there(tmp_path: Path) -> None:
    first, second, *others = pinned_jars()
    (tmp_path / first.file_name).write_bytes(b"PK")
    (tmp_path / second.file_name).touch()
    assert missing_jars(tmp_path, pinned_jars()) == [second, *others]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TIMEWHEEL_CACHE_DIR": "/a/b", "XDG_CACHE_HOME": "/x"}, Path("/a/b")),
        ({"XDG_CACHE_HOME": "/x"}, Path("/x/timewheel")),
        ({}, Path.home() / ".cache" / "timewheel"),
    ],
)
def test_the_cache_is_where_the_environment_says(environ: dict[str, str], expected: Path) -> None:
    assert cache_dir(environ) == expected


def test_without_jgo_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jgo", None)
    with pytest.raises(MissingExtraError, match=r"in a checkout of Timewheel, run pip install '\.\[embedded\]'"):
        fetch_jars("Kafka", tmp_path / "jars", pinned_jars())
    assert not (tmp_path / "jars").exists()
