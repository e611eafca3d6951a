"""Whether a dependency that `constraints.txt` pins is known to be vulnerable: `python -m tests.supply.advisories`.

A known vulnerability fails, unless `[tool.timewheel.advisories]` of pyproject.toml says why it does not concern us.
Where the advisory service cannot be reached, or knows none of the packages, that is told, and passes;
`TIMEWHEEL_TEST_ADVISORIES=required` makes it a failure.
"""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
WITHIN_S = 120


class Verdict(NamedTuple):
    """What is to be said, and whether that is a failure or, short of one, nothing was learned."""

    lines: list[str]
    is_vulnerable: bool = False
    is_unknown: bool = False


def judge(told: Mapping[str, Any], passed_over: Mapping[str, str]) -> Verdict:
    """What pip-audit's JSON says, less what is passed over (ids with reasons)."""
    lines, used, is_vulnerable = [], set(), False
    looked_at = [dependency for dependency in told["dependencies"] if "skip_reason" not in dependency]
    for dependency in looked_at:
        for found in dependency["vulns"]:
            ids = [found["id"], *found.get("aliases", ())]
            place = f"{dependency['name']} {dependency['version']}: {', '.join(ids)}"
            reasons = [passed_over[one] for one in ids if passed_over.get(one, "").strip()]
            used.update(one for one in ids if one in passed_over)
            if reasons:
                lines.append(f"{place}: passed over, {reasons[0]}")
                continue
            is_vulnerable = True
            mended = ", ".join(found.get("fix_versions", ())) or "no release yet"
            lines.append(f"{place}: mended in {mended}; 'make lock', or say in pyproject.toml why it is none of ours")
    if not looked_at:
        return Verdict(["not looked at: the advisory service knows none of the packages"], is_unknown=True)
    stale = sorted(passed_over.keys() - used)
    lines += [f"{one} is passed over, and is found no more: take it out of pyproject.toml" for one in stale]
    skipped = len(told["dependencies"]) - len(looked_at)
    rest = f", {skipped} not known to the advisory service" if skipped else ""
    lines.append(f"{len(looked_at)} packages looked at{rest}")
    return Verdict(lines, is_vulnerable)


def ask() -> Verdict:
    """Ask the advisory service about all that is pinned."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", "constraints.txt", "--no-deps", "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=WITHIN_S)
        told = json.loads(ended.stdout)
    except subprocess.TimeoutExpired:
        return Verdict([f"not looked at: no answer within {WITHIN_S} s"], is_unknown=True)
    except ValueError:
        last = (ended.stderr.strip().splitlines() or ["pip-audit says nothing"])[-1]
        return Verdict([f"not looked at: {last[:300]}"], is_unknown=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return judge(told, project["tool"]["timewheel"]["advisories"])


def main() -> int:
    verdict = ask()
    for line in verdict.lines:
        print(f"advisories: {line}")
    is_required = os.environ.get("TIMEWHEEL_TEST_ADVISORIES") == "required"
    return int(verdict.is_vulnerable or (verdict.is_unknown and is_required))


if __name__ == "__main__":
    raise SystemExit(main())
