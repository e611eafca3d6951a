"""Tables and texts of Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a bar in a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def sentence(text: str) -> str:
    """One line, and nothing in it that Markdown or HTML would take for its own."""
    return " ".join(text.split()).replace("<", "&lt;").replace(">", "&gt;").replace("*", "\\*")
