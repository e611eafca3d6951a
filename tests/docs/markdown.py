"""A page of documentation as its test sees it: the fenced blocks in order, and what is to be done with each.

What a reader would type is run; what says otherwise is a comment directly before the block, which no reader sees:

    <!-- run by: make test-compose -->   run there, not here: a target of the Makefile or a test file
    <!-- leave running -->               a program that does not end: it runs on until the page's end
    <!-- eventually -->                  asked again until it succeeds, and prints what the page says
    <!-- file: worker.py -->             saved under that name, for a later block to use
    <!-- output -->                      what the command before prints, where text stands between the two
    <!-- output of: worker.py -->        what the program left running by that has printed

A block of text or JSON that directly follows a command is what that prints; an ellipsis in it stands for anything. One
comment is the page's own, before its first block; a page without it is not run, and may have no command that is to be:

    <!-- page: kafka, sidecar, topics orders payments -->

names what has to be there before the first command. A page with ``slow`` is left out by ``make test``, and so is one
with ``toolchain``, which may also take minutes for what it fetches.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from markdown_it import MarkdownIt

COMMANDS = frozenset({"sh", "python", "java", "go"})
DATA = frozenset({"text", "json", "yaml", "xml", "properties", "mermaid", "py"})
"""Languages that nobody runs; ``py`` is a signature."""

_COMMENT = re.compile(
    r"<!--\s*(page|run by|leave running|eventually|file|output of|output)(?::\s*(.*?))?\s*-->", re.DOTALL
)


class Use(StrEnum):
    """What becomes of a block."""

    RUN = "run"
    EVENTUALLY = "eventually"
    LEAVE_RUNNING = "leave running"
    FILE = "file"
    OUTPUT = "output"
    OUTPUT_OF = "output of"
    ELSEWHERE = "run by"
    SHOWN = "shown"


EXECUTED = frozenset({Use.RUN, Use.EVENTUALLY, Use.LEAVE_RUNNING})


class PageError(Exception):
    """A page breaks the rules; names the page, the line and the remedy."""


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    language: str
    text: str
    line: int
    """Of its opening fence, from 1."""
    use: Use
    name: str = ""
    """The file's, what runs the block elsewhere, or words of the command whose output it is."""


@dataclass(frozen=True)
class Page:
    """A page and what its commands need."""

    path: Path
    blocks: list[Block]
    needs: frozenset[str] = frozenset()
    topics: tuple[str, ...] = ()

    @property
    def is_run(self) -> bool:
        return any(block.use in EXECUTED for block in self.blocks)


@dataclass
class _Reading:
    """Where reading a page is."""

    blocks: list[Block] = field(default_factory=list)
    marker: tuple[str, str] | None = None
    follows_command: bool = False
    page: str = ""


def read_page(path: Path, text: str | None = None) -> Page:
    """Raises PageError where a block has no language, an unknown one, or a comment that does not fit it."""
    reading = _Reading()
    for token in MarkdownIt().parse(path.read_text() if text is None else text):
        line = (token.map or [0])[0] + 1
        if token.type == "html_block":
            _note(path, reading, token.content, line)
        elif token.type == "fence":
            _add(path, reading, token.info.strip(), token.content, line)
        elif token.type not in ("paragraph_close", "heading_close") and reading.marker is None:
            reading.follows_command = False
    if reading.marker is not None:
        raise PageError(f"{path}: the comment '{reading.marker[0]}' at the end belongs to no block")
    needs, topics = _needs(path, reading.page)
    page = Page(path, reading.blocks, needs, topics)
    if page.is_run and not reading.page:
        line = next(block.line for block in page.blocks if block.use in EXECUTED)
        raise PageError(
            f"{path}:{line}: say with a comment 'run by: ...' what runs this, or with 'page: ...', before the first "
            "block, what has to be there to run it here"
        )
    return page


def _note(path: Path, reading: _Reading, comment: str, line: int) -> None:
    match = _COMMENT.match(comment)
    if match is None:
        return
    name, argument = match[1], match[2] or ""
    if name == "page":
        if reading.blocks or reading.page:
            raise PageError(f"{path}:{line}: the page's comment stands once, before its first block")
        reading.page = argument
        return
    if reading.marker is not None:
        raise PageError(f"{path}:{line}: two comments for one block")
    reading.marker = (name, argument)


def _add(path: Path, reading: _Reading, language: str, text: str, line: int) -> None:
    where = f"{path}:{line}"
    if language not in COMMANDS | DATA:
        raise PageError(f"{where}: '{language}' is not among the languages {', '.join(sorted(COMMANDS | DATA))}")
    marker, reading.marker = reading.marker, None
    name = ""
    if marker is not None:
        use, name = _marked(where, marker, language, reading)
    elif language in COMMANDS:
        use = Use.RUN
        if language not in ("sh", "python"):
            raise PageError(
                f"{where}: {language} is not run as it stands; save it with a comment 'file: NAME' and use it"
            )
    else:
        use = Use.OUTPUT if reading.follows_command and language in ("text", "json") else Use.SHOWN
    reading.follows_command = use in EXECUTED
    reading.blocks.append(Block(language, text, line, use, name))


def _marked(where: str, marker: tuple[str, str], language: str, reading: _Reading) -> tuple[Use, str]:
    name, argument = marker
    if bool(argument) is not (name in ("run by", "file", "output of")):
        raise PageError(f"{where}: the comment '{name}' {'says nothing more' if argument else 'has to say what'}")
    match name:
        case "run by":
            return Use.ELSEWHERE, argument
        case "file":
            return Use.FILE, argument
        case "eventually" if language == "sh":
            return Use.EVENTUALLY, ""
        case "output of" if language in ("text", "json"):
            return Use.OUTPUT_OF, argument
        case "leave running" if language in ("sh", "python"):
            return Use.LEAVE_RUNNING, ""
        case "output" if language in ("text", "json") and any(block.use in EXECUTED for block in reading.blocks):
            return Use.OUTPUT, ""
    raise PageError(f"{where}: the comment '{name}' does not fit a block of {language} here")


def _needs(path: Path, text: str) -> tuple[frozenset[str], tuple[str, ...]]:
    needs, topics = set(), ()
    for part in filter(None, map(str.strip, text.split(","))):
        if part.startswith("topics "):
            topics = tuple(part.split()[1:])
        elif part in ("kafka", "nothing", "sidecar", "slow", "toolchain"):
            needs.add(part)
        else:
            raise PageError(
                f"{path}: a page is or needs kafka, sidecar, slow, toolchain, topics or nothing, not '{part}'"
            )
    if (topics or "sidecar" in needs) and "kafka" not in needs:
        raise PageError(f"{path}: a sidecar and topics need kafka")
    return frozenset(needs), topics
