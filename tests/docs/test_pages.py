"""Every command of README.md and docs/ does what its page says, in the page's order, as a reader would have it."""

import re
from pathlib import Path

import pytest

from connectors.embedded import EmbeddedKafka
from connectors.embedded.ports import any_free
from tests.docs.markdown import COMMANDS, EXECUTED, Page, PageError, Use, read_page
from tests.docs.session import ROOT, Session
from tests.support.kafka import Kafka
from tests.support.sidecar import SidecarProcess
from tests.support.tools import find_tool

PATHS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES: dict[str, Page] = {}
UNREADABLE: dict[str, PageError] = {}
for path in PATHS:
    try:
        PAGES[str(path.relative_to(ROOT))] = read_page(path)
    except PageError as error:
        UNREADABLE[str(path.relative_to(ROOT))] = error
TOOLS = ("kcat", "mvn", "go")


def _parameters() -> list[object]:
    return [
        pytest.param(page, id=name, marks=[pytest.mark.slow, pytest.mark.timeout(900)] if _is_long(page) else [])
        for name, page in PAGES.items()
        if page.is_run
    ]


def _is_long(page: Page) -> bool:
    return bool({"slow", "toolchain"} & page.needs)


@pytest.mark.kafka
@pytest.mark.parametrize("page", _parameters())
def test_the_commands_of_a_page_do_what_it_says(page: Page, tmp_path: Path) -> None:
    _have_tools(page)
    if "kafka" not in page.needs:
        _run(page, tmp_path, any_free(), any_free())
        return
    with EmbeddedKafka() as broker:
        kafka, port = Kafka(broker.bootstrap_servers), int(broker.bootstrap_servers.rpartition(":")[2])
        for topic in page.topics:
            kafka.create_topic(topic, 3)
        if "sidecar" not in page.needs:
            _run(page, tmp_path, port, any_free())
            return
        with SidecarProcess(broker.bootstrap_servers, tmp_path) as sidecar:
            address = sidecar.http_address or ""
            _run(page, tmp_path, port, int(address.rpartition(":")[2]))


def _run(page: Page, directory: Path, kafka_port: int, http_port: int) -> None:
    with Session(page, directory, kafka_port=kafka_port, http_port=http_port) as session:
        for block in page.blocks:
            session.do(block)
        session.finish()


def _have_tools(page: Page) -> None:
    """What a page's commands call has to be there."""
    text = "".join(block.text for block in page.blocks if block.use in EXECUTED)
    for tool in TOOLS:
        if re.search(rf"\b{tool} ", text):
            find_tool(tool)


def test_every_page_keeps_the_rules() -> None:
    assert not UNREADABLE, "\n".join(map(str, UNREADABLE.values()))


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_what_is_not_run_here_is_run_where_the_page_says(page: Page) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block in page.blocks:
        if block.use is Use.ELSEWHERE:
            target = block.name.removeprefix("make ")
            assert (block.name.startswith("make ") and target in targets) or (ROOT / block.name).is_file(), (
                f"{page.path.name}:{block.line}: there is no {block.name}"
            )


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_every_command_is_run_or_says_what_runs_it(page: Page) -> None:
    uses = {block.use for block in page.blocks if block.language in COMMANDS}
    assert uses <= EXECUTED | {Use.FILE, Use.ELSEWHERE}
    commands = "".join(block.text for block in page.blocks if block.use in EXECUTED)
    for block in page.blocks:
        if block.use is Use.FILE and block.language in COMMANDS:
            stem = Path(block.name).stem if block.language == "java" else Path(block.name).name
            assert stem in commands or block.language == "go", (
                f"{page.path.name}:{block.line}: nobody uses {block.name}"
            )
