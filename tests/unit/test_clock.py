"""The clock that does not go back."""

from dataclasses import dataclass

import pytest

from sidecar.clock import HighWaterClock, SystemClock


@dataclass
class HostClock:
    """Wall and monotonic time, apart."""

    wall: int = 1_000_000
    monotonic: float = 50.0

    def now_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> float:
        return self.monotonic

    def pass_ms(self, elapsed_ms: int, *, step_ms: int = 0) -> None:
        self.monotonic += elapsed_ms
        self.wall += elapsed_ms + step_ms


def steps(clock: HighWaterClock) -> tuple[int, int]:
    return clock.steps_back, clock.steps_forward


def test_time_that_passes_is_shown_as_it_is() -> None:
    host = HostClock()
    clock = HighWaterClock(host)
    for elapsed_ms in (0, 1, 86_400_000):
        host.pass_ms(elapsed_ms)
        assert clock.now_ms() == host.wall
        assert clock.monotonic_ms() == host.monotonic
    assert steps(clock) == (0, 0)


def test_after_a_step_back_the_highest_time_stays_until_it_is_reached_again() -> None:
    host = HostClock()
    clock = HighWaterClock(host)
    host.pass_ms(10, step_ms=-60_000)
    assert clock.now_ms() == 1_000_000
    assert (steps(clock), clock.last_step_ms) == ((1, 0), -60_000)
    host.pass_ms(59_990)
    assert clock.now_ms() == 1_000_000
    host.pass_ms(1)
    assert clock.now_ms() == 1_000_001
    assert steps(clock) == (1, 0)


def test_a_step_forward_is_followed_at_once_and_counted_once() -> None:
    host = HostClock()
    clock = HighWaterClock(host)
    host.pass_ms(10, step_ms=60_000)
    assert clock.now_ms() == 1_060_010
    host.pass_ms(10)
    assert clock.now_ms() == 1_060_020
    assert (steps(clock), clock.last_step_ms) == ((0, 1), 60_000)


def test_a_step_forth_and_back_leaves_the_highest_time() -> None:
    host = HostClock()
    clock = HighWaterClock(host)
    host.pass_ms(0, step_ms=60_000)
    clock.now_ms()
    host.pass_ms(0, step_ms=-60_000)
    assert clock.now_ms() == 1_060_000
    assert steps(clock) == (1, 1)


@pytest.mark.parametrize(("step_ms", "counted"), [(1_000, 0), (1_001, 1), (-1_000, 0), (-1_001, 1)])
def test_small_corrections_are_no_steps(step_ms: int, counted: int) -> None:
    host = HostClock()
    clock = HighWaterClock(host, step_tolerance_ms=1_000)
    host.pass_ms(5, step_ms=step_ms)
    clock.now_ms()
    assert sum(steps(clock)) == counted


def test_a_host_that_slept_has_stepped_forward() -> None:
    host = HostClock()
    clock = HighWaterClock(host)
    host.wall += 3_600_000  # the monotonic clock stands still while a machine is suspended
    assert clock.now_ms() == 4_600_000
    assert steps(clock) == (0, 1)


def test_the_hosts_clocks_are_in_milliseconds() -> None:
    clock = SystemClock()
    assert 1_600_000_000_000 < clock.now_ms() < 10_000_000_000_000
    earlier_ms = clock.monotonic_ms()
    assert clock.monotonic_ms() >= earlier_ms
