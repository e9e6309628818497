"""The update gate RNN."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class UGRNN(Cell):
    """Update gate RNN (Collins et al. 2017): the Elman network behind one gate.

    f = σ(x W^xf + h W^hf + b_f)        z = tanh(x W^xz + h W^hz + b_z)
                                        h' = f ⊙ h + (1 - f) ⊙ z
    """

    state = ("h",)
    gates = ("f", "z")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        f, z = sigmoid(x.f + h.f), tanh(x.z + h.z)
        return self.State(h=z + f * (s.h - z))
