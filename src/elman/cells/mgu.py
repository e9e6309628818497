"""The minimal gated unit, in its pointwise form."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class MGU(Cell):
    """Minimal gated unit (Zhou et al. 2016), the gate applied after the product.

        f = σ(x W^xf + h W^hf + b_f)        z = tanh(x W^xz + b_z + f ⊙ (h W^hz))
                                            h' = (1 - f) ⊙ h + f ⊙ z

    The published form gates before the product; it is ``mgu_original``.
    """

    state = ("h",)
    gates = ("f", "z")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        f = sigmoid(x.f + h.f)
        z = tanh(x.z + f * h.z)
        return self.State(h=s.h + f * (z - s.h))
