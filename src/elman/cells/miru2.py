"""The minion recurrent unit without a gate."""

from torch import tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_number


class MiRU2(Cell):
    """Minion recurrent unit (Zyarah & Kudithipudi 2025), both gates of the GRU replaced by numbers.

        z = tanh(x W^xz + θ (h W^hz) + b_z)        h' = λ h + (1 - λ) z

    λ is ``update_coefficient``, θ is ``reset_coefficient``.
    """

    state = ("h",)
    gates = ("z",)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        update_coefficient: float = 0.5,
        reset_coefficient: float = 0.5,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.update_coefficient = check_number("update_coefficient", update_coefficient)
        self.reset_coefficient = check_number("reset_coefficient", reset_coefficient)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        z = tanh(x.z + self.reset_coefficient * h.z)
        return self.State(h=z + self.update_coefficient * (s.h - z))
