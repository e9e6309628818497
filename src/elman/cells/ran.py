"""The recurrent additive network."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class RAN(Cell):
    """Recurrent additive network (Lee et al. 2017): memory is a weighted sum of inputs.

    i = σ(x W^xi + h W^hi + b_i)        c' = i ⊙ (x W^xz + b_z) + f ⊙ c
    f = σ(x W^xf + h W^hf + b_f)        h' = tanh(c')
    """

    state = ("h", "c")
    gates = ("i", "f", "z")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        i, f = sigmoid(x.i + h.i), sigmoid(x.f + h.f)
        c = i * x.z + f * s.c
        return self.State(h=tanh(c), c=c)
