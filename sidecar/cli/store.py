"""``timewheel store inspect`` and ``store verify``: a data directory at rest."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sidecar.data_dir import at_rest, stores
from sidecar.errors import DataDirectoryError

Directory = Annotated[Path, typer.Argument(help="The sidecar's data directory.", readable=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True,
        help="A data directory at rest: what it holds, and whether it is whole.",
        epilog="Example: timewheel store inspect /var/lib/timewheel",
    )
    group.command(epilog="Example: timewheel store inspect /var/lib/timewheel --json")(inspect)
    group.command(epilog="Example: timewheel store verify /var/lib/timewheel")(verify)
    app.add_typer(group, name="store")


def inspect(directory: Directory, as_json: Json = False) -> None:
    """Show each wheel partition's checkpoint and the size of its logs."""
    from sidecar.store import checkpoint as checkpoints  # with numpy, which no other command waits for
    from sidecar.store.errors import StoreError
    from sidecar.store.files import RealFileSystem
    from sidecar.store.timer_store import CHECKPOINT

    told: dict[str, dict[str, Any]] = {}
    with _at_rest(directory) as partitions:
        for path in partitions:
            try:
                checkpoint = checkpoints.load(path / CHECKPOINT, RealFileSystem())
            except StoreError as error:
                told[str(path.relative_to(directory))] = {"checkpoint": str(error)}
                continue
            sizes = {
                name: sum(file.stat().st_size for file in (path / name).glob("*")) for name in ("timerlog", "payload")
            }
            told[str(path.relative_to(directory))] = {
                "checkpoint": None if checkpoint is None else checkpoints.as_dict(checkpoint),
                "bytes": sizes,
            }
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    for name, facts in told.items():
        table = Table(name, "")
        checkpoint_facts = facts["checkpoint"]
        shown = checkpoint_facts if isinstance(checkpoint_facts, dict) else {"checkpoint": checkpoint_facts}
        for key, value in {**shown, **facts.get("bytes", {})}.items():
            table.add_row(key, str(value))
        Console().print(table)


def verify(directory: Directory, as_json: Json = False) -> None:
    """Check every record, slot and checksum; exit code 1 when something is wrong. Nothing is changed.

    A damaged directory needs no repair: the sidecar notices and rebuilds it from Kafka.
    """
    from sidecar.store.files import RealFileSystem
    from sidecar.store.opening import check_store

    with _at_rest(directory) as partitions:
        found = {str(path.relative_to(directory)): check_store(path, RealFileSystem()) for path in partitions}
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for name, problems in found.items():
            typer.echo(f"{name}: {'whole' if not problems else f'{len(problems)} problems'}")
            for problem in problems:
                typer.echo(f"  {problem}")
    if any(found.values()):
        raise typer.Exit(1)


@contextmanager
def _at_rest(directory: Path) -> Iterator[list[Path]]:
    """The wheel partitions of a directory that no sidecar uses, for as long as the block lasts."""
    try:
        if not directory.is_dir():
            raise DataDirectoryError(f"{directory} is not a directory")
        with at_rest(directory):
            yield stores(directory)
    except OSError as error:
        raise DataDirectoryError(f"{directory} cannot be read: {error.strerror}") from error
