"""Long short-term memory."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_number


class LSTM(Cell):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000).

    h is the working memory, c the memory cells:

        i = σ(x W^xi + h W^hi + b_i)        z = tanh(x W^xz + h W^hz + b_z)
        f = σ(x W^xf + h W^hf + b_f)        c' = f ⊙ c + i ⊙ z
        o = σ(x W^xo + h W^ho + b_o)        h' = o ⊙ tanh(c')

    The forget gate starts with the bias ``forget_bias``, so that memory lasts from the beginning
    (Jozefowicz et al. 2015).
    """

    state = ("h", "c")
    gates = ("i", "f", "z", "o")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        forget_bias: float = 1.0,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.forget_bias = check_number("forget_bias", forget_bias)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias:
            self.block("b", "f").fill_(self.forget_bias)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        i, f, o = sigmoid(x.i + h.i), sigmoid(x.f + h.f), sigmoid(x.o + h.o)
        z = tanh(x.z + h.z)
        c = f * s.c + i * z
        return self.State(h=o * tanh(c), c=c)
