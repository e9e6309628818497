"""The cell that a search among architectures found."""

from torch import relu, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class NAS(Cell):
    """The cell of neural architecture search (Zoph & Le 2017).

    (a0, …, a7) = x W^x + h W^h + b

    p = tanh(σ(a0) ⊙ relu(a1))          c' = tanh(p + c) ⊙ tanh(σ(a2) + relu(a3))
    q = tanh(tanh(a4) ⊙ σ(a5))          h' = tanh(c' ⊙ tanh(q + r))
    r = σ(tanh(a6) + σ(a7))
    """

    state = ("h", "c")
    gates = tuple(f"a{k}" for k in range(8))

    def R(self, x: Parts, h: Parts, s: State) -> State:
        p = tanh(sigmoid(x.a0 + h.a0) * relu(x.a1 + h.a1))
        q = tanh(tanh(x.a4 + h.a4) * sigmoid(x.a5 + h.a5))
        r = sigmoid(tanh(x.a6 + h.a6) + sigmoid(x.a7 + h.a7))
        c = tanh(p + s.c) * tanh(sigmoid(x.a2 + h.a2) + relu(x.a3 + h.a3))
        return self.State(h=tanh(c * tanh(q + r)), c=c)
