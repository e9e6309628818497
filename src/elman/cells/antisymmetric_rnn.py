"""The network that is a stable differential equation."""

from collections.abc import Callable

from torch import Tensor, eye, tanh
from torch.nn import init

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State, Weights
from elman.tensors.checks import check_number


def antisymmetric(U: Tensor, gamma: float) -> Tensor:
    """``U - Uᵀ - γ I`` of every head, whose eigenvalues have the real part -γ.

    >>> from torch import tensor
    >>> antisymmetric(tensor([[5.0, 1.0], [4.0, 6.0]]), 0.5)
    tensor([[-0.5000, -3.0000],
            [ 3.0000, -0.5000]])
    """
    heads = U.view(-1, U.shape[1], U.shape[1])
    return (heads - heads.mT - gamma * eye(U.shape[1], dtype=U.dtype, device=U.device)).flatten(0, 1)


class AntisymmetricRNN(Cell):
    """Antisymmetric RNN (Chang et al. 2019): what it remembers neither explodes nor vanishes.

        h' = h + ε tanh(x W^xa + h A + b_a)        A = U - Uᵀ - γ I

    ε is ``epsilon``, the length of a step of time, and γ is ``gamma``, a damping. U is learned.
    """

    state = ("h",)
    gates: tuple[str, ...] = ("a",)
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
        return self.State(h=s.h + self.epsilon * tanh(x.a + self.U(s.h)))
