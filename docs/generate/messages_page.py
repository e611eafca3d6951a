"""docs/reference/messages.md, out of docs/reference/asyncapi.yaml."""

from collections.abc import Mapping
from typing import Any

import yaml

from docs.generate.tables import sentence, table

_HEAD = """\
# Topics, headers and messages

<!-- Made by python -m docs.generate (make docs) of docs/reference/asyncapi.yaml. -->

[asyncapi.yaml](asyncapi.yaml) (AsyncAPI 3) has the same for machines. Headers are UTF-8 text; if one comes twice,
the last counts. Topic names are the defaults: a `topic_prefix` goes before each, and the templates are
[settings](settings.md).
"""


def messages_page(asyncapi: str) -> str:
    document = yaml.safe_load(asyncapi)
    text = _HEAD
    for channel in document["channels"].values():
        text += f"\n## {channel['title']}: `{channel['address']}`\n\n{sentence(channel['summary'])}\n"
        for reference in channel["messages"].values():
            text += _message(document, _resolved(document, reference))
    codes = document["components"]["schemas"]["ERROR_CODE"]
    text += "\n## Why records are rejected\n\n"
    return text + table(
        ("`ERROR_CODE`", "when"), [(f"`{code}`", sentence(codes["x-meanings"][code])) for code in codes["enum"]]
    )


def _message(document: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    required = message["headers"]["required"]
    rows = []
    for name, schema in message["headers"]["properties"].items():
        rows.append(
            (f"`{name}`", "yes" if name in required else "", sentence(_resolved(document, schema)["description"]))
        )
    summary = f"{sentence(message['summary'])}\n\n" if "summary" in message else ""
    return f"\n### {message['title']}\n\n{summary}{table(('header', 'always', 'meaning'), rows)}"


def _resolved(document: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a node refers to, within the document."""
    if "$ref" not in node:
        return node
    found: Any = document
    for part in node["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return _resolved(document, found)
