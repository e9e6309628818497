"""The LSTM with nothing but a forget gate."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_number


class JANET(Cell):
    """JANET, just another network (van der Westhuizen & Lasenby 2018).

        f = x W^xf + h W^hf + b_f       z = tanh(x W^xz + h W^hz + b_z)
                                        h' = σ(f) ⊙ h + (1 - σ(f - β)) ⊙ z

    β is ``beta``: with 0 as much is written as was forgotten, with more of it more.
    """

    state = ("h",)
    gates = ("f", "z")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        beta: float = 1.0,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.beta = check_number("beta", beta)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias:
            self.block("b", "f").fill_(1.0)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        f = x.f + h.f
        return self.State(h=sigmoid(f) * s.h + (1 - sigmoid(f - self.beta)) * tanh(x.z + h.z))
