"""The chaos-free network."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class CFN(Cell):
    """Chaos-free network (Laurent & von Brecht 2017): without input the state dies away.

    f = σ(x W^xf + h W^hf + b_f)        z = tanh(x W^xz + b_z)
    i = σ(x W^xi + h W^hi + b_i)        h' = f ⊙ tanh(h) + i ⊙ z
    """

    state = ("h",)
    gates = ("f", "i", "z")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        f, i = sigmoid(x.f + h.f), sigmoid(x.i + h.i)
        return self.State(h=f * tanh(s.h) + i * tanh(x.z))
