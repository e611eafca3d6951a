"""The clock that does not go back, and who reads others."""

import re
from pathlib import Path

import pytest

from connectors.testing import ManualClock
from sidecar.clock import HighWaterClock, SystemClock

ROOT = Path(__file__).parents[2]
READS_TIME = re.compile(
    r"\btime\.(time|monotonic|perf_counter)(_ns)?\b|\bfrom time import|\b(datetime|date)\.(now|utcnow|today)\b"
)


def pass_ms(host: ManualClock, elapsed_ms: int, *, step_ms: int = 0) -> None:
    host.advance(elapsed_ms)
    host.step_wall(step_ms)


def steps(clock: HighWaterClock) -> tuple[int, int]:
    return clock.steps_back, clock.steps_forward


def test_time_that_passes_is_shown_as_it_is() -> None:
    host = ManualClock(1_000_000)
    clock = HighWaterClock(host)
    for elapsed_ms in (0, 1, 86_400_000):
        pass_ms(host, elapsed_ms)
        assert clock.now_ms() == host.now_ms()
        assert clock.monotonic_ms() == host.monotonic_ms()
    assert steps(clock) == (0, 0)


def test_after_a_step_back_the_highest_time_stays_until_it_is_reached_again() -> None:
    host = ManualClock(1_000_000)
    clock = HighWaterClock(host)
    pass_ms(host, 10, step_ms=-60_000)
    assert clock.now_ms() == 1_000_000
    assert (steps(clock), clock.last_step_ms) == ((1, 0), -60_000)
    pass_ms(host, 59_990)
    assert clock.now_ms() == 1_000_000
    pass_ms(host, 1)
    assert clock.now_ms() == 1_000_001
    assert steps(clock) == (1, 0)


def test_a_step_forward_is_followed_at_once_and_counted_once() -> None:
    host = ManualClock(1_000_000)
    clock = HighWaterClock(host)
    pass_ms(host, 10, step_ms=60_000)
    assert clock.now_ms() == 1_060_010
    pass_ms(host, 10)
    assert clock.now_ms() == 1_060_020
    assert (steps(clock), clock.last_step_ms) == ((0, 1), 60_000)


def test_a_step_forth_and_back_leaves_the_highest_time() -> None:
    host = ManualClock(1_000_000)
    clock = HighWaterClock(host)
    pass_ms(host, 0, step_ms=60_000)
    clock.now_ms()
    pass_ms(host, 0, step_ms=-60_000)
    assert clock.now_ms() == 1_060_000
    assert (steps(clock), clock.ahead_ms) == ((1, 1), 60_000)
    pass_ms(host, 60_001)
    clock.now_ms()
    assert clock.ahead_ms == 0


@pytest.mark.parametrize(("step_ms", "counted"), [(1_000, 0), (1_001, 1), (-1_000, 0), (-1_001, 1)])
def test_small_corrections_are_no_steps(step_ms: int, counted: int) -> None:
    host = ManualClock(1_000_000)
    clock = HighWaterClock(host, step_tolerance_ms=1_000)
    pass_ms(host, 5, step_ms=step_ms)
    clock.now_ms()
    assert sum(steps(clock)) == counted


def test_a_host_that_slept_has_stepped_forward() -> None:
    host = ManualClock(1_000_000)
    clock = HighWaterClock(host)
    host.step_wall(3_600_000)  # the monotonic clock stands still while a machine is suspended
    assert clock.now_ms() == 4_600_000
    assert steps(clock) == (0, 1)


def test_the_hosts_clocks_are_in_milliseconds() -> None:
    clock = SystemClock()
    assert 1_600_000_000_000 < clock.now_ms() < 10_000_000_000_000
    earlier_ms = clock.monotonic_ms()
    assert clock.monotonic_ms() >= earlier_ms


def test_only_the_clocks_commands_and_the_embedded_kafka_read_time() -> None:
    """So says ARCHITECTURE.md: what decides or measures by time has it from a clock that a test can move."""
    paths = [path for package in ("sidecar", "connectors") for path in (ROOT / package).rglob("*.py")]
    readers = {str(path.relative_to(ROOT)) for path in paths if READS_TIME.search(path.read_text())}
    others = {name for name in readers if not name.startswith(("sidecar/cli/", "connectors/embedded/"))}
    assert others == {"connectors/clock.py"}
