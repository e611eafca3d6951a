"""The table: every row with its figures, its floor and its goals."""

from benchmarks import pending
from benchmarks.cold import strewn
from benchmarks.figures import CPU, RATE, Figure, Held, Measure, Row, in_turn
from benchmarks.lateness import HELD, HIGHEST, P50, P99, echo, timer
from benchmarks.rolls import MANY, beside_rolls
from benchmarks.scheduling import producer
from benchmarks.throughput import (
    DEAD,
    DUE_LONG_AGO,
    RATE_BESIDE_DEFAULTS,
    RATE_BESIDE_TWO_HEADERS,
    burst,
    consume_floors,
    floor,
    intake,
    level_backlog,
    orders,
    redrive,
    retry_floors,
    send_back,
    straight_through,
)
from benchmarks.workload import BATCH

BURST_BESIDE = 100_000
"""Records of a burst of which it is asked whether those that wait slow it down."""
BURSTS_BESIDE = 3
"""The first ones after millions were taken in cost more, whatever waits: it is not they that are asked about."""

_CPU = Figure(CPU, Held.EXTRA, form=",.1f")


def _rate(goal: float) -> Figure:
    return Figure(RATE, Held.RATIO, goal)


def _lateness(rate: int, p50_goal: float | None = None, p99_goal: float | None = None, *, is_wish: bool = False) -> Row:
    return Row(
        f"lateness at {rate:,}/s",
        in_turn(timer(rate), echo(rate)),
        "bare transactional echo",
        (
            Figure(P50, Held.EXTRA, p50_goal, ",.1f", is_wish),
            Figure(P99, Held.EXTRA, p99_goal, ",.1f", is_wish),
            Figure(HIGHEST, Held.EXTRA),
            Figure(HELD, Held.RATIO),
            _CPU,
        ),
    )


def _size(value_bytes: int) -> Row:
    return Row(
        f"straight through, values of {value_bytes:,} bytes",
        in_turn(straight_through, floor("relay", DUE_LONG_AGO)),
        "raw transactional relay",
        (_rate(0.85), _CPU),
        lambda load: load.of_size(value_bytes),
        is_extra=True,
    )


def _as_large(name: str, product: Measure, floor_name: str, floor: Measure) -> Row:
    """Beside a floor whose transactions are as large as the sidecar's, which suits the floors, too."""
    figures = Figure(RATE, Held.RATIO), _CPU
    return Row(f"{name}, transactions of one size", in_turn(product, floor), floor_name, figures, is_extra=True)


def _shape(name: str, partitions: int, workers: int = 1) -> Row:
    return Row(
        f"burst, {name}",
        in_turn(
            burst(partitions=partitions, workers=workers), floor("produce", partitions=partitions, processes=workers)
        ),
        "raw transactional produce" if workers == 1 else f"{workers} raw transactional producers",
        (_rate(0.85), _CPU),
        is_extra=True,
    )


def _beside(waiting: int, *, is_extra: bool = True, is_long: bool = False) -> Row:
    """What a record costs must not depend on how many others wait."""
    return Row(
        f"burst beside {waiting:,} that wait",
        in_turn(burst(waiting, times=BURSTS_BESIDE), burst(1_000, times=BURSTS_BESIDE)),
        "the same beside 1,000",
        (_rate(0.9), _CPU._replace(goal=1)),
        lambda load: load.at_most(BURST_BESIDE),
        is_long=is_long,
        is_extra=is_extra,
    )


def _lateness_beside_the_same(name: str, measures: tuple[Measure, Measure], floor_name: str, p50_goal: float) -> Row:
    figures = (
        Figure(P50, Held.EXTRA, p50_goal, ",.1f"),
        Figure(P99, Held.EXTRA, 50, ",.1f"),
        Figure(HIGHEST, Held.EXTRA),
    )
    return Row(f"lateness at {name}", in_turn(*measures), floor_name, (*figures, _CPU), is_extra=True)


def _cold(rate: int) -> Row:
    measures = strewn(rate, is_cold=True), strewn(rate, is_cold=False)
    return _lateness_beside_the_same(f"{rate:,}/s from a cold disk", measures, "the same from memory", 20)


def _rolls(rate: int) -> Row:
    measures = beside_rolls(rate), beside_rolls(rate, many=0)
    return _lateness_beside_the_same(f"{rate:,}/s beside {MANY:,} that roll", measures, "the same with none", 10)


_PENDING = Row(
    "pending",
    pending.pending,
    "raw consume",
    (
        Figure(pending.INTAKE, Held.RATIO, 0.75),
        Figure(pending.INTAKE_BESIDE_DEFAULTS, Held.RATIO),
        Figure(pending.RSS),
        Figure(pending.ANONYMOUS),
        Figure(pending.MAPPED),
        Figure(pending.PEAK),
        Figure(pending.DISK),
        Figure(pending.STOP, form=",.2f"),
        Figure(pending.READY, form=",.2f"),
        Figure(pending.DELIVERING, goal=5, form=",.2f"),
        Figure(pending.READY_KILLED, form=",.2f"),
        Figure(pending.DELIVERING_KILLED, goal=5, form=",.2f"),
        Figure(pending.REBUILD, Held.RATIO),
        Figure(pending.REBUILD_BESIDE_DEFAULTS, Held.RATIO),
        Figure(pending.REBUILD_S, form=",.1f"),
        Figure(pending.PEAK_LATER),
    ),
    is_long=True,
)

ROWS = {
    "level": Row(
        "level backlog", in_turn(level_backlog, floor("relay")), "raw transactional relay", (_rate(0.9), _CPU)
    ),
    "straight": Row(
        "straight through the wheel",
        in_turn(straight_through, floor("relay", DUE_LONG_AGO)),
        "raw transactional relay",
        (_rate(0.85), _CPU),
    ),
    "straight-100": _size(100),
    "straight-1000": _size(1_000),
    "straight-10000": _size(10_000),
    "level-as-large": _as_large(
        "level backlog", level_backlog, "raw transactional relay", floor("relay", batch_records=BATCH)
    ),
    "straight-as-large": _as_large(
        "straight through",
        straight_through,
        "raw transactional relay",
        floor("relay", DUE_LONG_AGO, batch_records=BATCH),
    ),
    "burst-as-large": _as_large("burst", burst(), "raw transactional produce", floor("produce", batch_records=BATCH)),
    "send-back": Row(
        "send-back",
        in_turn(send_back, retry_floors),
        "raw transactional relay",
        (_rate(0.7), Figure(RATE_BESIDE_TWO_HEADERS, Held.RATIO), _CPU),
    ),
    "redrive": Row(
        "redrive of dead letters",
        in_turn(redrive, floor("relay-redriven", *DEAD)),
        "raw transactional relay",
        (_rate(0.7), _CPU),
    ),
    "burst": Row(
        "burst, all due at once", in_turn(burst(), floor("produce")), "raw transactional produce", (_rate(0.85), _CPU)
    ),
    "burst-3-partitions": _shape("3 partitions", 3),
    "burst-12-partitions": _shape("12 partitions", 12),
    "burst-2-workers": _shape("12 partitions, 2 workers", 12, workers=2),
    "burst-beside-100k": _beside(100_000),
    "burst-beside-1m": _beside(1_000_000, is_extra=False),
    "burst-beside-10m": _beside(10_000_000, is_long=True),
    "intake": Row(
        "intake to disk",
        in_turn(intake, consume_floors),
        "raw consume",
        (_rate(0.75), Figure(RATE_BESIDE_DEFAULTS, Held.RATIO), _CPU),
    ),
    "orders": Row(
        "intake, orders scheduled and cancelled in turns",
        in_turn(orders, consume_floors),
        "raw consume",
        (Figure(RATE, Held.RATIO), Figure(RATE_BESIDE_DEFAULTS, Held.RATIO), _CPU),
        is_extra=True,
    ),
    "scheduling": Row(
        "scheduling from Python, without waiting",
        in_turn(producer("scheduled"), producer("bare")),
        "bare producer, same headers",
        (_rate(0.8), _CPU),
    ),
    "lateness-1000": _lateness(1_000),
    "lateness-5000": _lateness(5_000, 10, 40),
    "lateness-10000": _lateness(10_000, 5, 20, is_wish=True),
    "lateness-cold": _cold(10_000),
    "lateness-rolls": _rolls(1_000),
    "pending": _PENDING,
}
"""By the name that ``--only`` takes."""
