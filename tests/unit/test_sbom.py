"""What an image holds is written down in it, by a tool that is not in it."""

import re
from pathlib import Path

import pytest

DOCKERFILE = (Path(__file__).parents[2] / "Dockerfile").read_text()
PLACE = "/usr/share/timewheel/sbom.cdx.json"


def stages() -> dict[str, str]:
    """Their text by their names."""
    parts = re.split(r"^FROM \S+ AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("stage", ["package", "audit-package"])
def test_the_bill_is_written_after_the_last_package_is_installed(stage: str) -> None:
    text = stages()[stage]
    installed = max(text.rfind("pip --python"), text.rfind("COPY --from="))
    assert text.rindex("cyclonedx-py environment") > installed > 0
    assert re.search(r"--output-file /opt/timewheel/sbom\.cdx\.json /opt/timewheel/bin/python", text)


def test_the_images_have_it_in_its_place_and_nothing_of_the_tool() -> None:
    found = stages()
    assert f"ln -s /opt/timewheel/sbom.cdx.json {PLACE}" in found["base"]
    for stage, package in (("sidecar", "package"), ("audit", "audit-package")):
        assert re.findall("COPY --from=(.*)", found[stage]) == [f"{package} /opt/timewheel /opt/timewheel"]
    assert "python -m venv /opt/bill" in found["dependencies"]
