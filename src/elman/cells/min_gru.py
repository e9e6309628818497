"""The gated unit whose gate reads the input alone."""

from torch import sigmoid

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class MinGRU(Cell):
    """Minimal gated recurrent unit (Feng et al. 2024): linear in its state, so time is scanned in parallel.

    z = σ(x W^xz + b_z)        h' = (1 - z) ⊙ h + z ⊙ (x W^xn + b_n)
    """

    state = ("h",)
    gates = ("z", "n")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        return self.State(h=s.h + sigmoid(x.z) * (x.n - s.h))
