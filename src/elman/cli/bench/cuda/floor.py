"""The floor of a time step: what barrier, exchange and on-chip product take at least, on one H200."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log2

# Programs that wait for each other, and the microseconds of a step in which they do nothing else: a barrier
# of atomics, measured by a probe on one H200 (torch 2.11, Triton 3.6); of one program alone: assumed.
BARRIER = ((1, 0.4), (2, 0.45), (16, 0.75), (32, 0.8), (128, 0.9))


@dataclass(frozen=True)
class Card:
    """Figures of one H200, by its maker unless something else is said."""

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
    for (fewer, least), (more, most) in pairwise(BARRIER):
        if programs <= more:
            return (least + (most - least) * log2(programs / fewer) / log2(more / fewer)) * 1e-6
    return BARRIER[-1][1] * 1e-6
