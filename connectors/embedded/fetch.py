"""Fetch jars (Kafka's, and what the audit adds to Spark) into the cache, once for a machine.

1. Take the lock file: of two processes that start at the same time one fetches, the other waits and then finds
   nothing missing.
2. Empty the staging folder: what an interrupted run left there may be half a file.
3. Fetch each missing jar into staging through jgo (the user's local Maven repository, then the remote ones), check
   its checksum, and rename it into place: the rename is atomic, so a jar that is there is whole, and the next run
   goes on where an interrupted one stopped.
"""

import copy
import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import tenacity

from connectors.embedded import repositories
from connectors.embedded.errors import JarFetchError, MissingExtraError
from connectors.embedded.jars import Jar, missing_jars

if TYPE_CHECKING:
    from jgo.maven import MavenContext

_THREADS = 8
_ATTEMPTS = 4
_READ_TIMEOUT_S = 30
_LINE_EVERY_JARS = 10  # of plain progress, where there is no terminal


def fetch_jars(title: str, folder: Path, jars: Sequence[Jar]) -> None:
    """Bring every one of the jars into the folder; ``title`` says in messages what they are.

    Raises `MissingExtraError` without jgo, `JarFetchError` when a jar cannot be had or the folder cannot be written.
    """
    try:
        import jgo.maven  # noqa: F401
    except ImportError:
        raise MissingExtraError("jgo") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(folder.name + ".lock"), title):
            missing = missing_jars(folder, jars)
            if missing:
                _fetch_all(title, missing, folder)
    except OSError as error:
        raise JarFetchError(
            f"cannot store the jars of {title} in {folder}: {error}. "
            "Operator action: free or permit that place, or name another one in TIMEWHEEL_CACHE_DIR"
        ) from error


@contextmanager
def _locked(path: Path, title: str) -> Iterator[None]:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                f"timewheel: another process is fetching the jars of {title} into {path.parent}; waiting",
                file=sys.stderr,
            )
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_all(title: str, missing: list[Jar], folder: Path) -> None:
    staging = folder.with_name(folder.name + ".partial")
    shutil.rmtree(staging, ignore_errors=True)
    context = _maven_context(staging)
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="fetch")
    try:
        with _progress(title, len(missing), folder) as advance:
            for done in as_completed([pool.submit(_fetch_one, context, jar, folder) for jar in missing]):
                done.result()
                advance()
    finally:
        pool.shutdown(cancel_futures=True)
        shutil.rmtree(staging, ignore_errors=True)


def _maven_context(staging: Path) -> "MavenContext":
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext

    settings = GlobalSettings.load()
    context = MavenContext(repo_cache=staging, local_repos=[Path(settings.repo_cache)], timeout=_READ_TIMEOUT_S)
    context.remote_repos = repositories.in_order(
        repositories.maven_mirrors(repositories.user_settings_xml()), settings.repositories, context.remote_repos
    )
    return context


def _fetch_one(context: "MavenContext", jar: Jar, folder: Path) -> None:
    context = copy.copy(context)
    context.local_repos = list(context.local_repos)  # its own: a damaged copy there concerns this jar alone
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        wait=tenacity.wait_exponential(multiplier=0.5, max=8) + tenacity.wait_random(0, 1),
        # jgo raises RuntimeError for whatever no repository answered with 200, a passing 503 included.
        retry=tenacity.retry_if_exception_type((OSError, RuntimeError, _WrongChecksumError)),
        reraise=True,
    )
    try:
        retrying(_attempt, context, jar, folder)
    except (OSError, RuntimeError, _WrongChecksumError) as error:
        raise JarFetchError(
            f"cannot fetch {jar.coordinate} after {_ATTEMPTS} attempts: {error}. "
            "Operator action: check the network and HTTPS_PROXY, or name a mirror in ~/.m2/settings.xml, or copy "
            f"{folder} from a machine that has it. What has come is kept: run again to go on"
        ) from error


class _WrongChecksumError(Exception):
    """The bytes that came are not those that were pinned."""


def _attempt(context: "MavenContext", jar: Jar, folder: Path) -> None:
    artifact = context.project(jar.group, jar.artifact).at_version(jar.version).artifact()
    found = artifact.resolve()
    staged = artifact.cached_path
    if staged is None:
        raise RuntimeError("jgo has no place to download to")
    if found != staged:  # in the user's local Maven repository, which stays untouched
        staged.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(found, staged)
    if _sha256(staged) != jar.sha256:
        staged.unlink()
        if found != staged:
            context.local_repos.clear()  # a damaged local copy: the next attempt asks the remote repositories
        raise _WrongChecksumError(f"its SHA-256 is not the pinned {jar.sha256}")
    os.replace(staged, folder / jar.file_name)  # noqa: PTH105


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _progress(title: str, count: int, folder: Path) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, a few plain lines elsewhere; always on stderr, which carries no data."""
    title = f"Fetching {title} ({count} jars, once) into {folder}"
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=count)
            yield lambda: bar.advance(task)
        return
    print(f"timewheel: {title}", file=sys.stderr)
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if done % _LINE_EVERY_JARS == 0 or done == count:
            print(f"timewheel: {done} of {count} jars", file=sys.stderr)

    yield advance
