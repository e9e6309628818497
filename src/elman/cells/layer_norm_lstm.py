"""The layer-normalised LSTM: an example of a free-form cell with parameters of its own."""

import torch
from torch import Tensor, nn, sigmoid, tanh
from torch.nn.functional import layer_norm

from elman.cells.base import Cell
from elman.recurrence.contract import Product, State, StepInput
from elman.tensors.checks import check_number
from elman.tensors.products import affine


class LayerNormLSTM(Cell):
    """Layer-normalised LSTM (Ba et al. 2016); LN normalises all gates together.

        (i, f, o, z) = LN(x W^x) + LN(h W^h) + b
        c' = σ(f) ⊙ c + σ(i) ⊙ tanh(z)      h' = σ(o) ⊙ tanh(LN(c'))

    A norm looks at all units at once, so this is a free-form cell on the plain loop. The input side
    is normalised for all steps together.
    """

    state = ("h", "c")
    gates = ("i", "f", "o", "z")
    joined = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        epsilon: float = 1e-5,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.epsilon = check_number("epsilon", epsilon)
        self.gain_x = nn.Parameter(torch.ones(4 * hidden_size))
        self.gain_h = nn.Parameter(torch.ones(4 * hidden_size))
        self.gain_c = nn.Parameter(torch.ones(hidden_size))
        self.shift_c = nn.Parameter(torch.zeros(hidden_size))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for gain in (self.gain_x, self.gain_h, self.gain_c):
            nn.init.ones_(gain)
        nn.init.zeros_(self.shift_c)
        if self.bias:
            self.block("b", "f").fill_(1.0)

    def project(self, x: Tensor) -> Tensor:
        assert self.W_x is not None
        rows = affine(x.reshape(-1, x.shape[-1]), self.W_x)
        normal = layer_norm(rows, self.gain_x.shape, self.gain_x, self.b, self.epsilon)
        return normal.view(*x.shape[:-1], -1)

    def step(self, x: StepInput, s: State, product: Product) -> State:
        H = self.hidden_size
        rows = x + layer_norm(product.joined(s.h), (4 * H,), self.gain_h, None, self.epsilon)
        i, f, o = sigmoid(rows[:, : 3 * H]).chunk(3, -1)
        c = torch.addcmul(f * s.c, i, tanh(rows[:, 3 * H :]))
        normal = layer_norm(c, (H,), self.gain_c, self.shift_c, self.epsilon)
        return self.State(h=o * tanh(normal), c=c)
