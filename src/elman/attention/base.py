"""Attention: which states of the source matter now; a score says so, the rest is common (row A4)."""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.errors import ArgumentError
from elman.tensors.checks import check_lengths, check_size, check_tensor
from elman.tensors.rows import length_mask


class Memory(NamedTuple):
    """What is looked at: keys (B, S, ·), made once a source, values (B, S, ·), mask (B, S) of the real."""

    keys: Tensor
    values: Tensor
    mask: Tensor

    def padded(self, multiple: int) -> "Memory":
        """The same with positions that nobody looks at behind the others: S becomes a multiple of so many.

        >>> Memory(torch.ones(1, 3, 2), torch.ones(1, 3, 4), torch.ones(1, 3).bool()).padded(4).mask
        tensor([[ True,  True,  True, False]])
        """
        more = -self.mask.shape[1] % multiple
        keys, values = (F.pad(part, (0, 0, 0, more)) for part in self[:2])
        return Memory(keys, values, F.pad(self.mask, (0, more)))


class Attention(nn.Module):
    """``α = softmax(score)`` over real positions, ``c = Σ_j α_j h_j``; a file of this folder defines a score.

    Nothing is kept in the module: the memory and the last weights are values that the caller holds.

    >>> from elman.attention.dot import Dot
    >>> attention = Dot(query_size=4, key_size=4)
    >>> memory = attention.remember(torch.randn(2, 7, 4), torch.tensor([7, 3]))
    >>> context, weights = attention(torch.randn(2, 5, 4), memory)
    >>> context.shape, weights[1, 0, 3:].tolist()  # nothing of the padding is looked at
    (torch.Size([2, 5, 4]), [0.0, 0.0, 0.0, 0.0])
    """

    sequential: ClassVar[bool] = False  # whether the score looks at the last weights, so goes step by step

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        if type(self).score is Attention.score and type(self).forward is Attention.forward:
            raise ArgumentError(f"{type(self).__name__} has to define score(self, query, keys, previous)")
        self.query_size = check_size("query_size", query_size)
        self.key_size = check_size("key_size", key_size)

    def keys(self, states: Tensor) -> Tensor:
        """What the score needs of the states (B, S, ·), whatever the query is: computed once a source."""
        return states

    def score(self, query: Tensor, keys: Tensor, previous: Tensor | None) -> Tensor:
        """
        Args:
            query: (B, T, ·) who asks.
            keys: (B, S, ·) as ``keys`` made them.
            previous: (B, S) the weights of the step before; None: there was none. Only a
                sequential score gets them, and then T is 1.

        Returns:
            (B, T, S): how much each state matters to each query.
        """
        raise NotImplementedError

    def plain_score(self, query: Tensor, keys: Tensor, previous: Tensor | None) -> Tensor:
        """The same as ``score`` without what only saves memory: the equations that kernels are made of."""
        return self.score(query, keys, previous)

    def remember(self, states: Tensor, lengths: Tensor) -> Memory:
        """The memory of states (B, S, ·) whose first ``lengths`` (B,) are real."""
        B, S, _ = states.shape
        mask = length_mask(check_lengths(lengths, B, S, states.device), S)
        states = states.masked_fill(~mask[..., None], 0.0)  # a weight of zero would not hide a NaN
        return Memory(self.keys(states), states, mask)

    def forward(self, query: Tensor, memory: Memory, previous: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The context (B, T, ·) of each query (B, T, ·) and its weights (B, T, S)."""
        (B, T, _), S = query.shape, memory.mask.shape[1]
        scores = self.score(query, memory.keys, previous)
        check_tensor(f"what score() of {type(self).__name__} returned", scores, (B, T, S))
        weights = scores.masked_fill(~memory.mask[:, None], -torch.inf).softmax(-1)
        return weights @ memory.values, weights

    def describe(self) -> str:
        """In a few words, with the widths."""
        return f"{type(self).__name__.lower()}, a query of {self.query_size} over states of {self.key_size}"
