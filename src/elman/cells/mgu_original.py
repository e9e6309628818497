"""The minimal gated unit as it was published."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class OriginalMGU(Cell):
    """Minimal gated unit (Zhou et al. 2016): the state is gated before it is multiplied.

    f = σ(x W^xf + h W^hf + b_f)        z = tanh(x W^xz + (f ⊙ h) U + b_z)
                                        h' = (1 - f) ⊙ h + f ⊙ z
    """

    state = ("h",)
    gates = ("f", "z")
    matrices = ("U",)
    earlier: ClassVar[Mapping[str, tuple[str, ...]]] = {"W_h": ("W_h", "U")}
    U: Callable[[Tensor], Tensor]

    def R(self, x: Parts, h: Parts, s: State) -> State:
        f = sigmoid(x.f + h.f)
        z = tanh(x.z + self.U(f * s.h))
        return self.State(h=s.h + f * (z - s.h))
