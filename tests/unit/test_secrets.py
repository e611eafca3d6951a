"""Secrets stay where they are kept: what the command prints of settings, of mistakes in them, and in its help."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sidecar.cli.main import MODULE_OF
from sidecar.errors import UsageError
from sidecar.settings import load_settings

SECRETS = {
    "http_token": "tokenhunter2",
    "sasl.password": "saslhunter2",
    "ssl.key.password": "keyhunter2",
    "sasl.oauthbearer.client.secret": "oauthhunter2",
}
ELSEWHERE = "namehunter2"
"""Of a variable that an option names, whose own name does not tell that it is a secret."""


def timewheel(*arguments: str, more: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command with every secret in its environment."""
    kafka = {name: value for name, value in SECRETS.items() if name != "http_token"}
    kafka |= {"sasl.username": "${env:KAFKA_USER}", "security.protocol": "ssl"}
    environment = {name: value for name, value in os.environ.items() if not name.upper().startswith("TIMEWHEEL_")}
    environment |= {
        "TIMEWHEEL_KAFKA": json.dumps(kafka),
        "TIMEWHEEL_HTTP_TOKEN": SECRETS["http_token"],
        "KAFKA_USER": ELSEWHERE,
        "COLUMNS": "200",
    }
    return subprocess.run(
        [sys.executable, "-m", "sidecar", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**environment, **(more or {})},
    )


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_resolved_settings_have_asterisks_in_their_place(options: tuple[str, ...]) -> None:
    ended = timewheel("config", *options)
    assert "hunter2" not in ended.stdout + ended.stderr
    shown = yaml.safe_load(ended.stdout)
    assert shown["http_token"] == "**********"
    assert set(shown["kafka"].values()) == {"**********", "ssl"}


@pytest.mark.parametrize("command", ["run", "config", "topics", "dlq", "status"])
def test_help_shows_defaults_and_not_what_is_set(command: str) -> None:
    assert command in MODULE_OF
    ended = timewheel(command, "--help")
    assert ended.returncode == 0
    assert "hunter2" not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        (("--kafka", "sasl.password:hunter2"), {}),
        (("--kafka", "group.id=hunter2"), {}),
        (("--partitions", "none"), {}),
        (("--http-address", "0.0.0.0"), {}),
        ((), {"TIMEWHEEL_KAFKA": '{"sasl.password": "hunter2"'}),
        ((), {"TIMEWHEEL_KAFKA": '{"sasl.password": ["hunter2"]}'}),
        ((), {"TIMEWHEEL_KAFKA": '"hunter2"'}),
        ((), {"TIMEWHEEL_KAFKA": '{"sasl.password": "hunter2 ${env:NONE}"}'}),
    ],
)
def test_a_mistake_is_told_without_the_secret_beside_it(arguments: tuple[str, ...], more: dict[str, str]) -> None:
    ended = timewheel("config", *arguments, more=more)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr
    assert "hunter2" not in ended.stderr


@pytest.mark.parametrize(
    "line",
    [
        "http_token: *hunter2",
        "http_token: !hunter2",
        "http_token: %hunter2",
        "http_token: @hunter2",
        "http_token: 'hunter2",
        'http_token: "hunter2\\q"',
        "http_token: [hunter2]",
        "http_token: {a: hunter2}",
        "http_token: a: hunter2",
        "hunter2",
        "kafka: hunter2",
        "kafka: [hunter2]",
        "kafka: {sasl.password: {a: hunter2}}",
    ],
)
def test_a_file_with_a_secret_that_is_not_quoted_is_told_by_its_place(tmp_path: Path, line: str) -> None:
    file = tmp_path / "timewheel.yaml"
    file.write_text(f"group_id: a\n{line}\n")
    with pytest.raises(UsageError) as refused:
        load_settings({}, file)
    assert "hunter2" not in str(refused.value)
    assert str(file) in str(refused.value) or "http_token" in str(refused.value) or "kafka" in str(refused.value)


def test_an_option_that_librdkafka_refuses_is_told_without_the_others() -> None:
    for option in ("no.such.option=1", "ssl.key.pem=keyhunter2", "sasl.mechanisms=hunting"):
        ended = timewheel("topics", "check", "--kafka", option, "--bootstrap-servers", "127.0.0.1:1")
        assert ended.returncode in (1, 2, 3), option
        assert ended.stderr
        assert "hunter2" not in ended.stdout + ended.stderr
