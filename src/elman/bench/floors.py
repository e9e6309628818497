"""Floors that no code gets below: of a run on this CPU, by its measured rates; of a time step on one H200."""

from dataclasses import dataclass
from functools import partial
from math import ceil

import numpy as np
import torch

from elman.bench.cases import Case
from elman.bench.timing import host_clock
from elman.tensors.products import multiply

FEW_ROWS = 4  # below it, reading the weights is what takes the time


@dataclass(frozen=True)
class Rates:
    """What this machine can do with all of torch's threads: the measure of ``ours/floor``."""

    flops: float  # per second, in a large float32 product
    bytes: float  # per second, read from the cache


def measure_rates(*, quick: bool) -> Rates:
    """The best of several tries, and of torch's two libraries: a floor is what nobody gets below."""
    tries = 5 if quick else 20
    n, passes = 1024, 16
    a, b = torch.randn(n, n), torch.randn(n, n)
    weights = torch.randn(1 << 19)  # 2 MB: an LSTM's W_x and W_h for H = 256
    with torch.inference_mode():
        calls = [partial(torch.matmul, a, b), partial(multiply, a, b)] * (tries + 2)
        product = min(map(host_clock, calls))
        reading = min(host_clock(lambda: weights.expand(passes, -1).sum()) for _ in range(20 * tries + 2))
    return Rates(2 * n**3 / product, passes * weights.numel() * 4 / reading)


def run_floor(weights: int, recurrent: int, case: Case, steps: int, rates: Rates) -> float:
    """Seconds below which no code on this machine can be, whatever it does.

    Every real step multiplies every weight once, training three times (forward, gradient of the
    inputs, gradient of the weights). With few rows the recurrent weights must besides be read from
    the cache at every time step, in training once in each direction; the rows share one reading.

    Args:
        weights: numbers in W_x, W_h and other matrices; ``recurrent``: those that every step has to read.
        steps: real steps of all rows together.
    """
    training = case.mode in ("training", "decoder")
    seconds = 2 * steps * weights * (3 if training else 1) / rates.flops
    if case.B >= FEW_ROWS:
        return seconds
    return max(seconds, case.T * recurrent * 4 * (2 if training else 1) / rates.bytes)


# ---- on one H200: barrier, exchange and on-chip product --------------------------------------------

# Programs that wait for each other, and the microseconds of a step in which they do nothing else: a barrier
# of atomics, measured by a probe on one H200 (torch 2.11, Triton 3.6); of one program alone: assumed.
BARRIER = ((1, 0.4), (2, 0.45), (16, 0.75), (32, 0.8), (128, 0.9))


@dataclass(frozen=True)
class Card:
    """Numbers of one H200, by its maker unless something else is said."""

    programs: int = 132  # multiprocessors, one program on each
    flops: float = 989e12  # per second, bf16
    clock: float = 1.755e9
    shared_bytes: int = 128  # a clock and multiprocessor, from shared memory
    l2_bytes: float = 5.5e12  # per second, all together; assumed
    registers: int = 128 << 10  # bytes of weights that a program keeps in registers
    on_chip: int = 328 << 10  # and with shared memory


H200 = Card()
ROWS = 16  # the least that a tensor core multiplies


def step_floor(H: int, B: int, *, gates: int = 4, backward: bool = False, bytes: int = 2) -> float:
    """Seconds of a step in the best split of units over ``ph`` and of rows over ``pb`` programs.

    barrier(ph) + max(product, reading) + exchange, with b = max(16, B / pb) rows a program,

        product  = 2 b H (gates H / ph) / (flops / programs)
        reading  = what of gates H² / ph weights is not in registers, from shared memory
        exchange = ph pb b width / L2, where every program reads width = H new outputs of its rows,
                   backward the gradients of all gates H units have

    >>> [round(step_floor(512, 32, backward=backward) * 1e6, 2) for backward in (False, True)]
    [1.11, 1.37]
    """
    found = []
    width = H * (gates if backward else 1) * bytes
    for ph in range(1, min(ceil(H / ROWS), H200.programs) + 1):
        weights = gates * H * ceil(H / ph) * bytes
        if weights > H200.on_chip:
            continue
        for pb in range(1, min(ceil(B / ROWS), H200.programs // ph) + 1):
            b = max(ROWS, ceil(B / pb))
            product = 2 * b * H * gates * ceil(H / ph) / (H200.flops / H200.programs)
            reading = max(0, weights - H200.registers) / (H200.shared_bytes * H200.clock)
            exchange = ph * pb * b * width / H200.l2_bytes if ph > 1 else 0.0
            found.append(_barrier(ph) + max(product, reading) + exchange)
    return min(found)


def _barrier(programs: int) -> float:
    """Between two measured numbers of programs it grows with their logarithm."""
    counts, microseconds = zip(*BARRIER, strict=True)
    return float(np.interp(np.log2(programs), np.log2(counts), microseconds)) * 1e-6
