"""The network that is a stable differential equation, with a gate."""

from collections.abc import Callable

from torch import Tensor, sigmoid, tanh
from torch.nn import init

from elman.cells.antisymmetric_rnn import antisymmetric
from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State, Weights
from elman.tensors.checks import check_number


class GatedAntisymmetricRNN(Cell):
    """Antisymmetric RNN with gating (Chang et al. 2019): gate and candidate share a product.

        z = σ(x W^xz + h A + b_z)       h' = h + ε z ⊙ tanh(x W^xa + h A + b_a)
        A = U - Uᵀ - γ I

    ε is ``epsilon``, the length of a step of time, and γ is ``gamma``, a damping. U is learned.
    """

    state = ("h",)
    gates = ("z", "a")
    matrices = ("U",)
    U: Callable[[Tensor], Tensor]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        epsilon: float = 0.1,
        gamma: float = 0.01,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.epsilon = check_number("epsilon", epsilon)
        self.gamma = check_number("gamma", gamma)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.initialisation == "orthogonal":
            init.normal_(self.get_parameter("U"), std=self.hidden_size**-0.5)

    def learned_matrices(self) -> dict[str, Tensor]:
        return {name: antisymmetric(U, self.gamma) for name, U in super().learned_matrices().items()}

    def weights(self) -> Weights:
        W_x, b, W_h, _ = super().weights()
        return W_x, b, W_h, tuple(self.learned_matrices().values())

    def R(self, x: Parts, h: Parts, s: State) -> State:
        a = self.U(s.h)
        return self.State(h=s.h + self.epsilon * sigmoid(x.z + a) * tanh(x.a + a))
