"""The network whose units are recurrent each by itself."""

from torch import Tensor
from torch.nn import init

from elman.cells.base import Cell
from elman.cells.elman import ACTIVATIONS
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_choice


class IndRNN(Cell):
    """Independently recurrent network (Li et al. 2018); u is a learned vector.

        h' = g(x W^xa + u ⊙ h + b_a)        g: ReLU, tanh or the logistic function

    u starts between 0 and 1.
    """

    state = ("h",)
    gates = ("a",)
    vectors = ("u",)
    u: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        activation: str = "relu",
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.activation = check_choice("activation", activation, tuple(ACTIVATIONS))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        init.uniform_(self.u)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        g = ACTIVATIONS[self.activation]
        return self.State(h=g(x.a + self.u * s.h))
