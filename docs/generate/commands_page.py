"""docs/reference/commands.md, out of the command itself."""

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

from docs.generate.tables import sentence, table
from sidecar.cli.main import make_app
from sidecar.cli.options import PANELS
from sidecar.settings import Settings

_HEAD = """\
# Commands

<!-- Made by python -m docs.generate (make docs) of sidecar/cli. -->

`timewheel COMMAND --help` says the same, with a runnable example. Below each command are the names of the
[settings](settings.md) it uses: set each by flag, by environment variable or in the file of `--config`. With `--json`,
commands print data for programs; its format does not change within a major version. [Exit codes](exit-codes.md) are
the same for all commands.
"""


def commands_page() -> str:
    return _HEAD + "".join(_section(path, command) for path, command in _commands(typer.main.get_command(make_app())))


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, by its words."""
    if not hasattr(group, "commands"):
        yield path, group
        return
    for name, command in group.commands.items():
        yield from _commands(command, (*path, name))


def _section(path: tuple[str, ...], command: Any) -> str:
    name = " ".join(("timewheel", *path))
    own = [option for option in command.params if option.name not in Settings.model_fields or _is_own(option)]
    settings = [option.name for option in command.params if option not in own and option.name != "config"]
    arguments = [option for option in own if option.param_type_name == "argument"]
    options = [option for option in own if option.param_type_name == "option" and option.name not in ("config", "help")]
    words = " ".join((name, *(_metavar(argument) for argument in arguments)))
    text = f"\n## {name}\n\n"
    text += f"`{words}{' [OPTIONS]' if options or settings else ''}`\n\n{_paragraphs(command.help or '')}\n"
    rows = [(f"`{_metavar(argument)}`", sentence(argument.help or "")) for argument in arguments]
    rows += [(_flags(option), sentence(option.help or "") + _default(option)) for option in options]
    if rows:
        text += "\n" + table(("", "meaning"), rows)
    if len(settings) == len(Settings.model_fields):
        text += "\nSettings: all of them.\n"
    elif settings:
        text += f"\nSettings: {', '.join(f'`{setting}`' for setting in settings)}.\n"
    return text + f"\n{sentence(command.epilog or '').replace('Example: ', 'Example: `', 1)}`\n"


def _is_own(option: Any) -> bool:
    """Whether a command means something of its own by the name of a setting."""
    return bool(option.param_type_name == "argument" or option.rich_help_panel not in PANELS)


def _metavar(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return f"{name}{'...' if argument.nargs == -1 else ''}" if argument.required else f"[{name}]"


def _flags(option: Any) -> str:
    names = [*option.opts, *option.secondary_opts]
    takes = "" if option.is_flag else f" {option.metavar or _kind(option.type_descriptor.annotation)}"
    return "<br>".join(f"`{name}{takes}`" for name in names)


def _kind(annotation: Any) -> str:
    """What an option takes, once or several times: TEXT, INTEGER, FLOAT, PATH, or one of several words."""
    if get_origin(annotation) is list:
        return _kind(get_args(annotation)[0])
    if issubclass(annotation, Enum):
        return "|".join(str(choice.value) for choice in annotation)
    return {str: "TEXT", int: "INTEGER", float: "FLOAT", Path: "PATH"}[annotation]


def _default(option: Any) -> str:
    if option.required:
        return " Required."
    if option.is_flag or option.default in (None, (), []):
        return ""
    default = getattr(option.default, "value", option.default)
    return f" Default: `{default}`."


def _paragraphs(text: str) -> str:
    return "\n\n".join(sentence(paragraph) for paragraph in text.split("\n\n"))
