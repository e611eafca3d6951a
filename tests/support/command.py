"""``timewheel`` as users run it: a process of its own, with what it prints."""

import json
import subprocess
import sys
from typing import Any

Ended = subprocess.CompletedProcess[str]


def timewheel(*arguments: str, stdin: str = "", timeout_s: float = 60.0) -> Ended:
    """Run a command to its end."""
    command = [sys.executable, "-m", "sidecar", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout_s)


def told(*arguments: str, stdin: str = "") -> Any:
    """What a command that succeeds prints, as JSON."""
    ended = timewheel(*arguments, stdin=stdin)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def told_lines(text: str) -> list[dict[str, Any]]:
    """A JSON object a line."""
    return [json.loads(line) for line in text.splitlines()]
