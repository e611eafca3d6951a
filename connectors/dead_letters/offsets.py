"""A set of offsets, kept as ranges: of dead letters mostly neighbours are redriven together."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]
"""First and last offset."""


class Offsets:
    """Offsets of one partition.

    >>> offsets = Offsets([(5, 7), (0, 2), (3, 4)])
    >>> 7 in offsets, 8 in offsets, list(offsets)
    (True, False, [(0, 7)])
    """

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        merged: list[Range] = []
        for first, last in sorted(ranges):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(last, merged[-1][1])
            else:
                merged.append((first, last))
        self._ranges = merged
        self._firsts = [first for first, _ in merged]

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._firsts, offset) - 1
        return at >= 0 and offset <= self._ranges[at][1]

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)


def runs(offsets: Iterable[tuple[int, bool]]) -> list[Range]:
    """Ranges of what is chosen, of offsets in order with whether each is; offsets that no record has join a range.

    >>> runs([(0, True), (2, True), (3, False), (4, True)])
    [(0, 2), (4, 4)]
    """
    ranges: list[Range] = []
    is_open = False
    for offset, is_chosen in offsets:
        if is_chosen and is_open:
            ranges[-1] = ranges[-1][0], offset
        elif is_chosen:
            ranges.append((offset, offset))
        is_open = is_chosen
    return ranges
