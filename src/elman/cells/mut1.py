"""The first of three cells that a search among mutations found."""

from collections.abc import Callable

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class MUT1(Cell):
    """MUT1 (Jozefowicz et al. 2015); v is a learned vector, which there is only with ``bias``.

        z = σ(x W^xz + b_z)                 n = tanh(tanh(x W^xn + b_n) + (r ⊙ h) U + v)
        r = σ(x W^xr + h W^hr + b_r)        h' = z ⊙ n + (1 - z) ⊙ h

    Published with tanh(x) in n; it goes through W^xn, so that input and hidden size may differ.
    """

    state = ("h",)
    gates = ("z", "r", "n")
    matrices = ("U",)
    U: Callable[[Tensor], Tensor]
    v: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, *, bias: bool = True, initialisation: str = "orthogonal"
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.vectors = ("v",) if bias else ()

    def R(self, x: Parts, h: Parts, s: State) -> State:
        z, r = sigmoid(x.z), sigmoid(x.r + h.r)
        a = tanh(x.n) + self.U(r * s.h)
        n = tanh(a + self.v if self.bias else a)
        return self.State(h=s.h + z * (n - s.h))
