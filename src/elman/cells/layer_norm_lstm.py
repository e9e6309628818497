"""The layer-normalised LSTM: norms inside a step; the input side is normalised for all steps at once."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn, sigmoid, tanh
from torch.nn.functional import layer_norm

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.recurrence.functions import norm
from elman.tensors.checks import check_number
from elman.tensors.products import affine

GATES = ("i", "f", "o", "z")


class LayerNormLSTM(Cell):
    """Layer-normalised LSTM (Ba et al. 2016); LN normalises all gates together.

        (i, f, o, z) = LN(x W^x) + LN(h W^h) + b
        c' = σ(f) ⊙ c + σ(i) ⊙ tanh(z)      h' = σ(o) ⊙ tanh(LN(c'))

    The input side is normalised for all steps together.
    """

    state = ("h", "c")
    gates = GATES
    vectors = (*(f"gain_{gate}" for gate in GATES), "gain_c", "shift_c")
    earlier: ClassVar[Mapping[str, tuple[str, ...]]] = {"gain_h": vectors[:4]}

    gain_i: Tensor
    gain_f: Tensor
    gain_o: Tensor
    gain_z: Tensor
    gain_c: Tensor
    shift_c: Tensor

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

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for name in ("gain_x", *self.vectors):
            nn.init.constant_(getattr(self, name), float(name != "shift_c"))
        if self.bias:
            self.block("b", "f").fill_(1.0)

    def project(self, x: Tensor) -> Tensor:
        assert self.W_x is not None
        rows = affine(x.reshape(-1, x.shape[-1]), self.W_x)
        normal = layer_norm(rows, self.gain_x.shape, self.gain_x, self.b, self.epsilon)
        return normal.view(*x.shape[:-1], -1)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        i, f, o, z = norm(h.i, h.f, h.o, h.z, epsilon=self.epsilon)
        i, f, o = (
            sigmoid(x.i + self.gain_i * i),
            sigmoid(x.f + self.gain_f * f),
            sigmoid(x.o + self.gain_o * o),
        )
        c = f * s.c + i * tanh(x.z + self.gain_z * z)
        return self.State(h=o * tanh(self.gain_c * norm(c, epsilon=self.epsilon) + self.shift_c), c=c)
