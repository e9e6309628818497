"""The LSTM as it was before it could forget."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class OriginalLSTM(Cell):
    """The first LSTM (Hochreiter & Schmidhuber 1997), without a forget gate.

    i = σ(x W^xi + h W^hi + b_i)        z = tanh(x W^xz + h W^hz + b_z)
    o = σ(x W^xo + h W^ho + b_o)        c' = c + i ⊙ z
                                        h' = o ⊙ tanh(c')
    """

    state = ("h", "c")
    gates = ("i", "z", "o")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        i, o = sigmoid(x.i + h.i), sigmoid(x.o + h.o)
        c = s.c + i * tanh(x.z + h.z)
        return self.State(h=o * tanh(c), c=c)
