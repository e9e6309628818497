"""The gated unit with delayed feedback."""

from collections.abc import Callable

from torch import Tensor, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class TauGRU(Cell):
    """τ-GRU (Erichson et al. 2022): the state of one step earlier comes back through a gate of its own.

        u = tanh(x W^xu + h W^hu + b_u)     g = σ(x W^xg + h W^hg + b_g)
        z = tanh(x W^xz + d U + b_z)        a = σ(x W^xa + h W^ha + b_a)
        d' = h                              h' = (1 - g) ⊙ h + g ⊙ (u + a ⊙ z)

    The delay is one step: d is the state before h. A longer one takes as many states more.
    """

    state = ("h", "d")
    gates = ("u", "z", "g", "a")
    matrices = ("U",)
    U: Callable[[Tensor], Tensor]

    def R(self, x: Parts, h: Parts, s: State) -> State:
        g, a = sigmoid(x.g + h.g), sigmoid(x.a + h.a)
        u, z = tanh(x.u + h.u), tanh(x.z + self.U(s.d))
        return self.State(h=s.h + g * (u + a * z - s.h), d=s.h)
