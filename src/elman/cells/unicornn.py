"""Undamped oscillators that are driven each by itself."""

from torch import Tensor, sigmoid, tanh
from torch.nn import init

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_number


class UnICORNN(Cell):
    """Undamped independent controlled oscillatory RNN (Rusch & Mishra 2021); w and v are learned vectors.

        z' = z - Δ σ(v) ⊙ (tanh(x W^xa + w ⊙ h + b_a) + α h)
        h' = h + Δ σ(v) ⊙ z'

    Δ is ``dt``, the length of a step of time, and α is ``alpha``. h is where the oscillators are, z
    how fast they move. w starts between 0 and 1, v within ±0.1.
    """

    state = ("h", "z")
    gates = ("a",)
    vectors = ("w", "v")
    w: Tensor
    v: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        dt: float = 0.1,
        alpha: float = 0.0,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.dt = check_number("dt", dt)
        self.alpha = check_number("alpha", alpha)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        init.uniform_(self.w)
        init.uniform_(self.v, -0.1, 0.1)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        d = self.dt * sigmoid(self.v)
        z = s.z - d * (tanh(x.a + self.w * s.h) + self.alpha * s.h)
        return self.State(h=s.h + d * z, z=z)
