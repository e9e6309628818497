"""The LSTM whose gates see the memory cells."""

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class PeepholeLSTM(Cell):
    """LSTM with peepholes (Gers & Schmidhuber 2000): p_i, p_f and p_o are learned vectors.

    i = σ(x W^xi + h W^hi + p_i ⊙ c + b_i)      z = tanh(x W^xz + h W^hz + b_z)
    f = σ(x W^xf + h W^hf + p_f ⊙ c + b_f)      c' = f ⊙ c + i ⊙ z
    o = σ(x W^xo + h W^ho + p_o ⊙ c' + b_o)     h' = o ⊙ tanh(c')
    """

    state = ("h", "c")
    gates = ("i", "f", "z", "o")
    vectors = ("p_i", "p_f", "p_o")
    p_i: Tensor
    p_f: Tensor
    p_o: Tensor

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias:
            self.block("b", "f").fill_(1.0)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        i = sigmoid(x.i + h.i + self.p_i * s.c)
        f = sigmoid(x.f + h.f + self.p_f * s.c)
        c = f * s.c + i * tanh(x.z + h.z)
        o = sigmoid(x.o + h.o + self.p_o * c)
        return self.State(h=o * tanh(c), c=c)
