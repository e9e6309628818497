"""The LSTM whose gates read another vector than its output."""

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class MemoryControllerLSTM(Cell):
    """Memory-controller LSTM (MC-LSTM, NIPS 2017 workshop): v controls the gates, h is only shown.

        i = σ(x W^xi + v W^vi + b_i)        z = tanh(x W^xz + v W^vz + b_z)
        f = σ(x W^xf + v W^vf + b_f)        c' = f ⊙ c + i ⊙ z
        m = σ(x W^xm + v W^vm + b_m)        v' = m ⊙ tanh(c')
        o = σ(x W^xo + v W^vo + b_o)        h' = o ⊙ tanh(c')

    The output is h'. Not the mass-conserving LSTM, which has the same initials.
    """

    state = ("v", "c", "h")
    gates = ("i", "f", "z", "m", "o")

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias:
            self.block("b", "f").fill_(1.0)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        i, f = sigmoid(x.i + h.i), sigmoid(x.f + h.f)
        m, o = sigmoid(x.m + h.m), sigmoid(x.o + h.o)
        c = f * s.c + i * tanh(x.z + h.z)
        return self.State(v=m * tanh(c), c=c, h=o * tanh(c))

    def O(self, s: State) -> Tensor:
        return s.h
