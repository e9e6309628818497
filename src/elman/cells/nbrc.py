"""The bistable recurrent cell, its units modulated by each other."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class NBRC(Cell):
    """Neuromodulated bistable recurrent cell (Vecoven et al. 2021).

    a = 1 + tanh(x W^xa + h W^ha + b_a)     z = tanh(x W^xz + a ⊙ h + b_z)
    c = σ(x W^xc + h W^hc + b_c)            h' = c ⊙ h + (1 - c) ⊙ z
    """

    state = ("h",)
    gates = ("a", "c", "z")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        a, c = 1 + tanh(x.a + h.a), sigmoid(x.c + h.c)
        z = tanh(x.z + a * s.h)
        return self.State(h=z + c * (s.h - z))
