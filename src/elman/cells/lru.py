"""A linear recurrent unit: a diagonal matrix between learned projections."""

import torch
from torch import Tensor, exp, sqrt

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_rate


class LRU(Cell):
    """Linear recurrent unit (Orvieto et al. 2023), with a real diagonal; ν is a learned vector.

        a = exp(-exp(ν))        h' = a ⊙ h + √(1 - a²) ⊙ (x W^xu + b_u)

    a stays between 0 and 1, whatever is learned, and begins evenly spread (by its square) between ``slowest``
    and ``fastest``. The root keeps states of all units of one size. The published unit is complex; what comes
    after it, a layer with a non-linearity, is the next layer's affair.
    """

    state = ("h",)
    gates = ("u",)
    vectors = ("nu",)
    nu: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        fastest: float = 0.5,
        slowest: float = 0.99,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.fastest, self.slowest = check_rate("fastest", fastest), check_rate("slowest", slowest)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        least, most = sorted((max(self.fastest, 1e-6) ** 2, max(self.slowest, 1e-6) ** 2))
        square = least + (most - least) * torch.rand(self.hidden_size)
        self.get_parameter("nu").detach().copy_((-0.5 * square.log()).log())

    def R(self, x: Parts, h: Parts, s: State) -> State:
        a = exp(-exp(self.nu))
        return self.State(h=a * s.h + sqrt(1 - a * a) * x.u)
