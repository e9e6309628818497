"""The second of three cells that a search among mutations found."""

from collections.abc import Callable

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class MUT2(Cell):
    """MUT2 (Jozefowicz et al. 2015).

        z = σ(x W^xz + h W^hz + b_z)        n = tanh(x W^xn + (r ⊙ h) U + b_n)
        r = σ(x W^xr + h W^hr + b_r)        h' = z ⊙ n + (1 - z) ⊙ h

    Published with x itself in r; it goes through W^xr, so that input and hidden size may differ. With
    W^xr learned this is ``gru_original``, z turned round.
    """

    state = ("h",)
    gates = ("z", "r", "n")
    matrices = ("U",)
    U: Callable[[Tensor], Tensor]

    def R(self, x: Parts, h: Parts, s: State) -> State:
        z, r = sigmoid(x.z + h.z), sigmoid(x.r + h.r)
        n = tanh(x.n + self.U(r * s.h))
        return self.State(h=s.h + z * (n - s.h))
