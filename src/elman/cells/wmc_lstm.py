"""The LSTM whose gates see a transformed memory."""

from collections.abc import Callable

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class WMCLSTM(Cell):
    """LSTM with working memory connections (Landi et al. 2021).

    i = σ(x W^xi + h W^hi + tanh(c U_i) + b_i)      z = tanh(x W^xz + h W^hz + b_z)
    f = σ(x W^xf + h W^hf + tanh(c U_f) + b_f)      c' = f ⊙ c + i ⊙ z
    o = σ(x W^xo + h W^ho + tanh(c' U_o) + b_o)     h' = o ⊙ tanh(c')
    """

    state = ("h", "c")
    gates = ("i", "f", "z", "o")
    matrices = ("U_i", "U_f", "U_o")
    U_i: Callable[[Tensor], Tensor]
    U_f: Callable[[Tensor], Tensor]
    U_o: Callable[[Tensor], Tensor]

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias:
            self.block("b", "f").fill_(1.0)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        i = sigmoid(x.i + h.i + tanh(self.U_i(s.c)))
        f = sigmoid(x.f + h.f + tanh(self.U_f(s.c)))
        c = f * s.c + i * tanh(x.z + h.z)
        o = sigmoid(x.o + h.o + tanh(self.U_o(c)))
        return self.State(h=o * tanh(c), c=c)
