"""The LSTM whose input and state gate each other before it reads them."""

from typing import Any

from torch import sigmoid, tanh
from torch.nn import init

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_size


class Mogrifier(Cell):
    """Mogrifier LSTM (Melis et al. 2020), with ``rounds`` of mutual gating.

    x stands for itself as u = x W^xu + b_u, of the width of h. In turn, for k = 1, …, ``rounds``,

        u ← 2 σ(h Q_k) ⊙ u  for odd k       h ← 2 σ(u Q_k) ⊙ h  for even k

    and then the LSTM of both:

        i = σ(u X_i + h H_i + v_i)          z = tanh(u X_z + h H_z + v_z)
        f = σ(u X_f + h H_f + v_f)          c' = f ⊙ c + i ⊙ z
        o = σ(u X_o + h H_o + v_o)          h' = o ⊙ tanh(c')

    Q, X and H are learned matrices, v learned vectors, which there are only with ``bias``. Where input
    and hidden size agree and W^xu is the identity, this is the published form; W^xu lets them differ.
    """

    state = ("h", "c")
    gates = ("u",)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        rounds: int = 4,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.rounds = check_size("rounds", rounds, least=0)
        gating = [f"Q_{k}" for k in range(1, self.rounds + 1)]
        self.matrices = (*gating, *(f"{name}_{gate}" for name in "XH" for gate in "ifzo"))
        self.vectors = ("v_i", "v_f", "v_z", "v_o") if bias else ()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias:
            init.ones_(self.get_parameter("v_f"))

    def R(self, x: Parts, h: Parts, s: State) -> State:
        u, last = x.u, s.h
        for k in range(1, self.rounds + 1):
            Q = getattr(self, f"Q_{k}")
            if k % 2:
                u = 2 * sigmoid(Q(last)) * u
            else:
                last = 2 * sigmoid(Q(u)) * last
        i, f, z, o = (self._sum(gate, u, last) for gate in "ifzo")
        c = sigmoid(f) * s.c + sigmoid(i) * tanh(z)
        return self.State(h=sigmoid(o) * tanh(c), c=c)

    def _sum(self, gate: str, u: Any, h: Any) -> Any:
        a = getattr(self, f"X_{gate}")(u) + getattr(self, f"H_{gate}")(h)
        return a + getattr(self, f"v_{gate}") if self.bias else a
