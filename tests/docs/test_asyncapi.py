"""docs/reference/asyncapi.yaml is AsyncAPI, and says what the contract in the code says."""

import json
import re
import subprocess
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from connectors.contract import CONTROL_HEADERS, ERROR_HEADERS, ErrorCode, Header, TopicNames
from sidecar.kafka.topic_plan import plan_topics
from sidecar.settings import Settings
from sidecar.version import installed_version

PATH = Path(__file__).parents[2] / "docs" / "reference" / "asyncapi.yaml"
DOCUMENT: dict[str, Any] = yaml.safe_load(PATH.read_text())


def headers(message: str) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["components"]["messages"][message]["headers"]
    return found


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)


def test_it_is_asyncapi() -> None:
    with warnings.catch_warnings():  # of pydantic, about the library's models
        warnings.simplefilter("ignore")
        from asyncapi3.models import AsyncAPI3
    AsyncAPI3.model_validate(DOCUMENT)
    with pytest.raises(ValidationError):
        AsyncAPI3.model_validate({**DOCUMENT, "channels": {"level": {"adress": "x"}}})


def test_every_reference_leads_somewhere() -> None:
    for reference in references(DOCUMENT):
        node: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            assert part in node, f"{reference} leads nowhere"
            node = node[part]


def test_its_headers_are_the_contract_s() -> None:
    named = {name for message in DOCUMENT["components"]["messages"] for name in headers(message)["properties"]}
    assert named == set(map(str, Header))
    for message in DOCUMENT["components"]["messages"]:
        assert set(headers(message)["required"]) <= set(headers(message)["properties"])
    assert not CONTROL_HEADERS & set(headers("delivered")["properties"])
    assert set(headers("rejected")["properties"]) == ERROR_HEADERS


def test_its_error_codes_are_the_contract_s() -> None:
    codes = DOCUMENT["components"]["schemas"]["ERROR_CODE"]
    assert codes["enum"] == list(map(str, ErrorCode))
    assert list(codes["x-meanings"]) == codes["enum"]


def test_its_topics_are_the_contract_s() -> None:
    names = TopicNames()
    addresses = {name: channel["address"] for name, channel in DOCUMENT["channels"].items()}
    assert addresses.pop("destination") == "{topic}"
    assert addresses == {
        "level": names.level(1).replace("1", "{level}"),
        "wheel": names.wheel,
        "sendBack": names.send_back,
        "retry": names.retry("x").replace("x", "{group}"),
        "deadLetters": names.dead_letter("x").replace("x", "{group}"),
    }


def test_its_topic_configuration_is_what_the_sidecar_creates() -> None:
    plans = {plan.name: plan.configs for plan in plan_topics(Settings())}
    for channel in ("level", "wheel", "sendBack"):
        configured = DOCUMENT["channels"][channel]["bindings"]["kafka"]["topicConfiguration"]
        told = {name: ",".join(value) if isinstance(value, list) else str(value) for name, value in configured.items()}
        topic = DOCUMENT["channels"][channel]["address"].replace("{level}", "1")
        assert told.items() <= plans[topic].items()


def test_its_version_is_the_project_s() -> None:
    told = DOCUMENT["info"]["version"]
    declared = re.search(r'^version = "(.*)"$', (PATH.parents[2] / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    assert told == declared[1]
    assert installed_version() in (told, "0+unknown")


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["npm"], indirect=True)
def test_it_fits_asyncapi_s_own_json_schema(tool: str, tmp_path: Path) -> None:
    """The schema is that of npm's @asyncapi/specs, for which there is nothing on PyPI."""
    subprocess.run([tool, "pack", "--silent", "@asyncapi/specs@6.11.1"], cwd=tmp_path, check=True, timeout=120)
    (archive,) = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as packed:
        schema = packed.extractfile("package/schemas/3.0.0.json")
        assert schema is not None
        jsonschema.validate(DOCUMENT, json.load(schema))
