"""Long expressive memory: two states that move at learned speeds."""

from collections.abc import Callable

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_number


class LEM(Cell):
    """Long expressive memory (Rusch et al. 2022).

        d = Δ σ(x W^xd + h W^hd + b_d)      z' = (1 - d) ⊙ z + d ⊙ tanh(x W^xz + h W^hz + b_z)
        e = Δ σ(x W^xe + h W^he + b_e)      h' = (1 - e) ⊙ h + e ⊙ tanh(x W^xu + z' U + b_u)

    Δ is ``dt``, the longest step of time.
    """

    state = ("h", "z")
    gates = ("d", "e", "z", "u")
    matrices = ("U",)
    U: Callable[[Tensor], Tensor]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        dt: float = 1.0,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.dt = check_number("dt", dt)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        d, e = self.dt * sigmoid(x.d + h.d), self.dt * sigmoid(x.e + h.e)
        z = s.z + d * (tanh(x.z + h.z) - s.z)
        return self.State(h=s.h + e * (tanh(x.u + self.U(z)) - s.h), z=z)
