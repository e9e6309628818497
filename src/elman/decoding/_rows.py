"""Rows of nested states, and which of them belong to the same example."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from elman.errors import ShapeError


def select(state: Any, index: Tensor | int) -> Any:
    """The rows at ``index`` of every tensor of a nested state; with a number, that row without its axis.

    >>> select({"h": torch.tensor([[1.0], [2.0]]), "layers": (torch.tensor([3, 4]),)}, torch.tensor([1, 1]))
    {'h': tensor([[2.],
            [2.]]), 'layers': (tensor([4, 4]),)}
    """
    if state is None:
        return None
    if isinstance(state, Tensor) and state.dim():
        return state[index]
    if isinstance(state, dict):
        return {name: select(part, index) for name, part in state.items()}
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*(select(part, index) for part in state))
    if isinstance(state, (tuple, list)):
        parts = [select(part, index) for part in state]
        return parts if isinstance(state, list) else tuple(parts)
    raise ShapeError(
        f"a state holds {state!r}; it must be made of tensors with the rows on axis 0, None, "
        "and tuples, lists and dicts of them"
    )


class Groups(NamedTuple):
    """Rows of one example, which stand side by side, as a group: U groups of at most K rows.

    examples: (U,) the examples that have rows, rising.
    first: (U,) the first row of each.
    group, slot: (N,) the group of every row, and its place in there.
    K: rows of the largest group.
    """

    examples: Tensor
    first: Tensor
    group: Tensor
    slot: Tensor
    K: int

    @classmethod
    def of(cls, examples: Tensor) -> Groups:
        """
        >>> Groups.of(torch.tensor([2, 2, 5])).slot
        tensor([0, 1, 0])
        """
        present, group, counts = torch.unique_consecutive(examples, return_inverse=True, return_counts=True)
        first = counts.cumsum(0) - counts
        slot = torch.arange(len(examples), device=examples.device) - first[group]
        return cls(present, first, group, slot, int(counts.max()))

    def spread(self, values: Tensor) -> Tensor:
        """(N, …) as (U, K, …); −∞ where a group has no such row."""
        U = len(self.examples)
        spread = values.new_full((U, self.K, *values.shape[1:]), -torch.inf)
        spread[self.group, self.slot] = values
        return spread
