"""docs/reference/python.md, out of the docstrings of what `connectors` exports."""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import griffe

import connectors
from docs.generate.tables import table

_HEAD = """\
# Python

<!-- Made by python -m docs.generate (make docs) of the docstrings in connectors/. -->

What applications import: `from connectors import ScheduledProducer`; what `DeadLetters` takes and gives is in
`connectors.dead_letters`. The [tutorial](../tutorial.md) and
[Retry and redrive](../how-to/retry-and-redrive.md) show how it is used; for your tests there is
[an in-memory Kafka](../how-to/test-your-code.md). What the headers mean is told with the [messages](messages.md). Names
of durations end in their unit (`_ms`, `_s`); a time that ends in `_ms` is milliseconds since 1970.
"""

_PARTS = {
    "Schedule, cancel, reschedule": (
        "ScheduledProducer",
        "AsyncScheduledProducer",
        "PendingReceipt",
        "Receipt",
    ),
    "Consume with retries": (
        "RetryingConsumer",
        "ConsumedMessage",
        "ConsumeResult",
        "ConsumeContext",
        "MessageModel",
    ),
    "Dead letters": (
        "DeadLetters",
        "dead_letters.Filter",
        "dead_letters.Page",
        "dead_letters.DeadLetter",
        "dead_letters.Summary",
        "dead_letters.Redriven",
    ),
    "Topics, headers and levels": ("TopicNames", "DelayLevels", "Header"),
    "Errors": (
        "ScheduleError",
        "RecordGoneError",
        "ReceiptError",
        "ProtectedOptionError",
        "dead_letters.DeadLettersError",
        "dead_letters.FilterError",
        "dead_letters.NoSuchGroupError",
        "dead_letters.NotAnsweredError",
        "dead_letters.RefusedError",
        "dead_letters.TakenOverError",
    ),
}

_LINE = 100
_RUN_BY = "<!-- run by: tests/unit/test_examples.py -->"
_CODE = re.compile(r"(`+[^`]+`+)")
_EXAMPLE = re.compile(r"(?:^>>>.*\n?(?:^(?!>>>).+\n?)*)+", re.MULTILINE)


def python_page() -> str:
    """Raises ValueError where a name that is exported stands in no part, or in two."""
    own = sorted(name for names in _PARTS.values() for name in names if "." not in name)
    if own != sorted(connectors.__all__):
        raise ValueError(f"_PARTS has {own}, connectors exports {sorted(connectors.__all__)}")
    package = griffe.load("connectors", search_paths=[Path(connectors.__file__).parents[1]], docstring_parser="google")
    text = _HEAD
    for part, names in _PARTS.items():
        last_parts = [name.rpartition(".")[2] for name in names]
        text += f"\n{part}: {', '.join(f'[`{name}`](#{name.lower()})' for name in last_parts)}.\n"
    for names in _PARTS.values():
        for name in names:
            named = package[name]
            text += "".join(_class(named.final_target if named.is_alias else named))
    return text


def _class(described: Any) -> Iterator[str]:
    bases = [str(base).rpartition(".")[2] for base in described.bases]
    yield f"\n## {described.name}\n"
    if "__init__" in described.members:
        yield "\n" + _signature(described.signature())
    elif bases and bases != ["Struct"]:
        yield f"\nA `{bases[0]}`.\n"
    yield from _docstring(described)
    members = [member for member in described.members.values() if not member.name.startswith("_")]
    attributes = [member for member in members if member.is_attribute and "property" not in member.labels]
    if attributes:
        what = ("attribute", "type") if attributes[0].annotation else ("member", "value")
        yield "\n" + table((*what, "meaning"), map(_attribute, attributes))
    for member in members:
        if member.is_function:
            yield f"\n### {described.name}.{member.name}\n\n"
            words = "async " if "async" in member.labels else ""
            yield _signature(words + member.signature())
            yield from _docstring(member)
        elif "property" in member.labels:
            yield f"\n### {described.name}.{member.name}\n\n`{member.annotation}`\n"
            yield from _docstring(member)


def _attribute(member: Any) -> tuple[str, str, str]:
    """Name; type, or the value of an enum's; meaning."""
    kind = member.annotation or str(member.value).strip("'")
    return f"`{member.name}`", f"`{kind}`", _line(member.docstring.value if member.docstring else "")


def _signature(text: str) -> str:
    """As code; one that is long has a parameter a line."""
    if len(text) > _LINE:
        begin, _, rest = text.partition("(")
        parameters, _, end = rest.rpartition(")")
        text = f"{begin}(\n{''.join(f'    {parameter},{chr(10)}' for parameter in _split(parameters))}){end}"
    return f"```py\n{text}\n```\n"


def _split(parameters: str) -> list[str]:
    """At the commas that are within no brackets."""
    depth, found = 0, [""]
    for character in parameters:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [parameter.strip() for parameter in found]


def _docstring(described: Any) -> Iterator[str]:
    for section in described.docstring.parsed if described.docstring else ():
        match section.kind:
            case griffe.DocstringSectionKind.text:
                yield "\n" + _text(section.value)
            case griffe.DocstringSectionKind.parameters:
                rows = [(f"`{one.name}`", _line(one.description)) for one in section.value]
                yield "\n" + table(("argument", "meaning"), rows)
            case griffe.DocstringSectionKind.raises:
                rows = [(f"`{one.annotation}`", _line(one.description)) for one in section.value]
                yield "\n" + table(("raises", "when"), rows)
            case griffe.DocstringSectionKind.returns:
                yield "\nReturns " + _line(section.value[0].description) + "\n"
            case _:
                raise ValueError(f"{described.path}: a docstring's {section.kind.value} are not shown")


def _text(text: str) -> str:
    """Paragraphs, in which examples are code."""
    shown, end = [], 0
    for example in _EXAMPLE.finditer(text):
        shown += [_prose(text[end : example.start()].strip()), _RUN_BY, f"```python\n{example.group().rstrip()}\n```"]
        end = example.end()
    shown.append(_prose(text[end:].strip()))
    return "\n\n".join(part for part in shown if part) + "\n"


def _line(text: str) -> str:
    """For a cell."""
    return _words(" ".join(text.split()))


def _prose(text: str) -> str:
    """Paragraphs; those that are indented are code."""
    return "\n\n".join(
        f"```py\n{dedent(paragraph)}\n```" if paragraph.startswith("    ") else _words(paragraph)
        for paragraph in text.split("\n\n")
    )


def _words(text: str) -> str:
    """Nothing in it that Markdown or HTML would take for its own, but for code."""
    return "".join(f"`{part.strip('`')}`" if part.startswith("`") else _escaped(part) for part in _CODE.split(text))


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("*", "\\*")
