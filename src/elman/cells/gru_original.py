"""The gated recurrent unit as it was published."""

from collections.abc import Callable

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class OriginalGRU(Cell):
    """Gated recurrent unit (Cho et al. 2014): the state is reset before it is multiplied.

        r = σ(x W^xr + h W^hr + b_r)        n = tanh(x W^xn + (r ⊙ h) U + b_n)
        z = σ(x W^xz + h W^hz + b_z)        h' = (1 - z) ⊙ n + z ⊙ h

    Torch's form resets after the product; it is ``gru``.
    """

    state = ("h",)
    gates = ("r", "z", "n")
    matrices = ("U",)
    U: Callable[[Tensor], Tensor]

    def R(self, x: Parts, h: Parts, s: State) -> State:
        r, z = sigmoid(x.r + h.r), sigmoid(x.z + h.z)
        n = tanh(x.n + self.U(r * s.h))
        return self.State(h=n + z * (s.h - n))
