"""Every log line of the sources, read from them: event, level, fields."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
LEVELS = ("debug", "info", "warning", "error")
OTHERS = ("critical", "exception", "fatal", "log", "msg", "warn")
LOGGERS = {"log", "_log"}


class LogLine(NamedTuple):
    where: str
    event: str
    level: str
    fields: frozenset[str]


def log_lines(package: str) -> list[LogLine]:
    """Of a package; fails for a line whose event is no literal, and for loggers of other names."""
    return [line for path in sorted((ROOT / package).rglob("*.py")) for line in _lines(path)]


def _lines(path: Path) -> Iterator[LogLine]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if not _is_logger(node.func.value):
            continue
        where = f"{path.relative_to(ROOT)}:{node.lineno}"
        assert node.func.attr not in OTHERS, f"{where}: {node.func.attr} is no level of ours"
        if node.func.attr not in LEVELS:  # something else that is called so
            continue
        event = node.args[0]
        assert isinstance(event, ast.Constant), f"{where}: the event is no literal"
        fields = frozenset(keyword.arg or "**" for keyword in node.keywords)
        yield LogLine(where, str(event.value), node.func.attr, fields)


def _is_logger(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in LOGGERS
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("get_logger")
