"""The minion recurrent unit with a reset gate."""

from collections.abc import Callable

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_number


class MiRU1(Cell):
    """Minion recurrent unit (Zyarah & Kudithipudi 2025), the GRU's update gate replaced by a number.

        r = σ(x W^xr + h W^hr + b_r)        z = tanh(x W^xz + (r ⊙ h) U + b_z)
                                            h' = λ h + (1 - λ) z

    λ is ``update_coefficient``.
    """

    state = ("h",)
    gates = ("r", "z")
    matrices = ("U",)
    U: Callable[[Tensor], Tensor]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        update_coefficient: float = 0.5,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.update_coefficient = check_number("update_coefficient", update_coefficient)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        r = sigmoid(x.r + h.r)
        z = tanh(x.z + self.U(r * s.h))
        return self.State(h=z + self.update_coefficient * (s.h - z))
