"""Which directories the embedded broker takes over."""

from pathlib import Path

import pytest

from connectors.embedded import DataDirError
from connectors.embedded.data_dir import DataDir, new_cluster_id
from connectors.embedded.server_properties import HEADER

META = "#\n#Sat Nov 21 01:15:44 UTC 2026\nnode.id={node}\ndirectory.id=X7SzjxJh7s\nversion={version}\ncluster.id=abc\n"


def a_data_dir(root: Path, *, node: int = 1, version: int = 1) -> DataDir:
    data = DataDir(root)
    data.kafka_dir.mkdir(parents=True)
    data.properties_path.write_text(f"{HEADER}\nnode.id=1\n")
    (data.kafka_dir / "meta.properties").write_text(META.format(node=node, version=version))
    return data


def test_a_new_and_an_empty_directory_are_taken(tmp_path: Path) -> None:
    DataDir(tmp_path).adopt()
    DataDir(tmp_path / "new" / "deeper").adopt()
    assert (tmp_path / "new" / "deeper").is_dir()


def test_the_root_of_a_fresh_volume_is_taken(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    DataDir(tmp_path).adopt()


def test_its_own_directory_is_taken_again(tmp_path: Path) -> None:
    data = a_data_dir(tmp_path)
    data.adopt()
    assert data.cluster_id == "abc"


def test_a_directory_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(DataDirError, match="not empty"):
        DataDir(tmp_path).adopt()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(("node", "version"), [(7, 1), (1, 0)])
def test_a_directory_of_another_kind_of_broker_is_refused(tmp_path: Path, node: int, version: int) -> None:
    with pytest.raises(DataDirError, match="another kind of broker"):
        a_data_dir(tmp_path, node=node, version=version).adopt()


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirError, match="cannot use"):
        DataDir(tmp_path / "file").adopt()


def test_a_broker_has_served_where_its_directory_is_formatted(tmp_path: Path) -> None:
    assert not DataDir(tmp_path / "new").has_served
    assert a_data_dir(tmp_path).has_served


def test_a_cluster_id_is_22_characters_that_a_command_line_takes() -> None:
    ids = {new_cluster_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(one) == 22 and not one.startswith("-") for one in ids)
