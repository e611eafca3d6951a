"""Runs targets guided by coverage, and keeps what reaches new code: `python -m tests.fuzz.run --seconds 60 [TARGET …]`.

libFuzzer, through atheris, in a process for each target. It works in `.fuzz/`, where a finding is left as `crash-…`,
`timeout-…` or `oom-…`; at the end those inputs go to `corpus/` that make our code go where no other made it go.
"""

import argparse
import hashlib
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import structlog

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
ROOT = HERE.parents[1]
WORK = ROOT / ".fuzz"
OURS = (str(ROOT / "sidecar"), str(ROOT / "connectors"))
INPUT_MAX_BYTES = 4_096
KEPT_MAX_BYTES = 2_048
"""What is kept is read by people, too."""
MEMORY_MAX_MB = 1_024
ONE_WITHIN_S = 10
Arc = tuple[str, int, int]
"""File, and from which line to which."""

_HERE = "--in-this-process"
_DONE = re.compile(r"Done (\d+) runs in (\d+) second")


def names() -> list[str]:
    """The targets."""
    return sorted(path.stem for path in HERE.glob("*.py") if "\ndef fuzz_one(" in path.read_text())


def be_quiet() -> None:
    """What the sidecar logs of millions of inputs nobody reads."""
    structlog.configure([structlog.processors.KeyValueRenderer()], logger_factory=structlog.ReturnLoggerFactory())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="how long each target runs")
    parser.add_argument("targets", nargs="*", help="some of them; all where none is named")
    given = parser.parse_args()
    be_quiet()
    known = names()
    unknown = set(given.targets) - set(known)
    if unknown:
        parser.error(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    found = [name for name in given.targets or known if not _run(name, given.seconds)]
    if found:
        print(f"found something: {', '.join(found)}; the inputs are in {WORK}")
    return 1 if found else 0


def _run(name: str, seconds: int) -> bool:
    """Whether nothing was found."""
    kept, work = CORPUS / name, WORK / name
    for directory in (kept, work / "inputs"):
        directory.mkdir(parents=True, exist_ok=True)
    options = [
        *(f"-max_total_time={seconds}", f"-max_len={INPUT_MAX_BYTES}", f"-timeout={ONE_WITHIN_S}"),
        *(f"-rss_limit_mb={MEMORY_MAX_MB}", f"-artifact_prefix={work}/", f"-dict={work / 'dictionary'}"),
        *("-print_final_stats=1", "-use_value_profile=1"),
    ]
    ended = _child(name, [*options, str(work / "inputs"), str(kept)])
    (work / "log").write_text(ended.stdout + ended.stderr)
    done = _DONE.search(ended.stderr)
    runs, took = (int(done[1]), max(1, int(done[2]))) if done else (0, 1)
    is_fine = ended.returncode == 0
    print(f"{name}: {runs} runs in {took} s, {runs // took}/s, {'nothing found' if is_fine else 'FOUND SOMETHING'}")
    if not is_fine:
        print("\n".join([*ended.stdout.splitlines()[-30:], *ended.stderr.splitlines()[-12:]]))
        return False
    print(f"{name}: {_keep(name, work / 'inputs')} inputs added to the corpus")
    return True


def _keep(name: str, inputs: Path) -> int:
    """Keep those of the inputs that reach what the corpus does not, the smallest first; returns how many."""
    target = importlib.import_module(f"tests.fuzz.{name}")
    kept = CORPUS / name
    kept.mkdir(parents=True, exist_ok=True)
    reached: set[Arc] = set()
    for data in (*target.SEEDS, *(path.read_bytes() for path in sorted(kept.iterdir()))):
        reached |= _arcs(target.fuzz_one, data)
    count = 0
    for data in sorted((path.read_bytes() for path in inputs.iterdir()), key=lambda data: (len(data), data)):
        if len(data) > KEPT_MAX_BYTES:
            break
        new = _arcs(target.fuzz_one, data) - reached
        if new:
            reached |= new
            count += 1
            (kept / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)
    return count


def _arcs(fuzz_one: Callable[[bytes], None], data: bytes) -> set[Arc]:
    """From where to where the code of ours has gone."""
    found: set[Arc] = set()
    places: dict[FrameType, int] = {}

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            found.add((frame.f_code.co_filename, places.get(frame, 0), frame.f_lineno))
            places[frame] = frame.f_lineno
        elif event == "return":
            places.pop(frame, None)
        return trace

    sys.settrace(trace)
    try:
        fuzz_one(data)
    finally:
        sys.settrace(None)
    return found


def _child(name: str, options: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz.run", _HERE, name, *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)


def _run_here(name: str, options: list[str]) -> int:
    import atheris

    with atheris.instrument_imports(include=["sidecar", "connectors"]):
        target = importlib.import_module(f"tests.fuzz.{name}")
    (WORK / name).mkdir(parents=True, exist_ok=True)
    (WORK / name / "dictionary").write_text("".join(f'"{_quoted(word)}"\n' for word in target.DICTIONARY))
    for number, seed in enumerate(target.SEEDS):
        (WORK / name / "inputs").mkdir(exist_ok=True)
        (WORK / name / "inputs" / f"seed-{number}").write_bytes(seed)
    be_quiet()
    atheris.Setup([sys.argv[0], *options], target.fuzz_one)
    atheris.Fuzz()
    return 0


def _quoted(word: str) -> str:
    return word.replace('"', '\\"')


if __name__ == "__main__":
    raise SystemExit(_run_here(sys.argv[2], sys.argv[3:]) if sys.argv[1:2] == [_HERE] else main())
