"""A weighted sum of all outputs, with learned weights."""

import torch
from torch import Tensor, nn

from elman.models.poolings.base import Pooling


class AttentionPooling(Pooling):
    """``Σ a_i h_i`` with ``a = softmax_i(v · tanh(W h_i + b))``; v is learned, a query that asks every
    sequence the same question (Yang et al. 2016).
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.W = nn.Linear(width, width)
        self.v = nn.Linear(width, 1, bias=False)

    def pool(self, outputs: Tensor, real: Tensor) -> Tensor:
        return (self.weights(outputs, real)[..., None] * outputs).sum(1)

    def weights(self, outputs: Tensor, real: Tensor) -> Tensor:
        """(B, T): how much attention every step gets; sums to 1, zero at padding."""
        energies: Tensor = self.v(torch.tanh(self.W(outputs))).squeeze(2)
        return energies.masked_fill(~real, -torch.inf).softmax(1)
