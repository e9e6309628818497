"""The bistable recurrent cell, whose units see only themselves."""

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class BRC(Cell):
    """Bistable recurrent cell (Vecoven et al. 2021); w_a and w_c are learned vectors.

        a = 1 + tanh(x W^xa + w_a ⊙ h + b_a)        z = tanh(x W^xz + a ⊙ h + b_z)
        c = σ(x W^xc + w_c ⊙ h + b_c)               h' = c ⊙ h + (1 - c) ⊙ z

    Where a is above 1 a unit has two stable states, below it has one.
    """

    state = ("h",)
    gates = ("a", "c", "z")
    vectors = ("w_a", "w_c")
    w_a: Tensor
    w_c: Tensor

    def R(self, x: Parts, h: Parts, s: State) -> State:
        a = 1 + tanh(x.a + self.w_a * s.h)
        c = sigmoid(x.c + self.w_c * s.h)
        z = tanh(x.z + a * s.h)
        return self.State(h=z + c * (s.h - z))
