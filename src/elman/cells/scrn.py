"""The Elman network beside a slow context."""

from collections.abc import Callable

from torch import Tensor, cat, sigmoid

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_number


class SCRN(Cell):
    """Structurally constrained recurrent network (Mikolov et al. 2014).

        c' = (1 - α) (x W^xc + b_c) + α c
        h' = σ(x W^xa + h W^ha + c' U + b_a)

    α is ``alpha``: near 1 the context c changes slowly. The output is h' and c' side by side, for what
    reads it to weigh.
    """

    state = ("h", "c")
    gates = ("c", "a")
    matrices = ("U",)
    U: Callable[[Tensor], Tensor]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        alpha: float = 0.95,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.alpha = check_number("alpha", alpha)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        c = (1 - self.alpha) * x.c + self.alpha * s.c
        return self.State(h=sigmoid(x.a + h.a + self.U(c)), c=c)

    def O(self, s: State) -> Tensor:
        return cat([s.h, s.c], -1)
