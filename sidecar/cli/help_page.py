"""``--help``: every option's name in full at any width. typer's own page cuts names that are long."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_NAMES_SHARE = 3 / 8
"""Of the page's width, for names and what they take; more of them on a line is broken between words."""

Row = tuple[str, str]
"""Names, and what they mean."""


def with_full_names(app: typer.Typer) -> None:
    """Give ``app`` and all its commands this page."""
    app.info.cls = FullNamesGroup
    for command in app.registered_commands:
        command.cls = FullNamesCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            with_full_names(group.typer_instance)


class FullNamesCommand(TyperCommand):
    """A command that does something."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _print_page(self, ctx, _parameters(self, ctx))


class FullNamesGroup(TyperGroup):
    """What holds commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, (command.help or "").split("\n\n")[0]) for name, command in self.commands.items()]
        _print_page(self, ctx, {**_parameters(self, ctx), "Commands": commands})


def _parameters(command: Any, ctx: Any) -> dict[str, list[Row]]:
    """Arguments and options by the panel that they are in, the command's own first."""
    panels: dict[str, list[Row]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(ctx):
        own = "Arguments" if parameter.param_type_name == "argument" else "Options"
        if row := parameter.get_help_record(ctx):
            panels.setdefault(parameter.rich_help_panel or own, []).append(row)
    return panels


def _print_page(command: Any, ctx: Any, panels: dict[str, list[Row]]) -> None:
    """The names' column is as wide in every panel, and no narrower than the longest of them.

    Printed and not given to the formatter, as typer does it: of a call without a command typer shows nothing more.
    """
    # Imported where help is shown: all other calls start without it.
    from rich.console import Console
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    all_names = [names for rows in panels.values() for names, _ in rows]
    longest_word = max(len(word) for names in all_names for word in names.split())
    names_width = max(longest_word, min(int(console.width * _NAMES_SHARE), max(map(len, all_names))))
    console.print(Padding(Text(command.get_usage(ctx), "bold"), 1))
    console.print(Padding(Text(command.help or ""), (0, 1, 1, 1)))
    for title, rows in panels.items():
        if not rows:
            continue
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        table.add_column(style="bold cyan", width=names_width)
        table.add_column(ratio=1)
        for names, meaning in rows:
            table.add_row(Text(names), Text(meaning))
        console.print(Panel(table, title=title, title_align="left", border_style="dim"))
    console.print(Padding(Text(command.epilog or ""), 1))
