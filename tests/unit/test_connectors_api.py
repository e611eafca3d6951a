"""The public API: what it names, and what it costs to import."""

import subprocess
import sys

import pytest

import connectors


def test_everything_public_is_there() -> None:
    for name in connectors.__all__:
        assert getattr(connectors, name).__name__ == name
    assert set(connectors.__all__) <= set(dir(connectors))


def test_the_contract_alone_loads_no_kafka_client() -> None:
    code = "import sys, connectors.contract; sys.exit('confluent_kafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Consumer'"):
        connectors.Consumer  # noqa: B018
