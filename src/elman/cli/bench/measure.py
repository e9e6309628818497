"""Timing of several contenders in turn, and the medians that come out of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

Call = Callable[[], Any]
Clock = Callable[[Call], float]


@dataclass(frozen=True)
class Times:
    """Seconds of one side."""

    median: float
    p10: float
    p90: float
    runs: int

    @staticmethod
    def of(seconds: Sequence[float]) -> Times:
        """
        >>> Times.of([3.0, 1.0, 2.0])
        Times(median=2.0, p10=1.2, p90=2.8, runs=3)
        """
        if len(seconds) == 1:
            return Times(seconds[0], seconds[0], seconds[0], 1)
        tenths = quantiles(seconds, n=10, method="inclusive")
        return Times(median(seconds), tenths[0], tenths[-1], len(seconds))


def take_turns(
    calls: Sequence[Call], clock: Clock, *, warm_up: int, least: int, budget: float
) -> tuple[Times, ...]:
    """All in turn, the order changing from round to round, until the time is spent; seconds a call.

    Args:
        clock: runs a call and says how many seconds it took.
        warm_up: rounds that do not count.
        least: rounds that count, however long they take.
        budget: seconds after which no further round begins.
    """
    sides: tuple[tuple[Call, list[float]], ...] = tuple((call, []) for call in calls)
    for _ in range(warm_up):
        for call, _seconds in sides:
            clock(call)
    rounds, end = 0, time.perf_counter() + budget
    with _no_collection():
        while rounds < least or time.perf_counter() < end:
            for call, seconds in sides if rounds % 2 else reversed(sides):
                seconds.append(clock(call))
            rounds += 1
    return tuple(Times.of(seconds) for _call, seconds in sides)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's garbage collector stays out of the timing, as in timeit."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
