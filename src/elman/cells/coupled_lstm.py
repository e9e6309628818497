"""The LSTM that forgets as much as it takes in."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class CoupledLSTM(Cell):
    """LSTM with coupled input and forget gate (Greff et al. 2017): i = 1 - f.

    f = σ(x W^xf + h W^hf + b_f)        z = tanh(x W^xz + h W^hz + b_z)
    o = σ(x W^xo + h W^ho + b_o)        c' = f ⊙ c + (1 - f) ⊙ z
                                        h' = o ⊙ tanh(c')
    """

    state = ("h", "c")
    gates = ("f", "z", "o")

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias:
            self.block("b", "f").fill_(1.0)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        f, o = sigmoid(x.f + h.f), sigmoid(x.o + h.o)
        z = tanh(x.z + h.z)
        c = z + f * (s.c - z)
        return self.State(h=o * tanh(c), c=c)
