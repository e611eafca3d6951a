"""docs/reference/settings.md, out of the settings model."""

import inspect
from pathlib import Path
from typing import Any, get_args

import annotated_types
from pydantic import AfterValidator

from connectors.durations import format_duration
from docs.generate.tables import sentence, table
from sidecar.settings import (
    ENV_PREFIX,
    SECTIONS,
    DurationMs,
    Globs,
    KafkaOptions,
    Levels,
    Settings,
    Token,
    default_of,
    section_of,
)

_HEAD = """\
# Settings

<!-- Made by python -m docs.generate (make docs) of sidecar/settings.py. -->

Each setting has a flag, an environment variable and a name in the YAML file of `--config` (or
`TIMEWHEEL_CONFIG`). A flag wins over the variable, the variable over the file, and the file over the default.
`timewheel config` prints the result, with secrets masked.

- **Durations** are whole numbers with `ms`, `s`, `m`, `h` or `d`, also combined: `1h30m`. A bare number is refused.
- **Lists** are globs separated by commas: `orders-*,payments`.
- **kafka** is a map in YAML, JSON in the environment, and `--kafka key=value`, repeated, on the command line. The three
  are merged, option by option. An option that the guarantee depends on is refused, with a message.
- **Switches** are `--name` and `--no-name` on the command line, `true` and `false` elsewhere.

An unknown name is refused in the file and on the command line; in the environment it causes a warning.

"""


def settings_page() -> str:
    rows: dict[str, list[tuple[str, ...]]] = {}
    for name, field in Settings.model_fields.items():
        rows.setdefault(section_of(name), []).append(
            (
                f"`{name}`<br>`--{name.replace('_', '-')}`<br>`{ENV_PREFIX}{name.upper()}`",
                _kind(name),
                _shown(default_of(name)),
                sentence(field.description or ""),
            )
        )
    columns = ("name, flag, variable", "what", "default", "meaning")
    return _HEAD + "\n".join(f"## {section}\n\n{table(columns, rows[section])}" for section in SECTIONS)


def _shown(default: Any) -> str:
    if default in (None, "", {}):
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _kind(name: str) -> str:
    """What may be written, with its limits."""
    annotation = inspect.get_annotations(Settings)[name]
    field = Settings.model_fields[name]
    if annotation in (Globs, Levels, KafkaOptions, Token):
        return {Globs: "list", Levels: "durations with blanks", KafkaOptions: "map", Token: "secret"}[annotation]
    if annotation is DurationMs:
        return "duration"
    if get_args(annotation)[:1] == get_args(DurationMs)[:1] and len(get_args(annotation)) > len(get_args(DurationMs)):
        return f"duration, at least {_least(annotation)}"
    if field.annotation is bool:
        return "switch"
    if field.annotation is Path:
        return "path"
    if field.annotation is int:
        return _range(field.metadata)
    choices = [str(choice) for choice in get_args(field.annotation) if isinstance(choice, str)]
    return " or ".join(f"`{choice}`" for choice in choices) or "text"


def _least(annotation: Any) -> str:
    """The limit that `_at_least` closes over."""
    (check,) = (part.func for part in get_args(annotation)[1:] if isinstance(part, AfterValidator))
    return format_duration(inspect.getclosurevars(check).nonlocals["least_ms"])


def _range(metadata: list[Any]) -> str:
    least = [part.ge for part in metadata if isinstance(part, annotated_types.Ge)]
    most = [part.le for part in metadata if isinstance(part, annotated_types.Le)]
    return f"{least[0]:,} to {most[0]:,}" if least and most else f"at least {least[0]:,}" if least else "number"
