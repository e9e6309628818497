"""The strongly typed network: a pointwise scan."""

from torch import sigmoid

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class TRNN(Cell):
    """Strongly typed RNN (Balduzzi & Ghifary 2016): states are averaged, never multiplied by a matrix.

    f = σ(x W^xf + b_f)        h' = f ⊙ h + (1 - f) ⊙ (x W^xz + b_z)
    """

    state = ("h",)
    gates = ("f", "z")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        return self.State(h=x.z + sigmoid(x.f) * (s.h - x.z))
