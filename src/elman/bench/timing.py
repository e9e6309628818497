"""Timing of several contenders in turn, and the medians that come out of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np
import torch

Call = Callable[[], object]
Clock = Callable[[Call], float]  # runs a call and says how many seconds it took
BEFORE_CAPTURE = 3  # calls in which libraries make up their minds


@dataclass(frozen=True)
class Times:
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
        p10, p90 = np.quantile(seconds, (0.1, 0.9)).tolist()
        return Times(median(seconds), p10, p90, len(seconds))


class Rounds(NamedTuple):
    warm_up: int  # rounds that do not count
    least: int  # rounds that count, however long they take
    budget: float  # seconds after which no further round begins


def take_turns(calls: Sequence[Call], clock: Clock, rounds: Rounds) -> tuple[Times, ...]:
    """All in turn, the order changing from round to round, until the time is spent; seconds a call."""
    contenders: tuple[tuple[Call, list[float]], ...] = tuple((call, []) for call in calls)
    for _ in range(rounds.warm_up):
        for call, _seconds in contenders:
            clock(call)
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()  # it stays out of the timing, as in timeit
    try:
        done, end = 0, time.perf_counter() + rounds.budget
        while done < rounds.least or time.perf_counter() < end:
            for call, seconds in contenders if done % 2 else reversed(contenders):
                seconds.append(clock(call))
            done += 1
    finally:
        if enabled:
            gc.enable()
    return tuple(Times.of(seconds) for _call, seconds in contenders)


def host_clock(call: Call, block: int = 1) -> float:
    """Seconds of a call on the host: the mean of ``block`` calls on end."""
    start = time.perf_counter()
    for _ in range(block):
        call()
    return (time.perf_counter() - start) / block


def event_clock(call: Call) -> float:
    """Seconds between two CUDA events around a call that finds the device idle."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def capture(call: Call) -> Call:
    """The same work as a CUDA graph; calling it replays that."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(BEFORE_CAPTURE):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph.replay


def in_one_line(error: BaseException, limit: int = 200) -> str:
    """
    >>> in_one_line(RuntimeError("CUDA error: out of luck\\n  try again"))
    'RuntimeError: CUDA error: out of luck try again'
    """
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def first_cause(error: BaseException) -> BaseException:
    """What happened first: the end of a broken capture is an error as well, and says less."""
    return error if error.__context__ is None else first_cause(error.__context__)
