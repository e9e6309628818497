"""The lectures' gate on its own numbers (row R7): the hard gate writes, and a soft gate learns to."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from elman.cells.hard_gate import write

GATE, INPUT, MEMORY = (0, 1, 0), (10, 11, 12), (8, 9, 3)
UPDATES = 200
RATE = 0.5


@dataclass(frozen=True)
class GateExample:
    """gate ⊙ input + (1 + gate) ⊙ memory = written, with 1 + gate modulo 2.

    learning: of every update the soft gate, what it writes, and half the squared error.
    """

    gate: list[int]
    input: list[int]
    memory: list[int]
    written: list[int]
    learning: list[tuple[list[float], list[float], float]]


def gate_example() -> GateExample:
    """A soft gate g = σ(a) starts at ½ and descends the squared error to what the hard gate writes.

    >>> example = gate_example()
    >>> example.written, [round(g, 1) for g in example.learning[-1][0]]
    ([8, 11, 3], [0.0, 1.0, 0.0])
    """
    g, x, s = (torch.tensor(one) for one in (GATE, INPUT, MEMORY))
    written = write(g, x, s)
    a = torch.zeros(3, dtype=torch.float64)
    learning = []
    for _ in range(UPDATES + 1):
        a.requires_grad_()
        soft = a.sigmoid()
        found = write(soft, x, s)
        loss = (found - written).square().sum() / 2
        [gradient] = torch.autograd.grad(loss, a)
        learning.append((soft.tolist(), found.tolist(), float(loss.detach())))
        a = a.detach() - RATE * gradient
    return GateExample(list(GATE), list(INPUT), list(MEMORY), written.tolist(), learning)
