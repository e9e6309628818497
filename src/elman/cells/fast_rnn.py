"""The Elman network with a weighted residual connection."""

from torch import Tensor, sigmoid, tanh
from torch.nn import init

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class FastRNN(Cell):
    """FastRNN (Kusupati et al. 2018); α and β are learned, ``a`` and ``d`` in the code.

        z = tanh(x W^xz + h W^hz + b_z)        h' = σ(α) ⊙ z + σ(β) ⊙ h

    Published with one number each for all units; here every unit has its own. They start at -3 and 3:
    little is written, nearly all is kept.
    """

    state = ("h",)
    gates = ("z",)
    vectors = ("a", "d")
    a: Tensor
    d: Tensor

    def reset_parameters(self) -> None:
        super().reset_parameters()
        init.constant_(self.a, -3.0)
        init.constant_(self.d, 3.0)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        z = tanh(x.z + h.z)
        return self.State(h=sigmoid(self.a) * z + sigmoid(self.d) * s.h)
