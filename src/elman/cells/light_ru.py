"""The light recurrent unit."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class LightRU(Cell):
    """Light recurrent unit (Ye et al. 2024): the candidate sees the input alone.

    f = σ(x W^xf + h W^hf + b_f)        z = tanh(x W^xz + b_z)
                                        h' = (1 - f) ⊙ h + f ⊙ z
    """

    state = ("h",)
    gates = ("f", "z")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        f, z = sigmoid(x.f + h.f), tanh(x.z)
        return self.State(h=s.h + f * (z - s.h))
