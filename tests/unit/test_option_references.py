"""Kafka options that name a file or a variable instead of being a secret."""

from pathlib import Path

import pytest

from sidecar.errors import UsageError
from sidecar.option_references import resolve
from sidecar.settings import load_settings


def test_a_file_and_a_variable_take_the_place_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "password").write_text('qu"o\\te: ${env:HOME} ü\n')
    assert resolve("sasl.password", f"${{dir:{tmp_path}:password}}") == 'qu"o\\te: ${env:HOME} ü'
    assert resolve("sasl.username", "${env:WHO}", {"WHO": "timewheel"}) == "timewheel"
    assert resolve("client.rack", "rack-${env:ZONE}-${env:HOST}", {"ZONE": "a", "HOST": "b"}) == "rack-a-b"


@pytest.mark.parametrize("value", ["", "secret", "$", "${}", "${file}", "$${x:y}", "{dir:/a:b}", "${dir:/a}"])
def test_other_texts_are_left_alone(value: str) -> None:
    assert resolve("sasl.password", value, {}) == value


def test_what_is_not_there_is_named_with_its_option(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"sasl\.password names \$\{env:NONE\}: there is no such environment variable"):
        resolve("sasl.password", "${env:NONE}", {})
    with pytest.raises(ValueError, match=r"sasl\.password names .*/absent cannot be read: No such file"):
        resolve("sasl.password", f"${{dir:{tmp_path}:absent}}")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        resolve("sasl.password", f"${{dir:{tmp_path}:binary}}")
    (tmp_path / "large").write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        resolve("sasl.password", f"${{dir:{tmp_path}:large}}")


def test_settings_resolve_them_wherever_they_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("s3cret")
    file = tmp_path / "timewheel.yaml"
    file.write_text(f'kafka:\n  sasl.password: "${{dir:{tmp_path}:password}}"\n')
    monkeypatch.setenv("WHO", "timewheel")
    monkeypatch.setenv("TIMEWHEEL_KAFKA", '{"sasl.username": "${env:WHO}"}')
    settings = load_settings({"kafka": {"client.rack": "${env:WHO}"}}, file)
    assert settings.kafka == {"sasl.password": "s3cret", "sasl.username": "timewheel", "client.rack": "timewheel"}
    assert settings.masked()["kafka"]["sasl.password"] == "**********"
    monkeypatch.delenv("WHO")
    with pytest.raises(UsageError, match=r"kafka: sasl\.username names \$\{env:WHO\}"):
        load_settings({}, file)
