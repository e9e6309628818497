"""The LSTM whose transition is chosen by its input."""

from collections.abc import Callable

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class MultiplicativeLSTM(Cell):
    """Multiplicative LSTM (Krause et al. 2016).

    m = (x W^xm + b_m) ⊙ (h W^hm)
    i = σ(x W^xi + m U_i + b_i)         z = tanh(x W^xz + m U_z + b_z)
    f = σ(x W^xf + m U_f + b_f)         c' = f ⊙ c + i ⊙ z
    o = σ(x W^xo + m U_o + b_o)         h' = o ⊙ tanh(c')
    """

    state = ("h", "c")
    gates = ("m", "i", "f", "z", "o")
    matrices = ("U_i", "U_f", "U_z", "U_o")
    U_i: Callable[[Tensor], Tensor]
    U_f: Callable[[Tensor], Tensor]
    U_z: Callable[[Tensor], Tensor]
    U_o: Callable[[Tensor], Tensor]

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias:
            self.block("b", "f").fill_(1.0)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        m = x.m * h.m
        i, f, o = sigmoid(x.i + self.U_i(m)), sigmoid(x.f + self.U_f(m)), sigmoid(x.o + self.U_o(m))
        c = f * s.c + i * tanh(x.z + self.U_z(m))
        return self.State(h=o * tanh(c), c=c)
