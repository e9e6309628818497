"""The hard gate: memory that is either overwritten or kept."""

import torch
from torch import Tensor

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


def write(g: Tensor, x: Tensor, s: Tensor) -> Tensor:
    """``s' = g ⊙ x + (1 + g) ⊙ s`` with 1 + g modulo 2, which is 1 - g: where g is 1, x is written.

    >>> g, x, s = torch.tensor([[0, 1, 0], [10, 11, 12], [8, 9, 3]])
    >>> write(g, x, s)
    tensor([ 8, 11,  3])
    """
    return g * x + (1 - g) * s


class HardGate(Cell):
    """A memory written through a gate of zeros and ones.

        g = 1 where x W^xg + s W^sg + b_g > 0, else 0
        s' = g ⊙ (x W^xv + b_v) + (1 + g) ⊙ s       1 + g modulo 2

    No gradient passes a hard gate, so W^xg and W^sg do not learn: the reason for soft gates, whose
    σ is the differentiable form of this one.
    """

    state = ("s",)
    gates = ("g", "v")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        g = torch.where(x.g + h.g > 0, torch.ones_like(x.g), torch.zeros_like(x.g))
        return self.State(s=write(g, x.v, s.s))
