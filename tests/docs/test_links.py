"""Every link of README.md and docs/ that stays in the project leads somewhere."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.docs.session import ROOT

PATHS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


def links(text: str) -> Iterator[str]:
    for token in MarkdownIt().enable("table").parse(text):
        for child in token.children or []:
            if child.type == "link_open":
                yield str(child.attrs["href"])
            elif child.type == "image":
                yield str(child.attrs["src"])


def anchors(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    tokens = MarkdownIt().enable("table").parse(text)
    headings = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    lost = []
    for link in links(path.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (path.parent / place).resolve() if place else path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target.read_text())):
            lost.append(link)
    assert not lost, f"{path.relative_to(ROOT)}: nothing is at {', '.join(lost)}"


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached = {(index.parent / link.partition("#")[0]).resolve() for link in links(index.read_text())}
    pages = {path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "adr"} - {index}
    assert pages <= reached, f"not in docs/index.md: {sorted(path.name for path in pages - reached)}"


def test_what_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` c\n\n| x |\n| --- |\n| [here](#a-b-c) |\n")
    assert list(links(page.read_text())) == ["#a-b-c"]
    assert anchors(page.read_text()) == {"a-b-c"}


def test_every_decision_is_listed() -> None:
    decisions = {path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")}
    assert set(links((ROOT / "docs" / "adr" / "README.md").read_text())) == decisions
