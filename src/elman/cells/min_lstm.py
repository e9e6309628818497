"""The long short-term memory whose gates read the input alone."""

from torch import sigmoid

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class MinLSTM(Cell):
    """Minimal LSTM (Feng et al. 2024): linear in its state, so time is scanned in parallel.

        f = σ(x W^xf + b_f)        h' = (f ⊙ h + i ⊙ (x W^xn + b_n)) / (f + i)
        i = σ(x W^xi + b_i)

    Both gates together are one, so that the size of the state does not depend on time.
    """

    state = ("h",)
    gates = ("f", "i", "n")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        f, i = sigmoid(x.f), sigmoid(x.i)
        return self.State(h=(f * s.h + i * x.n) / (f + i))
