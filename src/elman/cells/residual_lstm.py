"""The LSTM with a shortcut from its input to its output."""

from collections.abc import Callable

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class ResidualLSTM(Cell):
    """Residual LSTM (Kim et al. 2017); p_i, p_f and p_o are learned vectors.

        i = σ(x W^xi + h W^hi + p_i ⊙ c + b_i)      z = tanh(x W^xz + h W^hz + b_z)
        f = σ(x W^xf + h W^hf + p_f ⊙ c + b_f)      c' = f ⊙ c + i ⊙ z
        o = σ(x W^xo + h W^ho + p_o ⊙ c' + b_o)     h' = o ⊙ (tanh(c') U + x W^xk + b_k)

    The shortcut goes through W^xk, so that input and hidden size may differ.
    """

    state = ("h", "c")
    gates = ("i", "f", "z", "o", "k")
    vectors = ("p_i", "p_f", "p_o")
    matrices = ("U",)
    p_i: Tensor
    p_f: Tensor
    p_o: Tensor
    U: Callable[[Tensor], Tensor]

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias:
            self.block("b", "f").fill_(1.0)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        i = sigmoid(x.i + h.i + self.p_i * s.c)
        f = sigmoid(x.f + h.f + self.p_f * s.c)
        c = f * s.c + i * tanh(x.z + h.z)
        o = sigmoid(x.o + h.o + self.p_o * c)
        return self.State(h=o * (self.U(tanh(c)) + x.k), c=c)
