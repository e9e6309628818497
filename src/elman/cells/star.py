"""The cell that is made to be stacked."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class STAR(Cell):
    """Stackable recurrent cell (Turkoglu et al. 2021): gradients keep their size across layers.

    k = σ(x W^xk + h W^hk + b_k)        z = tanh(x W^xz + b_z)
                                        h' = tanh((1 - k) ⊙ h + k ⊙ z)
    """

    state = ("h",)
    gates = ("k", "z")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        k, z = sigmoid(x.k + h.k), tanh(x.z)
        return self.State(h=tanh(s.h + k * (z - s.h)))
