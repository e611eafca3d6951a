"""``timewheel store inspect`` and ``store verify``: a data directory at rest."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sidecar.data_dir import at_rest, is_store, stores
from sidecar.errors import DataDirectoryError

Directory = Annotated[
    Path, typer.Argument(help="The sidecar's data directory, or one of its wheel-N directories.", readable=False)
]
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
    """Show each wheel partition's checkpoint and the size of its logs; exit code 1 where a checkpoint is damaged."""
    from sidecar.store import checkpoint as checkpoints  # with numpy, which no other command waits for
    from sidecar.store.errors import StoreError
    from sidecar.store.files import ReadOnlyFileSystem
    from sidecar.store.timer_store import CHECKPOINT

    told: dict[str, dict[str, Any]] = {}
    failures: list[Exception] = []
    with _at_rest(directory) as partitions:
        for name, path in partitions.items():
            try:
                checkpoint = checkpoints.load(path / CHECKPOINT, ReadOnlyFileSystem())
                sizes = _sizes(path)
            except (StoreError, OSError) as error:
                told[name] = {"checkpoint": None, "error": str(error)}
                failures.append(error)
                continue
            told[name] = {
                "checkpoint": None if checkpoint is None else checkpoints.as_dict(checkpoint),
                "bytes": sizes,
            }
    if as_json:
        typer.echo(json.dumps(told, indent=2))
    else:
        for name, facts in told.items():
            table = Table(name, "")
            shown = facts["checkpoint"] or {"checkpoint": facts.get("error")}
            for key, value in {**shown, **facts.get("bytes", {})}.items():
                table.add_row(key, str(value))
            Console().print(table)
    if failures:
        is_unreadable = any(isinstance(error, OSError) for error in failures)
        raise typer.Exit(DataDirectoryError.exit_code if is_unreadable else 1)


def verify(directory: Directory, as_json: Json = False) -> None:
    """Check every record, slot and checksum; exit code 1 when something is wrong. Nothing is changed.

    A damaged directory needs no repair: the sidecar notices and rebuilds it from Kafka.
    """
    from sidecar.store.files import ReadOnlyFileSystem
    from sidecar.store.opening import check_store

    with _at_rest(directory) as partitions:
        found = {name: check_store(path, ReadOnlyFileSystem()) for name, path in partitions.items()}
        read = {name: _sizes(path) for name, path in partitions.items()}
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for name, problems in found.items():
            logs = " and ".join(f"{log} of {size:,} bytes" for log, size in read[name].items())
            typer.echo(f"{name}: {f'{len(problems)} problems' if problems else f'whole: checkpoint, {logs}'}")
            for problem in problems:
                typer.echo(f"  {problem}")
    if any(found.values()):
        raise typer.Exit(1)


def _sizes(path: Path) -> dict[str, int]:
    """Bytes of each log of a partition."""
    return {name: sum(file.stat().st_size for file in (path / name).glob("*")) for name in ("timerlog", "payload")}


@contextmanager
def _at_rest(directory: Path) -> Iterator[dict[str, Path]]:
    """The wheel partitions, by name, of a directory that no sidecar uses, for as long as the block lasts."""
    directory = directory.absolute()
    is_one = is_store(directory)
    try:
        if not directory.is_dir():
            raise DataDirectoryError(f"{directory} is not a directory")
        with at_rest(directory.parent if is_one else directory):
            found = [directory] if is_one else stores(directory)
            if not found:
                raise DataDirectoryError(
                    f"no store of Timewheel in {directory}: give the data directory, or one of its wheel-N directories"
                )
            yield {str(path.relative_to(directory.parent if is_one else directory)): path for path in found}
    except OSError as error:
        raise DataDirectoryError(f"{directory} cannot be read: {error.strerror}") from error
