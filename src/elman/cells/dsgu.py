"""The deep simple gated unit."""

from collections.abc import Callable

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class DSGU(Cell):
    """Deep simple gated unit (Gao & Glowacka 2016): ``sgu`` with one more product.

        g = tanh(((x W^xg + b_g) ⊙ h) U + v)            o = σ((g ⊙ h) V)
        z = hard σ(x W^xz + h W^hz + b_z)               h' = (1 - z) ⊙ h + z ⊙ o

    v is a learned vector, which there is only with ``bias``. The hard σ is a / 6 + 1/2 between 0 and 1.
    """

    state = ("h",)
    gates = ("g", "z")
    matrices = ("U", "V")
    U: Callable[[Tensor], Tensor]
    V: Callable[[Tensor], Tensor]
    v: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, *, bias: bool = True, initialisation: str = "orthogonal"
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.vectors = ("v",) if bias else ()

    def R(self, x: Parts, h: Parts, s: State) -> State:
        g = self.U(x.g * s.h)
        g = tanh(g + self.v if self.bias else g)
        z = ((x.z + h.z) / 6 + 0.5).clamp(0, 1)
        return self.State(h=s.h + z * (sigmoid(self.V(g * s.h)) - s.h))
