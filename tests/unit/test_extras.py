"""What messages say of the optional extras: they exist, and come from a checkout: no package index has Timewheel."""

import re
import tomllib
from pathlib import Path

from connectors.extras import how_to_install

ROOT = Path(__file__).parents[2]
CODE = [path for package in ("connectors", "sidecar", "spark") for path in (ROOT / package).rglob("*.py")]


def test_every_extra_that_a_message_names_is_one() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    named = {extra for path in CODE for extra in re.findall(r"how_to_install\('(\w+)'\)", path.read_text())}
    assert named == {"embedded", "otel", "report", "spark"}
    assert named <= extras.keys()


def test_no_message_sends_anybody_to_a_package_index() -> None:
    assert how_to_install("spark") == "in a checkout of Timewheel, run pip install '.[spark]'"
    others = [path for path in CODE if re.search(r"pip install|timewheel\[", path.read_text())]
    assert others == [ROOT / "connectors" / "extras.py"]
