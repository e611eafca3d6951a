"""Which pages are generated."""

from collections.abc import Callable
from pathlib import Path

from docs.generate.commands_page import commands_page
from docs.generate.messages_page import messages_page
from docs.generate.python_page import python_page
from docs.generate.settings_page import settings_page

REFERENCE = Path(__file__).parents[1] / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "messages.md": lambda: messages_page((REFERENCE / "asyncapi.yaml").read_text()),
    "python.md": python_page,
    "settings.md": settings_page,
}
"""By file name below docs/reference."""
