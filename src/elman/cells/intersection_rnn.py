"""The network that gates its depth and its recurrence apart."""

from torch import Tensor, relu, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class IntersectionRNN(Cell):
    """Intersection RNN, +RNN (Collins et al. 2017): what goes up is not what goes on.

        f = σ(x W^xf + h W^hf + b_f)        z = tanh(x W^xz + h W^hz + b_z)
        g = σ(x W^xg + h W^hg + b_g)        u = relu(x W^xu + h W^hu + b_u)
        h' = f ⊙ h + (1 - f) ⊙ z            y' = g ⊙ (x W^xk + b_k) + (1 - g) ⊙ u

    The output is y'. The skip connection goes through W^xk, so that input and hidden size may differ.
    """

    state = ("h", "y")
    gates = ("f", "g", "z", "u", "k")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        f, g = sigmoid(x.f + h.f), sigmoid(x.g + h.g)
        z, u = tanh(x.z + h.z), relu(x.u + h.u)
        return self.State(h=z + f * (s.h - z), y=u + g * (x.k - u))

    def O(self, s: State) -> Tensor:
        return s.y
