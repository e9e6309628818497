"""Coupled oscillators that are damped and driven."""

from collections.abc import Callable

from torch import Tensor, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_number


class CoRNN(Cell):
    """Coupled oscillatory RNN (Rusch & Mishra 2021): a = tanh(x W^xa + h W^ha + z U + b_a).

        z' = z + Δ (a - γ h - ε z)
        h' = h + Δ z'

    Δ is ``dt``, the length of a step of time, γ is ``gamma`` and ε the damping, ``epsilon``. h is where
    the oscillators are, z how fast they move.
    """

    state = ("h", "z")
    gates = ("a",)
    matrices = ("U",)
    U: Callable[[Tensor], Tensor]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        dt: float = 0.1,
        gamma: float = 1.0,
        epsilon: float = 1.0,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.dt = check_number("dt", dt)
        self.gamma = check_number("gamma", gamma)
        self.epsilon = check_number("epsilon", epsilon)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        a = tanh(x.a + h.a + self.U(s.z))
        z = s.z + self.dt * (a - self.gamma * s.h - self.epsilon * s.z)
        return self.State(h=s.h + self.dt * z, z=z)
