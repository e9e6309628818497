"""The light GRU of speech recognition."""

from torch import relu, sigmoid

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class LiGRU(Cell):
    """Light gated recurrent unit (Ravanelli et al. 2018): no reset gate, and ReLU.

        f = σ(x W^xf + h W^hf + b_f)        z = relu(x W^xz + h W^hz + b_z)
                                            h' = f ⊙ h + (1 - f) ⊙ z

    Published with batch normalisation of the input parts, which is not part of the cell.
    """

    state = ("h",)
    gates = ("f", "z")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        f, z = sigmoid(x.f + h.f), relu(x.z + h.z)
        return self.State(h=z + f * (s.h - z))
