"""A status as a terminal shows it: what is asked first stands first, and what has no room is left out from below."""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sidecar.cli.pager import plain

STYLES = {
    "healthy": "bold green",
    "behind": "bold yellow",
    "held": "bold yellow",
    "recovering": "bold yellow",
    "starting": "bold yellow",
    "stopping": "bold yellow",
}
BAD = "bold red"
_BAR = 24
_REASONS_MAX = 3


def render(told: dict[str, Any], height: int, fault: str = "") -> RenderableType:
    """The status in at most ``height`` lines.

    Args:
        fault: why what is shown is old.
    """
    lines: list[RenderableType] = [*_head(told, fault), Text(), _figures(told), Text()]
    room = height - len(lines) - 3
    queues = [row for row in told["queues"] if row["waiting"] or row["ingested_per_s"] or row["delivered_per_s"]]
    if room > 2:
        shown = queues[: room - 1]
        lines.append(_queues(shown, told["at_ms"]))
        room -= len(shown) + 2
    topics = sorted(told["pending_by_topic"].items(), key=lambda item: -item[1])
    if topics and room > 2:
        lines += [Text(), _topics(topics[: min(10, room - 1)])]
    return Group(*lines)


def first_of(reasons: Sequence[str]) -> list[str]:
    """As many as one reads; a topic or partition each, there may be dozens. All of them are in ``--json``."""
    more = len(reasons) - _REASONS_MAX
    return [*reasons[:_REASONS_MAX], *([f"and {more} more"] if more > 0 else [])]


def in_a_line(told: dict[str, Any]) -> str:
    """For a log: time, state, words."""
    at = datetime.fromtimestamp(told["at_ms"] / 1000).astimezone().isoformat(timespec="seconds")
    return f"{at} {told['state']}: {told['words']}"


def _head(told: dict[str, Any], fault: str) -> list[RenderableType]:
    if fault:
        at = datetime.fromtimestamp(told["at_ms"] / 1000).astimezone()
        return [Text(f"NO ANSWER  {fault}", BAD), Text(f"what is below was so at {at:%H:%M:%S}", "dim")]
    state = told["state"].upper().replace("_", " ")
    lasting = f"  for {duration(told['state_for_ms'])}" if told["state_for_ms"] >= 1000 else ""
    first = Text.assemble((state, STYLES.get(told["state"], BAD)), (lasting, "dim"))
    lines = [first, Text(told["words"])]
    if told["progress"] is not None:
        done = round(told["progress"] * _BAR)
        lines.append(Text(f"[{'=' * done}{' ' * (_BAR - done)}] {told['progress']:.0%}"))
    if told["action"]:
        lines.append(Text(f"-> {told['action']}"))
    lines += [Text(f"not ready: {reason}", "dim") for reason in first_of(told["reasons"])]
    lines += [Text(warning, "yellow") for warning in told["warnings"]]
    return [*lines]


def _figures(told: dict[str, Any]) -> Table:
    late = told["lateness"]["minute"]
    pending = "-" if told["pending"] is None else f"{told['pending']['total']:,}"
    behind_ms = told["behind_seconds"] * 1000
    figures = {
        "behind": duration(behind_ms) if behind_ms > 1000 else "0 s",
        "late p50": duration(late["p50_ms"]),
        "late p99": duration(late["p99_ms"]),
        "out/s": f"{told['rates']['delivered']:,.1f}",
        "in/s": f"{told['rates']['ingested']:,.1f}",
        "on the wheel": pending,
        "rejected": f"{sum(told['rejected'].values()):,}",
    }
    table = _table()
    for name in figures:
        table.add_column(name, justify="right")
    table.add_row(*figures.values())
    return table


def _queues(rows: list[dict[str, Any]], at_ms: int) -> Table:
    table = _table()
    table.add_column("queue")
    for name in ("waiting", "not read", "next due", "in/s", "out/s", "late p99"):
        table.add_column(name, justify="right")
    for row in rows:
        name = f"level {row['queue']} ({row['delay']})" if row["delay"] else row["queue"]
        unread = "-" if row["unread"] is None else f"{row['unread']:,}"
        table.add_row(
            name,
            f"{row['waiting']:,}",
            unread,
            _from_now(row["next_due_ms"], at_ms),
            f"{row['ingested_per_s']:,.1f}",
            f"{row['delivered_per_s']:,.1f}",
            duration(row["p99_ms"]),
        )
    return table


def _topics(topics: list[tuple[str, int]]) -> Table:
    table = _table()
    table.add_column("on the wheel, by topic")
    table.add_column("", justify="right")
    table.add_column("")
    most = max(count for _, count in topics)
    for topic, count in topics:
        table.add_row(plain(topic), f"{count:,}", Text("#" * max(1, round(_BAR * count / max(1, most))), "blue"))
    return table


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="dim", padding=(0, 3, 0, 0))


def _from_now(at_ms: int | None, now_ms: int) -> str:
    if at_ms is None:
        return "-"
    if abs(at_ms - now_ms) < 1000:
        return "now"
    return f"in {duration(at_ms - now_ms)}" if at_ms > now_ms else f"{duration(now_ms - at_ms)} ago"


def duration(ms: float | None) -> str:
    """For people: ``12 ms``, ``4.2 s``, ``3 min``, ``5 h``, ``2 d``."""
    if ms is None:
        return "-"
    for unit, unit_ms, most in (("ms", 1, 1_000), ("s", 1_000, 120_000), ("min", 60_000, 7_200_000)):
        if ms < most:
            value = ms / unit_ms
            return f"{value:.1f} {unit}" if value < 10 and unit != "min" else f"{value:.0f} {unit}"
    return f"{ms / 3_600_000:.0f} h" if ms < 172_800_000 else f"{ms / 86_400_000:.0f} d"


def nothing_known(fault: str) -> dict[str, Any]:
    """Stands for a status while there has been none."""
    return {
        "at_ms": time.time_ns() // 1_000_000,
        "state": "gone",
        "state_for_ms": 0,
        "words": fault,
        "progress": None,
        "action": "",
        "reasons": [],
        "warnings": [],
        "lateness": {"minute": {"p50_ms": None, "p99_ms": None}},
        "pending": None,
        "behind_seconds": 0.0,
        "rates": {"delivered": 0.0, "ingested": 0.0},
        "rejected": {},
        "queues": [],
        "pending_by_topic": {},
    }
