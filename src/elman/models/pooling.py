"""Pooling: one vector for a sequence, from what the network put out along it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from elman.errors import ArgumentError
from elman.recurrence.contract import Unrolled
from elman.tensors.checks import check_choice, check_lengths, check_size, check_tensor
from elman.tensors.rows import length_mask

POOLINGS = ("last", "mean", "max", "attention")


class Pooling(nn.Module):
    """(B, T, width) → (B, output_size), by one of these rules over the real steps h_1 … h_n:

    * ``last``: the output after the last step; of two directions both final ones side by side.
    * ``mean``: the average of all h_i.
    * ``max``: the largest value of every unit.
    * ``attention``: Σ a_i h_i with a = softmax_i(v · tanh(W h_i + b)); v is learned, a query that asks
      every sequence the same question (Yang et al. 2016).

    Every rule keeps the width. Padding counts nowhere.

    >>> pooling = Pooling("mean", 2)
    >>> outputs = torch.tensor([[[1.0, 4.0], [3.0, 0.0], [9.0, 9.0]]])
    >>> pooling(Unrolled(outputs, outputs[:, 1], ()), torch.tensor([2]))
    tensor([[2., 2.]])
    """

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.kind = check_choice("pooling", kind, POOLINGS)
        self.output_size = check_size("width", width)
        if self.kind == "attention":
            self.W = nn.Linear(width, width)
            self.v = nn.Linear(width, 1, bias=False)

    def forward(self, unrolled: Unrolled, lengths: Any = None) -> Tensor:
        """Pool what an RNN returned; lengths (B,) as it got them, None: all steps are real."""
        if self.kind == "last":
            return check_tensor("last", unrolled.last, ("B", self.output_size))
        outputs = check_tensor("outputs", unrolled.outputs, ("B", "T", self.output_size))
        real = _real(outputs, lengths)[..., None]  # (B, T, 1)
        if self.kind == "max":
            return outputs.masked_fill(~real, -torch.inf).max(1).values
        outputs = outputs.masked_fill(~real, 0.0)
        if self.kind == "mean":
            return outputs.sum(1) / real.sum(1)
        return (self.weights(outputs, lengths)[..., None] * outputs).sum(1)

    def weights(self, outputs: Tensor, lengths: Any = None) -> Tensor:
        """(B, T): how much attention every step gets; sums to 1, zero at padding."""
        if self.kind != "attention":
            raise ArgumentError(f"pooling {self.kind!r} has no weights; only 'attention' has")
        real = _real(outputs, lengths)
        energies: Tensor = self.v(torch.tanh(self.W(outputs))).squeeze(2)
        return energies.masked_fill(~real, -torch.inf).softmax(1)

    def extra_repr(self) -> str:
        return f"{self.kind}, {self.output_size}"


def _real(outputs: Tensor, lengths: Any) -> Tensor:
    B, T, _ = outputs.shape
    if lengths is None:
        return outputs.new_ones(B, T, dtype=torch.bool)
    return length_mask(check_lengths(lengths, B, T, outputs.device), T)
