"""The simple gated recurrent network."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class SGRN(Cell):
    """Simple gated recurrent network (Zu & Wei 2021): one product for gate and candidate.

    f = σ(x W^xa + h W^ha + b_a)        h' = tanh((1 - f) ⊙ (x W^xa + b_a) + f ⊙ h)
    """

    state = ("h",)
    gates = ("a",)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        f = sigmoid(x.a + h.a)
        return self.State(h=tanh(x.a + f * (s.h - x.a)))
