"""What is made from something else, so that the two never disagree: ``make charts`` writes it, tests compare it.

- ``config`` in the chart's values.schema.json: the sidecar's settings, from their model;
- files/ of the chart: the alerts and the dashboard of monitoring/, which Helm finds nowhere else;
- deploy/statefulset/timewheel.yaml: the chart's defaults for those without Helm;
- deploy/statefulset/settings.yaml: its settings, which kustomize makes the ConfigMap of;
- deploy/sidecar/sidecar.yaml: the native sidecar's containers and volumes, as a patch for kustomize.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from sidecar.settings import DurationMs, Levels, Settings, default_of
from tests.support.helm import CHART, ROOT, one, pod_of, template

SCHEMA = CHART / "values.schema.json"
STATEFULSET = ROOT / "deploy" / "statefulset" / "timewheel.yaml"
SETTINGS = STATEFULSET.with_name("settings.yaml")
PATCH = ROOT / "deploy" / "sidecar" / "sidecar.yaml"

COPIED = ("alerts.yaml", "grafana-dashboard.json")

DECIDED_BY_THE_CHART = frozenset(
    {
        "bootstrap_servers",
        "kafka",
        "instance_id",
        "membership",
        "data_dir",
        "http_address",
        "http_token",
        "log_format",
    }
)
"""Settings that `config` cannot hold: other values say them, or the mode does. `timewheel.refused` says which."""

_HEADER = "# Made from charts/timewheel by `make charts`."


LIMITS = {"ge": "minimum", "le": "maximum", "min_length": "minLength", "max_length": "maxLength"}
"""What Pydantic and JSON Schema call them."""

_DURATION = "([0-9]+(ms|s|m|h|d))+"
PATTERNS = [(DurationMs, f"^ *{_DURATION} *$"), (Levels, f"^ *{_DURATION}( +{_DURATION})* *$")]
"""What the texts of a type look like; the sidecar itself looks closer."""

_NAME_PART = "[a-zA-Z0-9._-]*"
NAME_PATTERNS = {
    "topic_prefix": f"^{_NAME_PART}$",
    "schedule_topic_template": rf"^{_NAME_PART}\{{queue\}}{_NAME_PART}$",
    "retry_topic_template": rf"^{_NAME_PART}\{{group\}}{_NAME_PART}$",
    "dead_letter_topic_template": rf"^{_NAME_PART}\{{group\}}{_NAME_PART}$",
}
"""What the settings look like that make the names of topics."""


def config_schema() -> dict[str, Any]:
    """JSON Schema of the settings that `config` may hold."""
    properties = {name: _setting_schema(name, field) for name, field in Settings.model_fields.items()}
    return {
        "type": "object",
        "description": "Settings of the sidecar, as `timewheel config` lists them.",
        "additionalProperties": False,
        "properties": properties,
    }


def _setting_schema(name: str, field: FieldInfo) -> dict[str, Any]:
    if name in DECIDED_BY_THE_CHART:  # a template refuses it, and says what to set instead
        return {"description": "Not here: other values say it, or the mode does."}
    kind: dict[str, Any] = {"description": field.description}
    if get_origin(field.annotation) is Literal:
        kind["enum"] = list(get_args(field.annotation))
    elif field.annotation is bool:
        kind["type"] = "boolean"
    elif isinstance(default_of(name), str):
        kind["type"] = "string"  # durations, globs and levels are texts too
    else:
        kind["type"] = "integer"
    for annotation, pattern in PATTERNS:
        if _reader(get_args(annotation)) in field.metadata:
            kind["pattern"] = pattern
    if name in NAME_PATTERNS:
        kind["pattern"] = NAME_PATTERNS[name]
    for item in field.metadata:
        kind |= {limit: getattr(item, name) for name, limit in LIMITS.items() if hasattr(item, name)}
    return kind


def _reader(metadata: Iterable[object]) -> BeforeValidator:
    """What reads the texts of a type."""
    return next(item for item in metadata if isinstance(item, BeforeValidator))


def schema_text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def statefulset_text() -> str:
    """The chart's defaults as plain manifests, for any namespace; the Secret of the token is the user's to make."""
    rendered = [each for each in _statefulset() if each["kind"] not in ("Pod", "ConfigMap")]
    # The ConfigMap's name changes with its content, so that nothing else has to.
    del pod_of(one(rendered, "StatefulSet"))["metadata"]["annotations"]
    secret = "kubectl create secret generic timewheel-http --from-literal=token=$(openssl rand -hex 20)"
    return f"{_HEADER} The API's token comes first:\n# {secret}\n" + "---\n".join(map(_plain, rendered))


def settings_text() -> str:
    """The settings file of the chart's defaults."""
    settings: str = one(_statefulset(), "ConfigMap")["data"]["timewheel.yaml"]
    return f"{_HEADER}\n{settings}"


def _statefulset() -> list[dict[str, Any]]:
    values = {"fullnameOverride": "timewheel", "http": {"token": {"existingSecret": "timewheel-http"}}}
    return template(values, release="timewheel")


def patch_text() -> str:
    """The native sidecar as a strategic merge patch, from what the chart's template gives an application."""
    pod = pod_of(one(_application(), "Deployment"))["spec"]
    (container,) = [each for each in pod["initContainers"] if each["name"] == "timewheel"]
    volumes = [each for each in pod["volumes"] if each["name"].startswith("timewheel-")]
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "any"},
        "spec": {"template": {"spec": {"initContainers": [container], "volumes": volumes}}},
    }
    return f"{_HEADER}\n" + yaml.safe_dump(patch, sort_keys=False)


def _application() -> list[dict[str, Any]]:
    """A chart that does nothing but include the templates."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        (directory / "charts").mkdir()
        (directory / "charts" / "timewheel").symlink_to(CHART)
        (directory / "templates").mkdir()
        (directory / "Chart.yaml").write_text("apiVersion: v2\nname: application\nversion: 0.1.0\n")
        (directory / "templates" / "deployment.yaml").write_text(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: any}\nspec:\n  template:\n    spec:\n"
            '      initContainers: {{- include "timewheel.sidecar" .Subcharts.timewheel | nindent 8 }}\n'
            '      volumes: {{- include "timewheel.sidecar.volumes" .Subcharts.timewheel | nindent 8 }}\n'
        )
        values = {
            "mode": "sidecar",
            "fullnameOverride": "timewheel",
            "http": {"token": {"existingSecret": "timewheel-http"}},
        }
        return template({"timewheel": values}, chart=directory)


def _plain(rendered: dict[str, Any]) -> str:
    """Without what only Helm wants to know."""
    text = yaml.safe_dump(rendered, sort_keys=False, width=120)
    text = re.sub(r"^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^  namespace: apps\n", "", text, flags=re.MULTILINE)


def main() -> None:
    for name in COPIED:
        shutil.copy(ROOT / "monitoring" / name, CHART / "files" / name)
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["config"] = config_schema()
    SCHEMA.write_text(schema_text(schema))
    STATEFULSET.write_text(statefulset_text())
    SETTINGS.write_text(settings_text())
    PATCH.write_text(patch_text())


if __name__ == "__main__":
    main()
