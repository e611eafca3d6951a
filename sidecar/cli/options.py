"""Command-line options made from the settings model, so that flags, environment and file share one list."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from sidecar.settings import ENV_PREFIX, SECTIONS, Settings, default_of, load_settings, section_of, unknown_environment

_SETTINGS_PANEL = "Settings"
PANELS = frozenset({_SETTINGS_PANEL, *SECTIONS})
"""Headings under which ``--help`` shows flags of settings."""
_CONFIG = f"{ENV_PREFIX}CONFIG"
_CONFIG_HELP = f"Settings as a YAML file. [{_CONFIG}] Each setting can also come from the environment, --group-id from "
_CONFIG_HELP += f"{ENV_PREFIX}GROUP_ID."


def with_settings(
    *, only: tuple[str, ...] = (), logs: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command ``--config`` and a flag per setting; the command gets the resolved `Settings` as ``settings``.

    Args:
        only: the settings that get a flag; all of them where empty. The others still come from environment and file.
        logs: it tells in its log which variables name no setting; of any other command, stderr does.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        own = [parameter for name, parameter in signature.parameters.items() if name != "settings"]
        flags = [_flag(name, _SETTINGS_PANEL if only else section_of(name)) for name in only or Settings.model_fields]
        config = inspect.Parameter(
            "config",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                Path | None,
                typer.Option(
                    "--config",
                    envvar=_CONFIG,
                    show_envvar=False,
                    help=_CONFIG_HELP,
                    metavar="FILE",
                    rich_help_panel=_SETTINGS_PANEL,
                ),
            ],
        )

        @wraps(command)
        def wrapper(**arguments: Any) -> None:
            for name, remedy in [] if logs else unknown_environment():
                typer.echo(f"timewheel: environment variable {name} names no setting; {remedy}", err=True)
            given = {flag.name: arguments.pop(flag.name) for flag in flags}
            chosen = {name: _value(name, value) for name, value in given.items() if value not in (None, [])}
            settings = load_settings(chosen, arguments.pop("config"))
            command(settings=settings, **arguments)

        wrapper.__doc__ = _unwrapped(command.__doc__ or "")
        wrapper.__signature__ = inspect.Signature([*own, config, *flags])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, config, *flags)}
        return wrapper

    return decorate


def _unwrapped(text: str) -> str:
    """Paragraphs without line breaks of their own: the terminal's width decides."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))


def _flag(name: str, panel: str) -> inspect.Parameter:
    field = Settings.model_fields[name]
    description = field.description or ""
    # Of what has no value until the sidecar starts, the description tells it.
    default = "" if "Default:" in description else f" (default: {_shown_default(name)})"
    option = name.replace("_", "-")
    kind: Any = str | None
    declaration = f"--{option}"
    if field.annotation is bool:
        kind, declaration = bool | None, f"--{option}/--no-{option}"
    elif name == "kafka":
        kind = list[str] | None
    option_of_typer = typer.Option(
        declaration,
        help=description + default,
        metavar=_metavar(name),
        rich_help_panel=panel,
        show_default=False,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option_of_typer]
    )


def _metavar(name: str) -> str:
    """What a flag takes, in a word; nothing where it takes nothing."""
    annotation = Settings.model_fields[name].annotation
    if annotation is bool:
        return ""
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    if annotation is int:
        return "NUMBER" if not isinstance(default_of(name), str) else "DURATION"
    return {"kafka": "KEY=VALUE", "data_dir": "DIRECTORY", "levels": "DURATIONS"}.get(name, "TEXT")


def _shown_default(name: str) -> str:
    shown = default_of(name)
    return "none" if shown in (None, "", {}) else str(shown).lower() if isinstance(shown, bool) else str(shown)


def _value(name: str, value: Any) -> Any:
    if name != "kafka":
        return value
    options = {}
    for number, pair in enumerate(value, start=1):
        key, separator, option = pair.partition("=")
        if not separator or not key:
            raise typer.BadParameter(f"number {number} is not key=value", param_hint="--kafka")
        options[key] = option
    return options
