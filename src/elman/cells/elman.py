"""The Elman network, also called simple recurrent network."""

import torch

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_choice

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "logistic": torch.sigmoid}


class Elman(Cell):
    """The Elman network (Elman 1990).

    h' = g(x W^xa + h W^ha + b_a)        g: tanh, ReLU or the logistic function
    """

    state = ("h",)
    gates = ("a",)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        activation: str = "tanh",
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.activation = check_choice("activation", activation, tuple(ACTIVATIONS))

    def R(self, x: Parts, h: Parts, s: State) -> State:
        g = ACTIVATIONS[self.activation]
        return self.State(h=g(x.a + h.a))
