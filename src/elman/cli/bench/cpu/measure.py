"""Timing of a case: interleaved runs, medians, and the floor that the machine itself sets."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass

import torch

from elman.cli.bench.cpu.cases import LATER, Case
from elman.cli.bench.cpu.sides import build, compare, draw
from elman.cli.bench.cpu.stream import build_stream, carry, compare_stream
from elman.cli.bench.first import FirstUse, measure_first
from elman.cli.bench.measure import Call, Times, take_turns
from elman.cli.bench.sides import Errors, Run
from elman.tensors.products import multiply

WARM_UP = 2  # rounds that do not count
LEAST = {False: 5, True: 3}  # rounds that count, however long they take; by quick
BUDGET = {False: 1.5, True: 0.3}  # seconds a case
BLOCK = 200  # streaming steps of one side on end
FEW_ROWS = 4  # below it, reading the weights is what takes the time


@dataclass(frozen=True)
class Rates:
    """What this machine can do with all of torch's threads: the measure of ``ours/floor``."""

    flops: float  # per second, in a large float32 product
    bytes: float  # per second, read from the cache


@dataclass(frozen=True)
class Result:
    """What was found for a case; what does not apply is None."""

    case: Case
    ours: Times
    peer: Times | None = None
    floor: float | None = None
    errors: Errors | None = None
    alternating: tuple[Times, Times] | None = None  # streams: ours and the peer's, call by call
    from_cache: bool | None = None

    @property
    def ratio(self) -> float | None:
        """How many times faster than the peer."""
        return None if self.peer is None else self.peer.median / self.ours.median

    @property
    def over_floor(self) -> float | None:
        return self.ours.median / self.floor if self.floor else None

    @property
    def worst_error(self) -> float | None:
        """Of ours: against the peer and against the float64 loop."""
        return None if self.errors is None else max(self.errors.float64, self.errors.peer or 0.0)


def measure(case: Case, rates: Rates, *, quick: bool) -> Result:
    """One case, checked and timed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return {"first": _first, "stream": _stream}.get(case.mode, _sequence)(case, rates, quick)


def floor(weights: int, recurrent: int, case: Case, steps: int, rates: Rates) -> float:
    """Seconds below which no code on this machine can be, whatever it does.

    Every real step multiplies every weight once, training three times (forward, gradient of the
    inputs, gradient of the weights). With few rows the recurrent weights must besides be read from
    the cache at every time step, in training once in each direction; the rows share one reading.

    Args:
        weights: numbers in W_x and W_h; ``recurrent``: those that every time step has to read.
        steps: real steps of all rows together.
    """
    training = case.mode == "training"
    seconds = 2 * steps * weights * (3 if training else 1) / rates.flops
    if case.B >= FEW_ROWS:
        return seconds
    return max(seconds, case.T * recurrent * 4 * (2 if training else 1) / rates.bytes)


def _sequence(case: Case, rates: Rates, quick: bool) -> Result:
    ours, peer, same = build(case)
    inputs = draw(case)
    errors = compare(case, ours, peer if same else None, inputs)
    training = case.mode == "training"
    times = interleave(
        Run(ours, inputs, training=training), Run(peer, inputs, training=training), quick=quick
    )
    W_x, W_h = (0 if w is None else w.numel() for w in (ours.cell.W_x, ours.cell.W_h))
    least = floor(W_x + W_h, W_h, case, inputs.real_steps, rates)
    return Result(case, *times, least, errors)


def _stream(case: Case, rates: Rates, quick: bool) -> Result:
    with torch.inference_mode():
        ours, peer, rnn = build_stream(case)
        errors = compare_stream(case, ours, peer, rnn)
        x = torch.randn(case.B, case.H)
        calls = carry(ours, x), carry(peer, x)
        alternating = interleave(*calls, quick=quick)
        alone = interleave(*calls, quick=quick, block=BLOCK)
    weights = sum(w.numel() for w in rnn.parameters() if w.dim() == 2)
    least = floor(weights, weights, case, case.B, rates)
    return Result(case, *alone, least, errors, alternating=alternating)


def _first(case: Case, rates: Rates, quick: bool) -> Result:
    uses = _first_uses(1 if quick else 3)
    if case.ours != LATER:
        return Result(case, Times.of([use.compiled for use in uses]))
    return Result(case, Times.of([use.later for use in uses]), from_cache=all(use.from_cache for use in uses))


@functools.cache
def _first_uses(count: int) -> tuple[FirstUse, ...]:
    """Both cases of first use come out of the same processes."""
    return tuple(measure_first("cpu") for _ in range(count))


def interleave(ours: Call, peer: Call, *, quick: bool, block: int = 1) -> tuple[Times, Times]:
    """Both in turn; a turn is ``block`` calls on end."""
    first, second = take_turns(
        (ours, peer),
        lambda call: _time(call, block),
        warm_up=WARM_UP,
        least=LEAST[quick],
        budget=BUDGET[quick],
    )
    return first, second


def _time(call: Call, block: int) -> float:
    start = time.perf_counter()
    for _ in range(block):
        call()
    return (time.perf_counter() - start) / block


def measure_rates(*, quick: bool) -> Rates:
    """The best of several tries, and of torch's two libraries: a floor is what nobody gets below."""
    tries = 5 if quick else 20
    n, passes = 1024, 16
    a, b = torch.randn(n, n), torch.randn(n, n)
    weights = torch.randn(1 << 19)  # 2 MB: an LSTM's W_x and W_h for H = 256
    with torch.inference_mode():
        product = min(_best(lambda: a @ b, tries), _best(lambda: multiply(a, b), tries))
        reading = _best(lambda: weights.expand(passes, -1).sum(), 20 * tries)
    return Rates(2 * n**3 / product, passes * weights.numel() * 4 / reading)


def _best(call: Call, tries: int) -> float:
    return min(_time(call, 1) for _ in range(tries + WARM_UP))
