"""The network whose state stays among the codes of its inputs."""

from collections.abc import Callable

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class MinimalRNN(Cell):
    """MinimalRNN (Chen 2017); v is a learned vector, the bias of u; without ``bias`` there is none.

    z = tanh(x W^xz + b_z)      u = σ(h W^hz + z U + v)
                                h' = u ⊙ h + (1 - u) ⊙ z
    """

    state = ("h",)
    gates = ("z",)
    matrices = ("U",)
    U: Callable[[Tensor], Tensor]
    v: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, *, bias: bool = True, initialisation: str = "orthogonal"
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.vectors = ("v",) if bias else ()

    def R(self, x: Parts, h: Parts, s: State) -> State:
        z = tanh(x.z)
        u = h.z + self.U(z)
        u = sigmoid(u + self.v if self.bias else u)
        return self.State(h=z + u * (s.h - z))
