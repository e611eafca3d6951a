"""Generators that yield between two steps of their work."""

from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")


def result_of(steps: Generator[object, None, T], between: Callable[[], object] = bool) -> T:
    """Take all steps that are left, with something done between two of them; what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        between()
