"""The gated unit whose gate and candidate share their products."""

from torch import Tensor, sigmoid, tanh
from torch.nn import init

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class FastGRNN(Cell):
    """FastGRNN (Kusupati et al. 2018); ζ and ν are learned, ``u`` and ``v`` in the code.

        a = x W^xa + h W^ha + b_a       z = σ(a)
                                        n = tanh(a + d)
        h' = (σ(ζ) ⊙ (1 - z) + σ(ν)) ⊙ n + z ⊙ h

    d is a learned vector, by which the bias of n differs from that of z; without ``bias`` there is
    none. Published with one number each for ζ and ν; here every unit has its own.
    """

    state = ("h",)
    gates = ("a",)
    u: Tensor
    v: Tensor
    d: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, *, bias: bool = True, initialisation: str = "orthogonal"
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.vectors = ("u", "v", "d") if bias else ("u", "v")

    def reset_parameters(self) -> None:
        super().reset_parameters()
        init.constant_(self.u, 3.0)
        init.constant_(self.v, -3.0)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        a = x.a + h.a
        z = sigmoid(a)
        n = tanh(a + self.d if self.bias else a)
        return self.State(h=(sigmoid(self.u) * (1 - z) + sigmoid(self.v)) * n + z * s.h)
