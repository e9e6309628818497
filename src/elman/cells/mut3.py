"""The third of three cells that a search among mutations found."""

from collections.abc import Callable

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class MUT3(Cell):
    """MUT3 (Jozefowicz et al. 2015).

    z = σ(x W^xz + tanh(h) V + b_z)     n = tanh(x W^xn + (r ⊙ h) U + b_n)
    r = σ(x W^xr + h W^hr + b_r)        h' = z ⊙ n + (1 - z) ⊙ h
    """

    state = ("h",)
    gates = ("z", "r", "n")
    matrices = ("U", "V")
    U: Callable[[Tensor], Tensor]
    V: Callable[[Tensor], Tensor]

    def R(self, x: Parts, h: Parts, s: State) -> State:
        z, r = sigmoid(x.z + self.V(tanh(s.h))), sigmoid(x.r + h.r)
        n = tanh(x.n + self.U(r * s.h))
        return self.State(h=s.h + z * (n - s.h))
