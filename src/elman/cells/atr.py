"""The twin-gated network, whose two gates share their products."""

from torch import sigmoid

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class ATR(Cell):
    """Addition-subtraction twin-gated recurrent network (Zhang et al. 2018).

    p = x W^xp + b_p        i = σ(p + q)
    q = h W^hp              f = σ(p - q)        h' = i ⊙ p + f ⊙ h
    """

    state = ("h",)
    gates = ("p",)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        p, q = x.p, h.p
        return self.State(h=sigmoid(p + q) * p + sigmoid(p - q) * s.h)
