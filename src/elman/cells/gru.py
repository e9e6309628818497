"""The gated recurrent unit."""

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class GRU(Cell):
    """Gated recurrent unit (Cho et al. 2014), in the form that torch and cuDNN compute.

        r = σ(x W^xr + h W^hr + b_r)        n = tanh(x W^xn + b_n + r ⊙ (h W^hn + m))
        z = σ(x W^xz + h W^hz + b_z)        h' = (1 - z) ⊙ n + z ⊙ h

    m is a learned vector, the bias of the recurrent product; without ``bias`` there is none.
    """

    state = ("h",)
    gates = ("r", "z", "n")
    m: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, *, bias: bool = True, initialisation: str = "orthogonal"
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.vectors = ("m",) if bias else ()

    def R(self, x: Parts, h: Parts, s: State) -> State:
        r, z = sigmoid(x.r + h.r), sigmoid(x.z + h.z)
        n = tanh(x.n + r * (h.n + self.m if self.bias else h.n))
        return self.State(h=n + z * (s.h - n))
